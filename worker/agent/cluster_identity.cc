#include "worker/agent/cluster_identity.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "worker/agent/data_directory.h"

namespace muster::agent {

ClusterIdentity::ClusterIdentity(std::string path) : path_(std::move(path)) {
  absl::Status read = ReadMessage(path_, identity_);
  if (read.ok() && cluster_id().empty()) {
    v1::JoinCluster older;  // stored by earlier builds
    read = ReadMessage(path_, older);
    identity_.set_cluster_id(older.cluster_id());
    identity_.set_commit_index(older.commit_index());
  }
  if (read.ok() || absl::IsNotFound(read)) return;
  LOG(ERROR) << "cannot read the cluster id of this worker's ranks: " << read;
  identity_.Clear();
}

std::string ClusterIdentity::ConflictWith(const v1::Welcome& welcome) const {
  if (cluster_id().empty()) return "";
  if (welcome.cluster_id() != cluster_id()) {
    return absl::StrCat("its ranks belong to cluster ", cluster_id(), ", but the coordinator's is ",
                        welcome.cluster_id().empty() ? "unknown" : welcome.cluster_id());
  }
  if (welcome.commit_index() < commit_index()) {
    return absl::StrCat("it has seen commit ", commit_index(),
                        ", but the coordinator is at commit ", welcome.commit_index(),
                        ": its store was restored from a copy");
  }
  if (welcome.term() != 0 && welcome.term() < term()) {
    return absl::StrCat("it has seen a coordinator of term ", term(),
                        ", but this coordinator's term is ", welcome.term());
  }
  return "";
}

absl::Status ClusterIdentity::Join(const v1::Welcome& welcome) {
  identity_.set_cluster_id(welcome.cluster_id());
  identity_.set_commit_index(welcome.commit_index());
  identity_.set_coordinator_start(welcome.coordinator_start());
  identity_.set_term(welcome.term());
  return WriteMessage(path_, identity_, /*sync=*/true);
}

bool ClusterIdentity::Raise(uint64_t commit_index, SteadyTime now) {
  if (commit_index <= identity_.commit_index() || cluster_id().empty()) return false;
  identity_.set_commit_index(commit_index);
  return now - stored_ >= kStoreInterval;
}

absl::Status ClusterIdentity::Store(SteadyTime now) {
  stored_ = now;
  if (cluster_id().empty()) return absl::OkStatus();
  return WriteMessage(path_, identity_, /*sync=*/true);
}

}  // namespace muster::agent
