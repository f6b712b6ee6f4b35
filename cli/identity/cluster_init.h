// `muster cluster init`: everything that a coordinator with identities needs.
#ifndef MUSTER_CLI_IDENTITY_CLUSTER_INIT_H_
#define MUSTER_CLI_IDENTITY_CLUSTER_INIT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace muster::cli {

struct ClusterInit {
  std::string config;    // the coordinator's configuration file
  std::string data_dir;  // empty: as the file says, otherwise default_data_dir
  std::string default_data_dir;
  std::string listen;
  std::vector<std::string> names;  // names and addresses of the coordinator
  std::string admin_dir;           // folder for the administrator's configuration
};

struct ClusterInitResult {
  std::vector<std::string> lines;  // what was done
  std::string data_dir;
  std::string address;  // HOST:PORT
  std::string ca_pin;
  std::string join_token;  // empty if the cluster existed
};

// Makes what is missing and keeps what is there. Errors: ALREADY_EXISTS for files of another
// cluster, before anything is changed in them.
absl::StatusOr<ClusterInitResult> InitCluster(const ClusterInit& options, absl::Time now);

// This machine's host name and addresses, loopback included.
std::vector<std::string> OwnNames();

}  // namespace muster::cli

#endif  // MUSTER_CLI_IDENTITY_CLUSTER_INIT_H_
