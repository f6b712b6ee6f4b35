// The coordinator's decision logic, as a state machine: Step(event, now) -> effects.
//
// The core has no gRPC, thread, clock, disk or random source: events carry all of that, so a test
// or a simulation controls what happens when. A coordinator starts with Load(), which reads the
// store's records; recovery takes the same path.
//
// The core is composed of parts that own their state: nodes, jobs, scheduler, rendezvous and
// failures (folder recovery), each in a folder of its own, with its unit tests. The classes of
// lifecycle, requests and sessions change that state; Views reads it. core.cc shows the
// dependencies between the parts.
//
// Not thread-safe: one thread owns it.
#ifndef MUSTER_COORDINATOR_CORE_CORE_H_
#define MUSTER_COORDINATOR_CORE_CORE_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "common/time/time.h"
#include "coordinator/core/actor.h"
#include "coordinator/core/event.h"
#include "coordinator/core/options.h"
#include "coordinator/core/owners/memory_budget.h"
#include "coordinator/core/stats.h"
#include "coordinator/core/store_identity.h"
#include "coordinator/store/store.h"
#include "proto/muster/v1/cluster.pb.h"
#include "proto/muster/v1/identity.pb.h"
#include "proto/muster/v1/job.pb.h"
#include "proto/muster/v1/node.pb.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::core {

// A job in the order of the queue.
struct QueuePosition {
  size_t count = 0;  // jobs up to this one; used if the job has left the queue
  JobId job;         // empty: the beginning
};

// `now` is the time of the machine throughout. The core itself measures time on its own clock,
// which goes on over restarts; see steady_clock.h.
class Core {
 public:
  explicit Core(Options options);
  ~Core();

  // Loads the state from the store. Called once, before the first Step. Nodes that held ranks get a
  // fresh lease from `now`. Errors: DATA_LOSS when records contradict one another,
  // FAILED_PRECONDITION for a newer schema.
  absl::StatusOr<Effects> Load(absl::Span<const store::Record> records, Time now);

  // Sets the space that the store has from now on.
  void SetSpace(const store::Space& space);

  // Handles one event. With `more`, another event of the same turn follows: the decision on which
  // jobs start is then left to the last one, unless something depends on it before.
  Effects Step(const Event& event, Time now, bool more = false);

  // The time of the next required Tick; infinite when none is required.
  SteadyTime NextDeadline() const;

  // ---- Queries
  // Resolves a job id, the name of one job only, the name of one array only with a task's index
  // ("sweep-3"), or a unique prefix of an id, in this order. Errors: NOT_FOUND,
  // INVALID_ARGUMENT with the matching jobs when ambiguous, or when the name is that of an array.
  absl::StatusOr<JobId> ResolveJob(absl::string_view name) const;
  // The job, with ranks and waits when `detailed`. Errors: NOT_FOUND.
  absl::StatusOr<v1::Job> GetJob(const JobId& job, bool detailed, Time now) const;
  // The jobs that the request selects, newest first.
  std::vector<v1::Job> ListJobs(const v1::ListJobsRequest& request, Time now) const;
  // A job or an array in a list. `sequence` is unique, and higher for newer ones.
  struct Listed {
    uint64_t sequence = 0;
    std::string id;
    bool is_array = false;
  };
  // References to the same jobs and, with collapse_arrays, to the arrays, newest first.
  std::vector<Listed> Select(const v1::ListJobsRequest& request) const;
  // The job as lists show it, without what may be large. Errors: NOT_FOUND.
  absl::StatusOr<v1::Job> ListEntry(const JobId& job) const;
  // As ResolveJob, for an array.
  absl::StatusOr<std::string> ResolveArray(absl::string_view name) const;
  // The array with this id, name or unique prefix.
  absl::StatusOr<v1::JobArray> GetArray(absl::string_view name) const;
  // The tasks that the coordinator keeps of the array, which must exist, by index.
  std::vector<JobId> ListTasks(const std::string& array) const;
  // The events of the job with a sequence number greater than `after`.
  absl::StatusOr<std::vector<v1::JobEvent>> ListEvents(const JobId& job, uint64_t after) const;
  // Returns the job and its history, with at most `max_points` points of its curves (0: all).
  absl::StatusOr<v1::JobHistory> GetJobHistory(const JobId& job, size_t max_points, Time now) const;
  // At most `max_points` points (0: all). Errors: NOT_FOUND.
  absl::StatusOr<v1::Curves> GetCurves(const JobId& job, size_t max_points) const;
  std::vector<v1::Node> ListNodes(Time now) const;
  absl::StatusOr<v1::Node> GetNode(const NodeName& name, Time now) const;
  std::vector<LiveWait> ListWaits() const;
  // At most `limit` jobs of the queue (0: limits::kJobsPerList) that follow `after`, and the use of
  // the owners.
  v1::GetQueueResponse GetQueue(uint32_t limit, Time now, const QueuePosition& after = {}) const;
  // Forecasts when a job would start if the actor submitted it now; queues nothing.
  v1::Forecast ForecastJob(const v1::JobSpec& spec, const Actor& actor, Time now) const;
  // See scheduler/explain.h.
  std::string LimitsWarning(const v1::JobSpec& spec) const;
  // The error that the submission would return. Changes nothing.
  absl::Status CheckSubmit(const SubmitJob& event, Time now);
  // Use of the cluster by owner on the newest `days` days.
  v1::GetReportResponse GetReport(uint32_t days, Time now) const;
  // The owners that have jobs or have used the cluster.
  std::vector<v1::OwnerUse> ListOwnerUse(Time now) const;
  // The names of the actor's secrets; those of all owners for an admin.
  v1::ListSecretsResponse ListSecrets(const Actor& actor) const;
  // The join tokens that have not expired.
  v1::ListJoinTokensResponse ListJoinTokens(Time now) const;
  // The location of a rank of a generation (0: the newest). Errors: NOT_FOUND; OUT_OF_RANGE when
  // the generation has fewer ranks; UNAVAILABLE when the rank's node has no session.
  struct RankLocation {
    SessionId session;
    NodeName node;
    Generation generation;
    bool over = false;  // the rank has exited
  };
  absl::StatusOr<RankLocation> FindRank(const JobId& job, Generation generation, Rank rank) const;
  const StoreIdentity& store() const;
  // The end of the log of an exited rank of a generation (0: the newest). Errors: NOT_FOUND.
  struct KeptLog {
    v1::LogTail tail;
    NodeName node;  // node on which the rank ran
  };
  absl::StatusOr<KeptLog> FindLogTail(const JobId& job, Generation generation, Rank rank) const;
  // Digests of the files of all jobs, by owner.
  std::map<std::string, absl::flat_hash_set<std::string>> ListFiles() const;
  // See jobs/job_table.h.
  absl::flat_hash_set<std::string> UsableFiles(
      const Actor& actor, const absl::flat_hash_set<std::string>& digests) const;
  bool NeedsFile(const std::optional<NodeName>& node, const std::string& digest) const;
  // The memory that jobs use: their specs, events and generations, with the keys of these.
  const MemoryBudget& memory() const;
  // Totals, and the samples since the last call.
  Stats TakeStats();

 private:
  struct Parts;
  // The time on the core's clock.
  Time At(Time machine) const;
  void OnTick(const Tick& tick);
  bool CountsQueuedJobs(const Event& event) const;
  Effects FinishStep(bool more);

  std::unique_ptr<Parts> parts_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_CORE_H_
