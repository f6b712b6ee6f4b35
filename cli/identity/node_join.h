// `muster cluster join` gives this machine the identity of a node; a client of the coordinator's
// IdentityService.
#ifndef MUSTER_CLI_IDENTITY_NODE_JOIN_H_
#define MUSTER_CLI_IDENTITY_NODE_JOIN_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
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

struct NodeJoin {
  std::string coordinator;  // HOST:PORT
  std::string token;
  std::string ca_pin;
  std::string name;
  std::string machine_id;  // empty: that of this machine
  std::string config;      // the worker's configuration file
  std::string data_dir;    // empty: that of the file, otherwise default_data_dir
  std::string default_data_dir;
  // How long the coordinator is awaited while it does not listen yet; `on_wait` is then called
  // once.
  absl::Duration patience = absl::Seconds(30);
  std::function<void(const std::string& line)> on_wait = [](const std::string&) {};
};

struct NodeJoinResult {
  bool joined_before = false;
  absl::Time expire_time;  // of the certificate
};

// Verifies the coordinator by the pin before it sends the token, and keeps an identity that this
// node has already. Errors: ALREADY_EXISTS for files of another cluster or node; those of
// FetchPinnedAuthority and of IdentityService.EnrollNode.
absl::StatusOr<NodeJoinResult> JoinCluster(const NodeJoin& options, absl::Time now);

}  // namespace muster::cli

#endif  // MUSTER_CLI_IDENTITY_NODE_JOIN_H_
