#include "coordinator/core/jobs/retention.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "coordinator/core/jobs/job_record.h"
#include "coordinator/core/records.h"
#include "coordinator/core/steady_clock.h"

namespace muster::core {
namespace {

// Clients that wait for a job can still read how it ended, even after a lost connection.
constexpr absl::Duration kKeptAtLeast = absl::Minutes(1);
// The most keys deleted in one step, so that it is short and its writes fit in a batch.
constexpr size_t kDeletionsPerStep = 120;
// Minimum time between two warnings about deleted jobs of an owner.
constexpr absl::Duration kEvictionWarningInterval = absl::Minutes(1);

}  // namespace

SteadyTime Retention::NextDue() const {
  if (finished_.empty()) return SteadyTime::Infinite();
  const bool beyond = finished_.size() > keep_jobs_;
  const absl::Duration kept = beyond ? absl::ZeroDuration() : keep_jobs_for_;
  return finished_.begin()->first + std::max(kept, kKeptAtLeast);
}

const JobId* Retention::FindEvictable(const std::string& owner, SteadyTime now) const {
  const auto owned = by_owner_.find(owner);
  if (owned == by_owner_.end() || owned->second.begin()->first + kKeptAtLeast > now) return nullptr;
  return &owned->second.begin()->second;
}

const JobId* Retention::FindEvictable(SteadyTime now) const {
  const auto oldest = std::min_element(
      by_owner_.begin(), by_owner_.end(),
      [](const auto& a, const auto& b) { return *a.second.begin() < *b.second.begin(); });
  return oldest == by_owner_.end() ? nullptr : FindEvictable(oldest->first, now);
}

std::vector<JobId> Retention::Evictable(SteadyTime now) const {
  std::vector<JobId> jobs;
  for (const auto& [owner, finished] : by_owner_) {
    for (const auto& [time, job] : finished) {
      if (time + kKeptAtLeast <= now) jobs.push_back(job);
    }
  }
  return jobs;
}

OwnerAndKey Retention::TakeOldestKey() {
  OwnerAndKey key = std::move(kept_keys_.extract(Oldest()).mapped());
  finished_.erase(finished_.begin());
  return key;
}

size_t Retention::TakeDeletions(size_t limit, std::vector<store::Mutation>& writes) {
  if (forgotten_.empty()) return 0;
  std::vector<std::string>& keys = forgotten_.begin()->second;
  const size_t kept = kept_keys_.count(forgotten_.begin()->first);
  size_t taken = 0;
  for (; taken < limit && keys.size() > kept; ++taken) {
    writes.push_back({std::move(keys.back()), std::nullopt});
    keys.pop_back();
  }
  if (keys.size() <= kept) forgotten_.erase(forgotten_.begin());
  return taken;
}

void Eviction::Allow(Job& job, SteadyTime order) {
  job.deletion_order = order;
  retention_.AddFinished(order, job.id(), job.status.owner());
}

// The tasks are deleted after the last of them has ended; those that did not succeed last, so that
// the array shows their state as long as it exists.
void Eviction::Allow(const JobArray& array) {
  SteadyTime end;
  for (const uint32_t index : array.tasks) {
    end = std::max(end, jobs_.at(TaskId(array.id, index)).finished);
  }
  for (const uint32_t index : array.tasks) {
    Job& job = jobs_.at(TaskId(array.id, index));
    Allow(job, job.state() == v1::SUCCEEDED ? end : end + absl::Nanoseconds(1));
  }
}

absl::Status Eviction::CheckRoom(size_t count) const {
  if (jobs_.all().size() + count <= limits::kJobs) return absl::OkStatus();
  const size_t evictable = retention_.Evictable(context_.now.steady).size();
  if (jobs_.all().size() + count - evictable <= limits::kJobs) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the coordinator has ", jobs_.all().size() - evictable,
                   " jobs that are unfinished or finished "
                   "within the last minute, and ",
                   count, " more would exceed the limit of ", limits::kJobs,
                   "; wait for some to finish or cancel some"));
}

absl::Status Eviction::CheckMemory(const std::string& owner, size_t bytes) const {
  const absl::Status room = memory_.Check(owner, bytes);
  if (room.ok()) return room;
  MemoryBudget left = memory_;
  for (const JobId& id : retention_.Evictable(context_.now.steady)) {
    left.Remove(jobs_.at(id).status.owner(), jobs_.at(id).memory_bytes);
  }
  return left.Check(owner, bytes).ok() ? absl::OkStatus() : room;
}

void Eviction::MakeRoom(size_t count) {
  while (jobs_.all().size() + count > limits::kJobs) {
    Evict(JobId(*retention_.FindEvictable(context_.now.steady)), kEvictedForCount);
  }
}

absl::Status Eviction::MakeMemory(const std::string& owner, size_t bytes) {
  while (true) {
    absl::Status room = memory_.Check(owner, bytes);
    if (room.ok()) return room;
    const JobId* evicted = retention_.FindEvictable(owner, context_.now.steady);
    if (evicted == nullptr && memory_.OwnerHasRoom(owner, bytes)) {
      evicted = retention_.FindEvictable(context_.now.steady);
    }
    if (evicted == nullptr) return room;
    Evict(JobId(*evicted), kEvictedForMemory);
  }
}

void Eviction::Remove(const JobId& id) {
  const Job& job = jobs_.at(id);
  context_.effects.writes.push_back(PutForgotten(id));
  const JobArray* const array = jobs_.arrays().Find(job.status.array_id());
  std::vector<std::string> keys = KeysOf(job, array != nullptr && array->tasks.size() == 1);
  for (std::string& tail : log_tails_.Remove(job)) keys.push_back(std::move(tail));
  if (std::optional<std::string> history = histories_.Remove(job)) {
    keys.push_back(*std::move(history));
  }
  retention_.AddForgotten(id, std::move(keys));
  const OwnerAndKey key(job.status.owner(), job.status.idempotency_key());
  const JobId* const of_key = names_.FindKey(key);
  if (of_key != nullptr && *of_key == id) names_.RemoveKey(key);
  if (job.deletion_order.has_value()) {
    retention_.RemoveFinished(*job.deletion_order, id, job.status.owner());
  }
  jobs_.Remove(id);
}

void Eviction::Evict(const JobId& id, const std::string& reason) {
  const Job& job = jobs_.at(id);
  context_.stats.Count("muster_jobs_evicted_total", {reason});
  std::erase_if(warnings_, [this](const auto& warning) {
    return context_.now.steady - warning.second >= kEvictionWarningInterval;
  });
  if (warnings_.emplace(job.status.owner(), context_.now.steady).second) {
    const std::string& owner = job.status.owner();
    context_.Log(absl::StrCat(
        "warning: finished jobs ", owner.empty() ? "without an owner" : absl::StrCat("of ", owner),
        " are deleted earlier than --keep-jobs requires, job ", id.value(), " first, because ",
        reason == kEvictedForMemory ? "jobs may use no more memory; raise --job-memory"
                                    : "there may be no more jobs; cancel queued ones",
        " or remove finished ones with muster rm"));
  }
  v1::JobRecord left;
  left.set_job_id(id.value());
  left.set_forgotten(true);
  left.set_owner(job.status.owner());
  left.set_idempotency_key(job.status.idempotency_key());
  *left.mutable_finished() = ToStored(*job.deletion_order);
  Remove(id);
  if (left.idempotency_key().empty()) return;
  RestoreKey(left);
  context_.effects.writes.push_back(Put(left));
}

void Eviction::ForgetDue() {
  size_t left = kDeletionsPerStep;
  while (left > 0) {
    if (!retention_.HasForgotten()) {
      if (retention_.NextDue() > context_.now.steady) return;
      const JobId oldest = retention_.Oldest();
      if (jobs_.Find(oldest) != nullptr) {
        Remove(oldest);
      } else {
        names_.RemoveKey(retention_.TakeOldestKey());
        context_.effects.writes.push_back({JobKey(oldest.value()), std::nullopt});
        --left;
        continue;
      }
    }
    left -= retention_.TakeDeletions(left, context_.effects.writes);
  }
}

void Eviction::Arm() {
  const TimerKey key{TimerKey::Kind::kRetention, ""};
  const SteadyTime due = retention_.NextDue();
  if (retention_.HasForgotten()) {
    context_.timers.Set(key, context_.now.steady);
  } else if (due == SteadyTime::Infinite()) {
    context_.timers.Cancel(key);
  } else {
    context_.timers.Set(key, due);
  }
}

void Eviction::RestoreKey(const v1::JobRecord& forgotten) {
  const JobId id(forgotten.job_id());
  OwnerAndKey key(forgotten.owner(), forgotten.idempotency_key());
  names_.AddKey(key, id);
  retention_.KeepKey(FromStored(forgotten.finished()), id, std::move(key));
}

void Eviction::FinishRestore() {
  const std::map<std::string, size_t> owners = memory_.by_owner();
  for (const auto& [owner, bytes] : owners) {
    if (!memory_.IsFarBeyond(owner)) continue;
    const absl::Status status = MakeMemory(owner, 0);
    if (!status.ok()) context_.Log(absl::StrCat("warning: ", status.message()));
  }
}

}  // namespace muster::core
