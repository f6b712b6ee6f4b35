#include "worker/agent/session/membership.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "worker/agent/storage/data_directory.h"

namespace muster::agent {
namespace {

void LogUnlessStored(const absl::Status& status) {
  LOG_IF(ERROR, !status.ok()) << "cannot store the cluster of this worker's ranks: " << status;
}

}  // namespace

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

void Membership::Describe(bool holds_generations, v1::Hello& hello) {
  if (!holds_generations) identity_.Forget();
  hello.set_cluster_id(identity_.cluster_id());
  hello.set_commit_index(identity_.commit_index());
  hello.set_coordinator_start(identity_.coordinator_start());
}

void Membership::Describe(v1::LeaseQuestion& question) const {
  question.set_coordinator_start(identity_.coordinator_start());
}

void Membership::OnWelcome(const v1::Welcome& welcome, bool has_live_ranks) {
  std::string conflict = welcome.conflict();
  if (conflict.empty() && has_live_ranks) conflict = identity_.ConflictWith(welcome);
  SetConflict(std::move(conflict));
  coordinator_start_ = welcome.coordinator_start();
  // Coordinators of protocol version 1 have no cluster id.
  if (in_conflict_ || welcome.cluster_id().empty()) return;
  LogUnlessStored(identity_.Join(welcome));
}

bool Membership::Obeys(const v1::LeaseAnswer& answer) const {
  if (IsOutdated(answer.term())) return false;
  if (answer.cluster_id().empty()) return true;
  v1::Welcome store;
  store.set_cluster_id(answer.cluster_id());
  store.set_commit_index(answer.commit_index());
  return identity_.ConflictWith(store).empty();
}

void Membership::OnHeartbeatAck(const v1::HeartbeatAck& ack, SteadyTime now) {
  if (!in_conflict_ && identity_.Raise(ack.commit_index(), now)) Flush(now);
}

void Membership::OnJoinCluster(const v1::JoinCluster& join) {
  LOG(INFO) << "joining cluster " << join.cluster_id();
  v1::Welcome welcome;
  welcome.set_cluster_id(join.cluster_id());
  welcome.set_commit_index(join.commit_index());
  welcome.set_coordinator_start(coordinator_start_);
  welcome.set_term(join.term());
  LogUnlessStored(identity_.Join(welcome));
}

void Membership::Flush(SteadyTime now) { LogUnlessStored(identity_.Store(now)); }

absl::Status Membership::Check() const {
  absl::MutexLock lock(&mutex_);
  if (conflict_.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(conflict_);
}

void Membership::SetConflict(std::string conflict) {
  in_conflict_ = !conflict.empty();
  absl::MutexLock lock(&mutex_);
  if (conflict == conflict_) return;
  if (in_conflict_) {
    LOG(ERROR) << "ignoring the coordinator's instructions: " << conflict
               << "; the ranks continue: muster admin recover";
  } else {
    LOG(INFO) << "the conflict with the coordinator has ended";
  }
  conflict_ = std::move(conflict);
}

}  // namespace muster::agent
