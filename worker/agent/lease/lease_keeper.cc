#include "worker/agent/lease/lease_keeper.h"

#include <algorithm>

#include "common/time/proto_time.h"
#include "glog/logging.h"

namespace muster::agent {
namespace {

constexpr absl::Duration kLongestMargin = absl::Seconds(10);
constexpr absl::Duration kLongestPatience = absl::Seconds(2);

template <typename Leased>
bool IsAbout(const Leased& leased, const LeaseKeeper::Lease& lease) {
  return leased.job_id() == lease.job_id && leased.generation() == lease.generation;
}

}  // namespace

absl::Duration LeaseMargin(absl::Duration length) { return std::min(length / 10, kLongestMargin); }

LeaseKeeper::LeaseKeeper(std::string node_name, Outside outside, SteadyTime now)
    : node_name_(std::move(node_name)),
      outside_(std::move(outside)),
      acknowledged_(-absl::InfiniteDuration()),
      refused_(-absl::InfiniteDuration()),
      // Time for the first session: ranks of an earlier worker may have little time left.
      next_question_(now + kLongestPatience) {}

void LeaseKeeper::OnAcknowledged(SteadyTime sent) {
  acknowledged_ = std::max(acknowledged_, sent);
  RaiseAll();
}

void LeaseKeeper::OnRefused(SteadyTime sent) {
  refused_ = std::max(refused_, sent);
  RaiseAll();
}

void LeaseKeeper::RaiseAll() {
  for (const Lease& lease : outside_.held()) AddEvidence(lease, newest_evidence());
}

SteadyTime LeaseKeeper::DeadlineFor(absl::Duration length) const {
  return LeaseDeadline(acknowledged_, length);
}

SteadyTime LeaseKeeper::EvidenceFor(const Lease& lease) const {
  const auto of_lease = evidence_.find({lease.job_id, lease.generation});
  return of_lease == evidence_.end() ? newest_evidence()
                                     : std::max(of_lease->second, newest_evidence());
}

void LeaseKeeper::AddEvidence(const Lease& lease, SteadyTime time) {
  const auto [known, is_new] = evidence_.try_emplace({lease.job_id, lease.generation}, time);
  if (!is_new && known->second >= time) return;
  known->second = time;
  if (!lease.has_deadline) return;
  outside_.set_deadline(lease, LeaseDeadline(time, lease.length));
}

void LeaseKeeper::Tick(SteadyTime now) {
  if (asking_ || now < next_question_) return;
  const auto round = std::make_shared<Round>();
  round->asked_at = now;
  v1::LeaseQuestion question;
  round->fence_set = outside_.fence_set().id();
  question.set_fence_set(round->fence_set);
  absl::Duration shortest = absl::InfiniteDuration();
  std::map<Key, SteadyTime> held;
  for (Lease& lease : outside_.held()) {
    const SteadyTime evidence = EvidenceFor(lease);
    held[{lease.job_id, lease.generation}] = evidence;
    if (now - evidence < lease.length / 3) continue;
    v1::LeasedGeneration& asked = *question.add_generations();
    asked.set_job_id(lease.job_id);
    asked.set_generation(lease.generation);
    if (lease.has_deadline) *asked.mutable_lease() = ToProto(lease.length);
    shortest = std::min(shortest, lease.length);
    round->leases.push_back(std::move(lease));
  }
  evidence_ = std::move(held);
  if (round->leases.empty()) return;
  asking_ = true;
  next_question_ = now + shortest / 15;
  const absl::Duration patience = std::min(kLongestPatience, shortest / 6);
  outside_.probe(patience, [this, now] { OnRefused(now); });
  for (const Lease& lease : round->leases) CountVoucher(*round, lease, node_name_);
  outside_.ask(
      question, patience, [this, round](const v1::PeerAnswer& answer) { OnAnswer(*round, answer); },
      [this] { asking_ = false; });
}

void LeaseKeeper::OnAnswer(Round& round, const v1::PeerAnswer& answer) {
  if (acknowledged_ > round.asked_at) return;
  if (answer.has_coordinator()) OnCoordinatorAnswer(round, answer.coordinator());
  // The peer answered after the question was asked, so its probe is at most this much older.
  if (answer.has_refused()) OnRefused(round.asked_at - FromProto(answer.refused()));
  for (const v1::LeasedGeneration& vouched : answer.vouched()) {
    for (const Lease& lease : round.leases) {
      if (IsAbout(vouched, lease)) CountVoucher(round, lease, answer.node_name());
    }
  }
}

void LeaseKeeper::OnCoordinatorAnswer(const Round& round, const v1::LeaseAnswer& answer) {
  for (const v1::LeasedGeneration& leased : answer.generations()) {
    for (const Lease& lease : round.leases) {
      if (!IsAbout(leased, lease)) continue;
      if (leased.lost()) {
        LOG(WARNING) << "ending " << lease.job_id << " generation " << lease.generation
                     << ": a peer reports that the coordinator declared its ranks here lost";
        outside_.end(lease);
      } else {
        AddEvidence(lease, round.asked_at + (FromProto(leased.time_left()) - lease.length));
      }
    }
  }
}

void LeaseKeeper::CountVoucher(Round& round, const Lease& lease, const std::string& node) {
  if (!lease.has_deadline || outside_.fence_set().id() != round.fence_set) return;
  const auto& members = outside_.fence_set().nodes();
  if (std::find(members.begin(), members.end(), node) == members.end()) return;
  std::set<std::string>& vouchers = round.vouchers[{lease.job_id, lease.generation}];
  vouchers.insert(node);
  if (2 * vouchers.size() > static_cast<size_t>(members.size())) {
    AddEvidence(lease, round.asked_at);
  }
}

}  // namespace muster::agent
