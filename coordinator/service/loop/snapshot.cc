#include "coordinator/service/loop/snapshot.h"

#include <algorithm>

#include "common/time/proto_time.h"
#include "coordinator/service/loop/job_watchers.h"

namespace muster::service {
namespace {

constexpr absl::Duration kInterval = absl::Milliseconds(250);
constexpr int kShareOfTime = 20;

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
  for (const JobId& id : changed_) Note(core, id, now);
  changed_.clear();
  Publish(core, now);
  const SteadyTime end = clock_().steady;
  next_ = end + std::max(kInterval, kShareOfTime * (end - begin));
  return SteadyTime::Infinite();
}

void SnapshotPublisher::Note(core::Core& core, const JobId& id, const Time& now) {
  absl::StatusOr<v1::Job> job = core.ListEntry(id);
  if (!job.ok()) {
    jobs_.erase(id);
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
  jobs_[id] = std::make_shared<const v1::Job>(std::move(job));
}

void SnapshotPublisher::DropEnded(const Time& now) {
  std::vector<std::pair<absl::Time, JobId>> ended;
  for (const auto& [id, job] : jobs_) {
    if (IsTerminal(job->state())) ended.emplace_back(FromProto(job->finish_time()), id);
  }
  std::sort(ended.rbegin(), ended.rend());
  for (size_t i = 0; i < ended.size(); ++i) {
    // The page shows the newest ended jobs whatever their age; the metrics check the age
    // themselves.
    if (i >= kEndedJobsShown) jobs_.erase(ended[i].second);
  }
}

void SnapshotPublisher::Publish(core::Core& core, const Time& now) {
  DropEnded(now);
  auto snapshot = std::make_shared<Snapshot>();
  snapshot->taken = now;
  snapshot->nodes = core.ListNodes(now);
  for (const auto& [id, job] : jobs_) snapshot->jobs.push_back(job);
  std::stable_sort(snapshot->jobs.begin(), snapshot->jobs.end(), [](const auto& a, const auto& b) {
    return FromProto(a->submit_time()) > FromProto(b->submit_time());
  });
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
