// A snapshot of the cluster for the HTTP endpoints, so that a scrape never waits for the core.
#ifndef MUSTER_COORDINATOR_SERVICE_LOOP_SNAPSHOT_H_
#define MUSTER_COORDINATOR_SERVICE_LOOP_SNAPSHOT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "common/time/now.h"
#include "common/time/time.h"
#include "coordinator/core/core.h"
#include "coordinator/service/loop/checkpoint_ages.h"
#include "proto/muster/v1/job.pb.h"
#include "proto/muster/v1/node.pb.h"

namespace muster::service {

struct Snapshot {
  Time taken;
  std::vector<v1::Node> nodes;
  // All unfinished jobs and recently ended ones, newest first. Without ranks, waits, past
  // failures and most of the spec.
  std::vector<std::shared_ptr<const v1::Job>> jobs;
  std::map<std::string, SteadyTime> checkpointed;  // CheckpointAges::Since
  std::vector<core::LiveWait> waits;
  core::StoreIdentity store;
  // Totals only; samples go to the publisher's `on_stats`.
  core::Stats totals;
};

// How long an ended job stays in the snapshot, and how many ended jobs stay in it.
inline constexpr absl::Duration kEndedJobsStay = absl::Minutes(5);
inline constexpr size_t kEndedJobsShown = 50;

// Load and Refresh must be called on the core thread; Get is thread-safe.
class SnapshotPublisher {
 public:
  // `on_stats` receives every core::Stats taken, and `on_job` every job that has changed since the
  // last refresh, or null if it was removed; both on the core thread. `clock` measures the cost of
  // a refresh.
  using OnJob = std::function<void(const JobId&, const v1::Job*)>;
  explicit SnapshotPublisher(
      std::function<void(const core::Stats&)> on_stats,
      OnJob on_job = [](const JobId&, const v1::Job*) {}, std::function<Time()> clock = Now);

  // Takes the first snapshot, of a core that was just loaded.
  void Load(core::Core& core, const Time& now);
  // Notes the changed jobs and takes a new snapshot if one is due: at most four a second, and using
  // at most a twentieth of the core's time. Of many changed jobs, each snapshot takes a part, so
  // that no turn is long. Returns the time of the next one; infinite when nothing has happened
  // since the last.
  SteadyTime Refresh(core::Core& core, absl::Span<const JobId> changed, const Time& now);

  std::shared_ptr<const Snapshot> Get() const;

 private:
  using Key = std::pair<int64_t, JobId>;  // nanoseconds from a time of the job to the epoch

  void Note(core::Core& core, const JobId& id, const Time& now);
  void Put(v1::Job job);
  void Erase(const JobId& id);
  void DropEnded();
  void Publish(core::Core& core, const Time& now);

  const std::function<void(const core::Stats&)> on_stats_;
  const OnJob on_job_;
  const std::function<Time()> clock_;

  struct Entry {
    Key key;
    std::optional<Key> ended;  // in ended_
  };

  // Core thread only.
  std::map<Key, std::shared_ptr<const v1::Job>> jobs_;  // newest first
  std::map<JobId, Entry> entries_;
  std::set<Key> ended_;  // by the time of the end, newest first
  CheckpointAges checkpoints_;
  std::set<JobId> changed_;
  SteadyTime next_;

  mutable absl::Mutex mutex_;
  std::shared_ptr<const Snapshot> snapshot_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_LOOP_SNAPSHOT_H_
