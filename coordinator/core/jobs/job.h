// A job as the core holds it, and the table of job states.
#ifndef MUSTER_COORDINATOR_CORE_JOBS_JOB_H_
#define MUSTER_COORDINATOR_CORE_JOBS_JOB_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "common/ids.h"
#include "common/time.h"
#include "coordinator/core/jobs/generation.h"
#include "proto/muster/v1/job.pb.h"
#include "proto/muster/v1/store.pb.h"

namespace muster::core {

// All transitions between job states.
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
//  QUEUED             STARTING   placed: generation + 1, on record with its rank map
//  QUEUED             FAILED     no known node could ever take it: see scheduler/placement.h
//  STARTING           RUNNING    every rank is connected (command job: started)
//  STARTING, RUNNING  STOPPING   cancel, time limit, first failure, lost node, requeue, drain
//  RUNNING            STOPPING   the last rank exited with code 0
//  STOPPING           STARTING   nothing of the generation is left; restart, with capacity
//  STOPPING           QUEUED     the same, without capacity, or requeued or drained: at the head
//                                of its priority
//  STOPPING           terminal   nothing of the generation is left
bool IsAllowed(v1::JobState from, v1::JobState to);
bool IsTerminal(v1::JobState state);
// STARTING, RUNNING, STOPPING: the job has a generation that lives.
bool IsActive(v1::JobState state);

// Where a STOPPING job goes once nothing of its generation is left, and how its ranks are stopped.
struct Ending {
  v1::JobState outcome = v1::JOB_STATE_UNSPECIFIED;
  std::string reason;
  std::string message;
  absl::Duration grace_period;
  bool abort = false;
};

struct Job {
  // ---- Persistent: see job_record.h.
  // What clients see, without what a view adds (queue position, ranks, waits).
  v1::Job status;
  // Position in the queue: among equal priorities the lowest goes first.
  uint64_t queue_sequence = 0;
  uint64_t next_event_sequence = 1;
  absl::Time generation_start_time = absl::UnixEpoch();
  Ending ending;
  // While STOPPING: the probable first failure, until its cause is known.
  std::optional<v1::FirstFailure> suspected_failure;
  // The newest step that any rank reported in any generation, and its value when the last failed
  // generation ended.
  uint64_t highest_step = 0;
  uint64_t failed_at_step = 0;
  // Skipped steps that the newest LossScaleLowered event counted.
  uint64_t reported_skipped_steps = 0;
  std::map<Generation, v1::GenerationRecord> past;
  std::deque<v1::JobEvent> events;  // oldest first

  // ---- In memory only
  std::optional<GenerationState> generation;  // while active
  SteadyTime state_since;
  // The job's generation has just ended, and it is to be placed again at the end of this step.
  bool restarting = false;
  std::optional<SteadyTime> failed_at;  // until it runs again

  JobId id() const { return JobId(status.job_id()); }
  v1::JobState state() const { return status.state(); }
  const v1::JobSpec& spec() const { return status.spec(); }
  bool is_train() const { return spec().command().empty(); }
  // The record of a generation, living or past; null when there is none.
  const v1::GenerationRecord* FindRecord(Generation number) const;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_JOBS_JOB_H_
