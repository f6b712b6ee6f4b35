// The coordinator's decisions, as a state machine: Step(event, now) -> effects.
//
// No gRPC, thread, clock, disk or random source in here: events carry all that, so a test or a
// simulation decides what happens when. Starting up is Load() with the store's records and stepping
// on; recovery is the same path.
//
// The core is composed of parts that own their state: nodes, jobs, scheduler, rendezvous and
// failures (folder recovery), each in a folder of its own, with its unit tests. LifeCycle,
// Requests, Reports and Sessions change that state, Views read it. core.cc shows how they depend on
// each other.
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
#include "coordinator/core/options.h"
#include "coordinator/core/stats.h"
#include "coordinator/store/store.h"
#include "proto/muster/v1/cluster.pb.h"
#include "proto/muster/v1/job.pb.h"
#include "proto/muster/v1/node.pb.h"

namespace muster::core {

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
  struct Parts;
  void OnTick(const Tick& tick);
  Effects FinishStep();

  std::unique_ptr<Parts> parts_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_CORE_H_
