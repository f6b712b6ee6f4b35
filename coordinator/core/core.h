// The coordinator's decisions, as a state machine: Step(event, now) -> effects.
//
// No gRPC, thread, clock, disk or random source in here: events carry all that, so a test or a
// simulation decides what happens when. Starting up is Load() with the store's records and stepping
// on; recovery is the same path.
//
// Not thread-safe: one thread owns it.
#ifndef MUSTER_COORDINATOR_CORE_CORE_H_
#define MUSTER_COORDINATOR_CORE_CORE_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "common/time.h"
#include "coordinator/core/event.h"
#include "coordinator/store/store.h"
#include "proto/muster/v1/cluster.pb.h"
#include "proto/muster/v1/job.pb.h"
#include "proto/muster/v1/node.pb.h"

namespace muster::core {

struct Options {
  Incarnation incarnation;  // of this coordinator process
  absl::Duration lease = absl::Seconds(10);
  absl::Duration heartbeat_interval = absl::Seconds(1);
  // How long a failure that looks like a consequence (a rank that lost a peer) waits for its cause
  // to be reported.
  absl::Duration cause_window = absl::Seconds(2);
  // Of finished jobs the newest so many are remembered, and none for longer than this; each at
  // least for a minute.
  size_t keep_jobs = 10000;
  absl::Duration keep_jobs_for = absl::InfiniteDuration();
};

// Totals since the process started and gauges of now, for the metrics endpoint; copied out between
// steps.
struct Stats {
  struct Finished {
    v1::JobState state;
    std::string reason;
    uint64_t count = 0;
  };
  struct Seconds {  // samples since the last call of TakeStats
    std::string label;
    std::vector<double> samples;
  };
  uint64_t jobs_submitted = 0;
  std::vector<Finished> jobs_finished;
  std::vector<std::pair<std::string, uint64_t>> restarts_by_cause;
  std::vector<double> queue_wait_seconds;
  std::vector<Seconds> rendezvous_seconds;  // label: phase (launch, join, communicators)
  std::vector<double> barrier_wait_seconds;
  std::vector<double> failure_detection_seconds;
  std::vector<double> recovery_seconds;
};

// A rendezvous, the set-up of communicators, or a barrier that is under way.
struct LiveWait {
  JobId job;
  std::string what;      // rendezvous, communicators, barrier <group>: few of a job, also over time
  SteadyTime since;      // of several barriers of a group the oldest
  uint32_t missing = 0;  // ranks
};

class Core {
 public:
  explicit Core(Options options);
  ~Core();

  // Once, before the first Step. Nodes that held ranks get a fresh lease from `now`.
  // Errors: DATA_LOSS when records contradict one another, FAILED_PRECONDITION for a newer schema.
  absl::StatusOr<Effects> Load(absl::Span<const store::Record> records, Time now);

  Effects Step(const Event& event, Time now);

  // When a Tick is due; infinite when nothing waits.
  SteadyTime NextDeadline() const;

  // ---- Reading. `name` is a job id or a unique prefix: NOT_FOUND, INVALID_ARGUMENT when
  // ambiguous.
  absl::StatusOr<JobId> ResolveJob(absl::string_view name) const;
  // With ranks and waits when detailed.
  absl::StatusOr<v1::Job> GetJob(const JobId& job, bool detailed, Time now) const;
  // Newest first.
  std::vector<v1::Job> ListJobs(const v1::ListJobsRequest& request, Time now) const;
  absl::StatusOr<std::vector<v1::JobEvent>> ListEvents(const JobId& job, uint64_t after) const;
  std::vector<v1::Node> ListNodes(Time now) const;
  absl::StatusOr<v1::Node> GetNode(const NodeName& name, Time now) const;
  std::vector<LiveWait> ListWaits() const;
  // Where a rank of a generation (0: newest) runs or ran. NOT_FOUND; UNAVAILABLE when that node has
  // no session.
  struct RankLocation {
    SessionId session;
    NodeName node;
    Generation generation;
    bool over = false;  // the rank has exited
  };
  absl::StatusOr<RankLocation> FindRank(const JobId& job, Generation generation, Rank rank) const;
  Stats TakeStats();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_CORE_H_
