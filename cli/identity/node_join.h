// `muster cluster join`: gives this machine the identity of a node.
#ifndef MUSTER_CLI_IDENTITY_NODE_JOIN_H_
#define MUSTER_CLI_IDENTITY_NODE_JOIN_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace muster::cli {

struct NodeJoin {
  std::string coordinator;  // HOST:PORT
  std::string token;
  std::string ca_pin;
  std::string name;
  std::string machine_id;  // empty: that of this machine
  std::string config;      // the worker's configuration file
  std::string data_dir;    // empty: as the file says, otherwise default_data_dir
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
