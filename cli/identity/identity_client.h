// A client of the coordinator's IdentityService.
#ifndef MUSTER_CLI_IDENTITY_IDENTITY_CLIENT_H_
#define MUSTER_CLI_IDENTITY_IDENTITY_CLIENT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/security/client_security.h"
#include "proto/muster/v1/identity.grpc.pb.h"

namespace muster::cli {

// Calls block for at most ten seconds and are not repeated, because a join token may have one use.
// Errors are those of proto/muster/v1/identity.proto, and UNAVAILABLE.
class IdentityClient {
 public:
  IdentityClient(std::string address, security::ClientSecurity security);

  absl::StatusOr<v1::EnrollNodeResponse> EnrollNode(const v1::EnrollNodeRequest& request);
  absl::StatusOr<v1::CreateJoinTokenResponse> CreateJoinToken(
      const v1::CreateJoinTokenRequest& request);
  absl::StatusOr<v1::ListJoinTokensResponse> ListJoinTokens();
  absl::Status RevokeJoinToken(const std::string& id);

 private:
  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(grpc::Status (v1::IdentityService::Stub::*method)(
                                    grpc::ClientContext*, const Request&, Response*),
                                const Request& request);

  const std::string address_;
  const security::ClientSecurity security_;
  const std::unique_ptr<v1::IdentityService::Stub> stub_;
};

}  // namespace muster::cli

#endif  // MUSTER_CLI_IDENTITY_IDENTITY_CLIENT_H_
