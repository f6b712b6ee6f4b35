// IdentityService: join tokens, and certificates for nodes. The core decides; this class draws
// secrets and signs.
#ifndef MUSTER_COORDINATOR_SERVICE_CALLS_IDENTITY_SERVICE_H_
#define MUSTER_COORDINATOR_SERVICE_CALLS_IDENTITY_SERVICE_H_

#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/security/authority.h"
#include "common/time/time.h"
#include "coordinator/service/calls/core_calls.h"
#include "proto/muster/v1/identity.grpc.pb.h"

namespace muster::service {

// Without an authority, every method fails with FAILED_PRECONDITION. All referenced objects must
// outlive the server with which this service is registered.
class IdentityServiceImpl : public v1::IdentityService::CallbackService {
 public:
  IdentityServiceImpl(CoreCalls& calls, const std::optional<security::Authority>& authority,
                      absl::Duration validity, std::function<Time()> clock)
      : calls_(calls), authority_(authority), validity_(validity), clock_(std::move(clock)) {}

  grpc::ServerUnaryReactor* EnrollNode(grpc::CallbackServerContext* context,
                                       const v1::EnrollNodeRequest* request,
                                       v1::EnrollNodeResponse* response) override;
  grpc::ServerUnaryReactor* RenewCertificate(grpc::CallbackServerContext* context,
                                             const v1::RenewCertificateRequest* request,
                                             v1::RenewCertificateResponse* response) override;
  grpc::ServerUnaryReactor* CreateJoinToken(grpc::CallbackServerContext* context,
                                            const v1::CreateJoinTokenRequest* request,
                                            v1::CreateJoinTokenResponse* response) override;
  grpc::ServerUnaryReactor* ListJoinTokens(grpc::CallbackServerContext* context,
                                           const v1::ListJoinTokensRequest* request,
                                           v1::ListJoinTokensResponse* response) override;
  grpc::ServerUnaryReactor* RevokeJoinToken(grpc::CallbackServerContext* context,
                                            const v1::RevokeJoinTokenRequest* request,
                                            v1::RevokeJoinTokenResponse* response) override;

 private:
  // The subject of a certificate.
  struct Issue {
    std::string public_key;
    std::string node;
    std::string machine_id;
    std::string serial = security::NewSerial();
  };
  absl::StatusOr<std::string> Sign(const Issue& issue) const;

  CoreCalls& calls_;
  const std::optional<security::Authority>& authority_;
  const absl::Duration validity_;
  const std::function<Time()> clock_;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_CALLS_IDENTITY_SERVICE_H_
