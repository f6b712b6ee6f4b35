#include "coordinator/service/loop/snapshot.h"

#include <algorithm>
#include <iterator>

#include "common/time/proto_time.h"
#include "coordinator/service/loop/job_watchers.h"

namespace muster::service {
namespace {

constexpr absl::Duration kInterval = absl::Milliseconds(250);
constexpr int kShareOfTime = 20;
constexpr size_t kJobsPerSnapshot = 1024;  // some 20 ms

}  // namespace

SnapshotPublisher::SnapshotPublisher(std::function<void(const core::Stats&)> on_stats, OnJob on_job,
                                     std::function<Time()> clock)
    : on_stats_(std::move(on_stats)),
      on_job_(std::move(on_job)),
      clock_(std::move(clock)),
      snapshot_(std::make_shared<const Snapshot>()) {}

void SnapshotPublisher::Load(core::Core& core, const Time& now) {
  v1::ListJobsRequest all;
  all.set_include_finished(true);
  for (const core::Core::Listed& listed : core.Select(all)) {
    Put(*core.ListEntry(JobId(listed.id)));
  }
  Publish(core, now);
}

SteadyTime SnapshotPublisher::Refresh(core::Core& core, absl::Span<const JobId> changed,
                                      const Time& now) {
  changed_.insert(changed.begin(), changed.end());
  if (now.steady < next_) return next_;
  const SteadyTime begin = clock_().steady;
  for (size_t i = 0; i < kJobsPerSnapshot && !changed_.empty(); ++i) {
    Note(core, *changed_.begin(), now);
    changed_.erase(changed_.begin());
  }
  Publish(core, now);
  const SteadyTime end = clock_().steady;
  next_ = end + std::max(kInterval, kShareOfTime * (end - begin));
  return changed_.empty() ? SteadyTime::Infinite() : next_;
}

void SnapshotPublisher::Note(core::Core& core, const JobId& id, const Time& now) {
  absl::StatusOr<v1::Job> job = core.ListEntry(id);
  if (!job.ok()) {
    Erase(id);
    checkpoints_.Forget(id.value());
    on_job_(id, nullptr);
    return;
  }
  checkpoints_.Note(*job, now.steady);
  Put(*std::move(job));
}

void SnapshotPublisher::Put(v1::Job job) {
  const JobId id(job.job_id());
  on_job_(id, &job);
  Erase(id);
  Entry entry{{-absl::ToUnixNanos(FromProto(job.submit_time())), id}, std::nullopt};
  if (IsTerminal(job.state())) {
    entry.ended = {-absl::ToUnixNanos(FromProto(job.finish_time())), id};
    ended_.insert(*entry.ended);
  }
  jobs_[entry.key] = std::make_shared<const v1::Job>(std::move(job));
  entries_[id] = std::move(entry);
}

void SnapshotPublisher::Erase(const JobId& id) {
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  jobs_.erase(found->second.key);
  if (found->second.ended.has_value()) ended_.erase(*found->second.ended);
  entries_.erase(found);
}

// The page shows the newest ended jobs whatever their age; the metrics check the age themselves.
void SnapshotPublisher::DropEnded() {
  while (ended_.size() > kEndedJobsShown) Erase(std::prev(ended_.end())->second);
}

void SnapshotPublisher::Publish(core::Core& core, const Time& now) {
  DropEnded();
  auto snapshot = std::make_shared<Snapshot>();
  snapshot->taken = now;
  snapshot->nodes = core.ListNodes(now);
  snapshot->jobs.reserve(jobs_.size());
  for (const auto& [key, job] : jobs_) snapshot->jobs.push_back(job);
  snapshot->checkpointed = checkpoints_.Since();
  snapshot->waits = core.ListWaits();
  snapshot->store = core.store();
  snapshot->totals = core.TakeStats();
  on_stats_(snapshot->totals);
  absl::MutexLock lock(&mutex_);
  snapshot_ = std::move(snapshot);
}

std::shared_ptr<const Snapshot> SnapshotPublisher::Get() const {
  absl::MutexLock lock(&mutex_);
  return snapshot_;
}

}  // namespace muster::service
