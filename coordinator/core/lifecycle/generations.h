// Starts and stops generations: occupies and frees their slots, and sends Launch and StopGeneration
// to their nodes.
//
// A directive to stop is repeated until the ranks have ended, in case it was lost. Ranks that have
// not ended a while after their grace period cannot be killed, or their worker does not act: they
// are given up.
//
// Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_LIFECYCLE_GENERATIONS_H_
#define MUSTER_COORDINATOR_CORE_LIFECYCLE_GENERATIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "coordinator/core/context.h"
#include "coordinator/core/jobs/jobs.h"
#include "coordinator/core/nodes/nodes.h"
#include "coordinator/core/owners/secret_table.h"
#include "coordinator/core/recovery/failures.h"
#include "coordinator/core/recovery/hangs.h"
#include "coordinator/core/recovery/stragglers.h"
#include "coordinator/core/rendezvous/rendezvous.h"
#include "coordinator/core/scheduler/scheduler.h"

namespace muster::core {

class Generations {
 public:
  Generations(Jobs& jobs, Nodes& nodes, const SecretTable& secrets, Scheduler& scheduler,
              Rendezvous& rendezvous, Failures& failures, Hangs& hangs, Stragglers& stragglers,
              Context& context)
      : jobs_(jobs),
        nodes_(nodes.table),
        node_sessions_(nodes.sessions),
        secrets_(secrets),
        scheduler_(scheduler),
        rendezvous_(rendezvous),
        failures_(failures),
        hangs_(hangs),
        stragglers_(stragglers),
        context_(context) {}

  // Starts the queued job's next generation. `overdue`: see StartRequest.
  void Start(Job& job, std::vector<v1::NodePlacement> placements, bool overdue);
  // Records a generation as the job's newest one.
  void Record(Job& job, v1::GenerationRecord record);
  // Continues a generation that was loaded, or rebuilt from workers' records.
  void Resume(Job& job);
  // Sends a Launch to the node if it is reachable and has live ranks.
  void SendLaunch(const Job& job, uint32_t node_rank) const;

  // Stops the generation of a STARTING or RUNNING job. The caller then calls End.
  void Stop(Job& job, Ending ending);
  // Queues the job, which is STOPPING, again once it has stopped.
  void Requeue(Job& job, absl::string_view reason, std::string message);
  // Kills the ranks of a STOPPING job at this time, if that is before the end of their grace
  // period.
  void Shorten(Job& job, SteadyTime grace_end);
  // As above, for the STOPPING jobs with ranks on the node, at its drain deadline.
  void Shorten(const Node& node);
  // Sends the directive to stop to the node if it has live ranks.
  void SendStop(const Job& job, uint32_t node_rank);
  // Repeats the directives, or gives the remaining ranks up. The caller then calls End.
  void OnStopTimer(Job& job);
  // The rank's processes outlive SIGKILL: the job continues without it, and its slots are not used
  // until it ends.
  void OnUnkillable(Job& job, RankState& rank);
  // Attributes the failure of a STOPPING job and, once nothing of its generation is left, ends the
  // generation. Returns how long it was RUNNING; nullopt while it has not ended.
  std::optional<absl::Duration> End(Job& job);

 private:
  // Occupies the slots of the ranks that have not ended.
  void Occupy(const Job& job, Generation number, const v1::NodePlacement& placement);
  void ArmTimeLimit(const Job& job);
  // Starts the grace period.
  void ArmStop(Job& job);
  // The earliest drain deadline of the generation's nodes; infinite without one.
  SteadyTime DrainDeadline(const Job& job) const;
  void SendStops(const Job& job);
  void GiveUp(Job& job, RankState& rank, std::string why);

  Jobs& jobs_;
  NodeTable& nodes_;
  NodeSessions& node_sessions_;
  const SecretTable& secrets_;
  Scheduler& scheduler_;
  Rendezvous& rendezvous_;
  Failures& failures_;
  Hangs& hangs_;
  Stragglers& stragglers_;
  Context& context_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_LIFECYCLE_GENERATIONS_H_
