// Creates clusters (`muster cluster init`), and certificates with an authority that is kept on a
// machine of its own (`muster cert`).
#ifndef MUSTER_CLI_IDENTITY_AUTHORITY_H_
#define MUSTER_CLI_IDENTITY_AUTHORITY_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace muster::cli {

struct ClusterInit {
  std::string config;    // the coordinator's configuration file
  std::string data_dir;  // empty: that of the file, otherwise default_data_dir
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

// Each function returns the paths of the files or folders that it wrote.

// Makes FOLDER/ca.key and FOLDER/ca.pem, or keeps them.
absl::StatusOr<std::vector<std::string>> InitOffline(const std::string& folder, absl::Time now);

struct OfflineIssue {
  std::string folder = "muster-ca";  // of the authority
  std::string kind;                  // coordinator, node or user
  std::string name;
  std::vector<std::string> hosts;  // of a coordinator; empty: its name
  std::string machine_id;          // of a node; empty: any
  std::string role = "submit";     // of a user
  // HOST:PORT, for nodes and users; empty: the first name in the coordinator's certificate, and the
  // default port.
  std::string coordinator;
};

// Makes the folder of a coordinator, node or user, with its settings.
absl::StatusOr<std::vector<std::string>> IssueOffline(OfflineIssue issue, absl::Time now);

// Replaces the certificates by ones for the same keys and names.
absl::StatusOr<std::vector<std::string>> RenewOffline(const std::string& folder,
                                                      const std::vector<std::string>& files,
                                                      absl::Time now);

}  // namespace muster::cli

#endif  // MUSTER_CLI_IDENTITY_AUTHORITY_H_
