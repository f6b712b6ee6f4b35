// How long finished jobs are remembered, and how they go: the oldest first, their records a part at
// a time.
#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/proto_time.h"
#include "coordinator/core/core_impl.h"
#include "coordinator/core/records.h"

namespace muster::core {
namespace {

// Whoever waits for a job is to learn how it ended, also one who asks again after a lost
// connection.
constexpr absl::Duration kKeptAtLeast = absl::Minutes(1);
// Deleting goes on beside everything else: a step's share is done in a moment.
constexpr size_t kDeletionsPerStep = 256;

}  // namespace

absl::Time Core::Impl::NextForgetting() const {
  if (finished_.empty()) return absl::InfiniteFuture();
  const bool beyond = finished_.size() > options_.keep_jobs;
  const absl::Duration kept = beyond ? absl::ZeroDuration() : options_.keep_jobs_for;
  return finished_.begin()->first + std::max(kept, kKeptAtLeast);
}

void Core::Impl::ForgetJobs() {
  size_t left = kDeletionsPerStep;
  while (left > 0) {
    if (forgotten_.empty()) {
      if (NextForgetting() > now_.wall) return;
      Forget(finished_.begin()->second);
    }
    std::vector<std::string>& keys = forgotten_.begin()->second;
    for (; left > 0 && !keys.empty(); --left) {
      effects_.writes.push_back({std::move(keys.back()), std::nullopt});
      keys.pop_back();
    }
    if (keys.empty()) forgotten_.erase(forgotten_.begin());
  }
}

void Core::Impl::Forget(const JobId& id) {
  const auto entry = jobs_.find(id);
  const Job& job = entry->second;
  MarkChanged(job);
  effects_.writes.push_back(PutForgotten(id));
  forgotten_[id] = KeysOf(job);
  const auto key = idempotency_keys_.find(job.job().idempotency_key());
  if (key != idempotency_keys_.end() && key->second == id) idempotency_keys_.erase(key);
  finished_.erase({FromProto(job.job().finish_time()), id});
  jobs_.erase(entry);
}

void Core::Impl::ArmRetention() {
  const TimerKey key{TimerKey::Kind::kRetention, ""};
  if (!forgotten_.empty()) {
    timers_.Set(key, now_.steady);
  } else if (finished_.empty() || NextForgetting() == absl::InfiniteFuture()) {
    timers_.Cancel(key);
  } else {
    timers_.Set(key, now_.steady + std::max(NextForgetting() - now_.wall, absl::ZeroDuration()));
  }
}

absl::Status Core::Impl::NoJob(absl::string_view name) const {
  return absl::NotFoundError(absl::StrCat("no job ", name, " (of finished jobs the newest ",
                                          options_.keep_jobs, " are remembered)"));
}

}  // namespace muster::core
