#include "worker/agent/membership.h"

#include <utility>

#include "glog/logging.h"

namespace muster::agent {
namespace {

void LogUnlessStored(const absl::Status& status) {
  LOG_IF(ERROR, !status.ok()) << "cannot store the cluster of this worker's ranks: " << status;
}

}  // namespace

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
