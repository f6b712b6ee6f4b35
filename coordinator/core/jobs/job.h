// A job as the core keeps it, and the table of job states.
#ifndef MUSTER_COORDINATOR_CORE_JOBS_JOB_H_
#define MUSTER_COORDINATOR_CORE_JOBS_JOB_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/ids.h"
#include "common/time/time.h"
#include "coordinator/core/goodput/time_account.h"
#include "coordinator/core/jobs/generation.h"
#include "coordinator/core/options.h"
#include "proto/muster/v1/job.pb.h"
#include "proto/muster/v1/store.pb.h"
#include "spec/array_task.h"

namespace muster::core {

// The transitions between job states.
//
//   submit          placed              connected
//  ───────▶ QUEUED ─────────▶ STARTING ───────────▶ RUNNING
//            │ ▲ ▲              ▲   │                  │
//       hold │ │ │              │   ▼                  ▼
//            ▼ │ │              └─ STOPPING ◀──────────┘
//           HELD └─────────────────┘   │
//            │                         │
//            ▼                         ▼
//        CANCELLED                 SUCCEEDED, FAILED, CANCELLED, TIMED_OUT
//
//  from               to         when
//  QUEUED, HELD       each other hold, release
//  QUEUED, HELD       CANCELLED  cancel
//  QUEUED             STARTING   placed: the next generation is recorded with
//  its rank map QUEUED             FAILED     no known nodes could ever run it:
//  see scheduler/placement.h QUEUED, HELD       FAILED     a dependency did not
//  end in the required state STARTING           RUNNING    all ranks are
//  connected (command job: started) STARTING, RUNNING  STOPPING   cancel, time
//  limit, first failure, lost node, requeue, drain,
//                                preemption
//  RUNNING            STOPPING   the last rank exited with code 0
//  STOPPING           STARTING   no rank is left; restarted at once
//  STOPPING           QUEUED     no rank is left; to be restarted when capacity
//  allows, requeued,
//                                drained or preempted: before the jobs of its
//                                owner that have not run
//  STOPPING           terminal   no rank is left
bool IsAllowed(v1::JobState from, v1::JobState to);
bool IsTerminal(v1::JobState state);
// STARTING, RUNNING, STOPPING: the job has a living generation.
bool IsActive(v1::JobState state);

// The next state of a STOPPING job, entered when no rank of its generation is
// left, and how its ranks are stopped.
struct Ending {
  v1::JobState outcome = v1::JOB_STATE_UNSPECIFIED;
  std::string reason;
  std::string message;
  absl::Duration grace_period;
  bool abort = false;
};

// The generations of a job that are kept, and of its failures: the first ones
// and the newest ones.
inline constexpr int kOldestKept = 4;
inline constexpr int kNewestKept = 28;
// The newest generations that are kept while the owner has no memory left, or
// the store no space.
inline constexpr int kKeptWithoutRoom = 4;

// The most bytes of an event's or a state's message, which may name all nodes of a job.
inline constexpr size_t kMessageBytes = 64 << 10;

// Ids of the jobs and arrays of spec.after that have not ended yet.
struct After {
  std::vector<std::string> ok;
  std::vector<std::string> failed;
  std::vector<std::string> any;
  bool empty() const { return ok.empty() && failed.empty() && any.empty(); }
};

// The stored state of a job; see job_record.h.
struct StoredJob {
  // The job as clients see it, without its spec and what Views adds (queue
  // position, ranks, waits).
  v1::Job status;
  spec::SharedSpec shared_spec;
  // Order in the queue: among jobs of equal priority, the lowest is placed
  // first.
  uint64_t queue_sequence = 0;
  uint64_t next_event_sequence = 1;
  SteadyTime submitted;
  SteadyTime released;  // the last time; zero: never
  SteadyTime finished;
  SteadyTime generation_start;  // of the newest generation
  Ending ending;
  // While STOPPING: the probable first failure, until its cause is known.
  std::optional<v1::FirstFailure> suspected_failure;
  // The highest step that any rank reported in any generation, and its value
  // when the last failed generation ended.
  uint64_t highest_step = 0;
  uint64_t failed_at_step = 0;
  // Generations in a row that ended with a lost node or a failed launch; see
  // restart_policy.h.
  uint32_t failed_attempts = 0;
  // Running time of all ended generations, which counts against the time limit.
  absl::Duration run_time;
  // Time spent in the scheduler's queue, without the current stay, and the
  // start of that stay: the waiting that the owner did not cause.
  absl::Duration waited;
  std::optional<SteadyTime> queued_since;
  // While QUEUED: the job is delayed, and joins the scheduler's queue at this
  // time.
  std::optional<SteadyTime> not_before;
  // The highest number that another store may have given to a generation, if it
  // exceeded status.generation: the store was restored from a copy, or the job
  // was recovered from workers' records. Numbers up to it are never used again.
  uint64_t highest_generation = 0;
  // A job of a higher class has taken its slots, and it has not run since.
  bool preempted = false;
  uint32_t array_concurrency = 0;  // see ArraySpec
  // The jobs that have to end before this one joins the scheduler's queue.
  After after;
  // Skipped steps as of the newest LossScaleLowered event.
  uint64_t reported_skipped_steps = 0;
  // Loss anomalies of the newest generation that have events.
  v1::LossEventsRecord loss_events;
  // The spec is stored under the id of the array, with that of its other tasks.
  bool shares_spec = false;
  // The numbers of records that the spec and the summary have; 0: none yet.
  uint32_t spec_parts = 0;
  uint32_t summary_parts = 0;
  // Digest of the spec as submitted; empty in jobs of older stores.
  std::string submitted_digest;
  TimeAccount time_account;
  std::map<Generation, v1::GenerationRecord> past;
  std::deque<v1::JobEvent> events;  // oldest first
};

struct Job : StoredJob {
  size_t memory_bytes = 0;  // of its spec, events and past generations, as charged to its owner
  std::optional<GenerationState> generation;  // set while the job is active
  SteadyTime state_since;
  // True when the job's generation has just ended and the job is to be placed
  // again at the end of this step.
  bool restarting = false;
  // Order in which finished jobs are deleted; unset while the job is kept.
  std::optional<SteadyTime> deletion_order;
  absl::Duration growth_interval;       // between two attempts to grow
  SteadyTime grow_after;                // the earliest next attempt
  uint32_t nodes_before_growth = 0;     // while the job grows
  std::optional<SteadyTime> failed_at;  // start of the recovery; cleared when the job runs again

  JobId id() const { return JobId(status.job_id()); }
  v1::JobState state() const { return status.state(); }
  const v1::JobSpec& spec() const {
    return shared_spec == nullptr ? v1::JobSpec::default_instance() : *shared_spec;
  }
  void SetSpec(v1::JobSpec spec) {
    shared_spec = std::make_shared<const v1::JobSpec>(std::move(spec));
  }
  // The number of the job's next generation.
  Generation NextGeneration() const {
    return Generation(std::max(status.generation(), highest_generation) + 1);
  }
  void BeginWait(const Time& now) {
    if (!queued_since.has_value()) queued_since = now.steady;
  }
  void EndWait(const Time& now) {
    if (!queued_since.has_value()) return;
    waited += now.steady - *queued_since;
    queued_since.reset();
  }
  // Start of the job's waiting, as if it had been in the queue without a break.
  SteadyTime WaitingSince(const Time& now) const {
    return queued_since.value_or(now.steady) - waited;
  }
  bool is_train() const { return spec().command().empty(); }
  // The time at which the living generation exceeds the time limit; nullopt
  // without a limit.
  std::optional<SteadyTime> TimeLimitEnd() const;
  // The record of a living or past generation; null when there is none.
  const v1::GenerationRecord* FindRecord(Generation number) const;
};

// The approximate memory of a job without events. `sharing`: how many jobs share the spec.
size_t MemoryOf(const v1::JobSpec& spec, size_t sharing);

// The lease of a job's ranks on a node is the time without a heartbeat of the
// node after which they are declared lost, so that the job may run elsewhere.
// Their shims end them before that.
//
// The lease of a job's next generation: Options::job_lease, or its
// failure_timeout if longer.
absl::Duration JobLease(const v1::JobSpec& spec, const Options& options);
// The lease of the job's living generation, as recorded when it was placed.
absl::Duration LeaseOf(const Job& job, const Options& options);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_JOBS_JOB_H_
