// Configuration of the core.
#ifndef MUSTER_COORDINATOR_CORE_OPTIONS_H_
#define MUSTER_COORDINATOR_CORE_OPTIONS_H_

#include <cstddef>
#include <string>

#include "absl/time/time.h"
#include "common/ids.h"
#include "coordinator/core/scheduler/options.h"

namespace muster::core {

struct Options {
  Incarnation incarnation;     // random; identifies this coordinator process
  std::string new_cluster_id;  // random; for a store that has no cluster id yet
  std::string boot_id;         // of the machine's boot; empty: unknown
  // After this time without a heartbeat, nothing new is placed on a node.
  absl::Duration lease = absl::Seconds(10);
  // At least this time without a heartbeat passes before a node's ranks are lost; see
  // jobs/job.h. Not shorter than `lease`.
  absl::Duration job_lease = absl::Seconds(30);
  absl::Duration heartbeat_interval = absl::Seconds(1);
  // Whether leases end only after the event Listening.
  bool awaits_listening = false;
  // How long a failure that looks like a consequence (a rank that lost a peer) waits for its cause
  // to be reported.
  absl::Duration cause_window = absl::Seconds(2);
  // How many of the newest finished jobs are kept, and for how long at most. Each is kept for at
  // least a minute.
  size_t keep_jobs = 10000;
  absl::Duration keep_jobs_for = absl::InfiniteDuration();
  // Memory for jobs, see owners/memory_budget.h.
  size_t job_memory = size_t{1} << 30;
  // Absolute path of a directory that all nodes share. Each job that is submitted from now on gets
  // a folder in it for its checkpoints. Empty: checkpoints stay on the nodes.
  std::string checkpoint_dir;
  SchedulerOptions scheduler;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_OPTIONS_H_
