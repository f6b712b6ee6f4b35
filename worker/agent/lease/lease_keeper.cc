#include "worker/agent/lease/lease_keeper.h"

#include <algorithm>
#include <utility>

#include "common/proto_time.h"
#include "glog/logging.h"

namespace muster::agent {
namespace {

constexpr absl::Duration kLongestMargin = absl::Seconds(10);
constexpr absl::Duration kLongestPatience = absl::Seconds(2);

const v1::LeasedGeneration* Find(const v1::LeaseAnswer& answer, const LeaseKeeper::Lease& lease) {
  for (const v1::LeasedGeneration& leased : answer.generations()) {
    if (leased.job_id() == lease.job_id && leased.generation() == lease.generation) return &leased;
  }
  return nullptr;
}

}  // namespace

absl::Duration LeaseMargin(absl::Duration length) { return std::min(length / 10, kLongestMargin); }

LeaseKeeper::LeaseKeeper(Outside outside, SteadyTime now)
    : outside_(std::move(outside)),
      acknowledged_(-absl::InfiniteDuration()),
      // Time for the first session: ranks of an earlier worker may have little time left.
      next_question_(now + kLongestPatience) {}

void LeaseKeeper::OnAcknowledged(SteadyTime sent) {
  acknowledged_ = std::max(acknowledged_, sent);
  for (const Lease& lease : outside_.held()) {
    outside_.set_deadline(lease, DeadlineFor(lease.length));
  }
}

SteadyTime LeaseKeeper::DeadlineFor(absl::Duration length) const {
  return acknowledged_ + (length - LeaseMargin(length));
}

void LeaseKeeper::Tick(SteadyTime now) {
  if (asking_ || now < next_question_) return;
  std::vector<Lease> due;
  v1::LeaseQuestion question;
  absl::Duration shortest = absl::InfiniteDuration();
  for (Lease& lease : outside_.held()) {
    if (now - acknowledged_ < lease.length / 3) continue;
    v1::LeasedGeneration& asked = *question.add_generations();
    asked.set_job_id(lease.job_id);
    asked.set_generation(lease.generation);
    shortest = std::min(shortest, lease.length);
    due.push_back(std::move(lease));
  }
  if (due.empty()) return;
  asking_ = true;
  next_question_ = now + shortest / 15;
  outside_.ask(question, std::min(kLongestPatience, shortest / 6),
               [this, due, now](const std::optional<v1::LeaseAnswer>& answer) {
                 OnAnswer(due, now, answer);
               });
}

void LeaseKeeper::OnAnswer(const std::vector<Lease>& asked, SteadyTime asked_at,
                           const std::optional<v1::LeaseAnswer>& answer) {
  asking_ = false;
  if (acknowledged_ > asked_at) return;
  for (const Lease& lease : asked) {
    const v1::LeasedGeneration* const leased = answer.has_value() ? Find(*answer, lease) : nullptr;
    if (leased != nullptr && leased->lost()) {
      LOG(WARNING) << "ending " << lease.job_id << " generation " << lease.generation
                   << ": a peer reports that the coordinator declared its ranks here lost";
      outside_.end(lease);
      continue;
    }
    const absl::Duration left = leased != nullptr ? FromProto(leased->time_left()) : lease.length;
    outside_.set_deadline(lease, asked_at + (left - LeaseMargin(lease.length)));
  }
}

}  // namespace muster::agent
