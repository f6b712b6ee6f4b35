// Handles requests about jobs.
//
// Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_REQUESTS_JOB_REQUESTS_H_
#define MUSTER_COORDINATOR_CORE_REQUESTS_JOB_REQUESTS_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/core/context.h"
#include "coordinator/core/event.h"
#include "coordinator/core/jobs/jobs.h"
#include "coordinator/core/lifecycle/life_cycle.h"
#include "coordinator/core/lifecycle/queueing.h"
#include "coordinator/core/nodes/node_table.h"

namespace muster::core {

class JobRequests {
 public:
  JobRequests(Jobs& jobs, NodeTable& nodes, Queueing& queueing, LifeCycle& life_cycle,
              Context& context)
      : jobs_(jobs),
        nodes_(nodes),
        queueing_(queueing),
        life_cycle_(life_cycle),
        context_(context) {}

  void Handle(const SubmitJob& event);
  void Handle(const CancelJob& event);
  void Handle(const CancelArray& event);
  void Handle(const HoldJob& event);
  void Handle(const ReleaseJob& event);
  void Handle(const RequeueJob& event);
  void Handle(const CheckpointJob& event);
  void Handle(const ShareJob& event);
  void Handle(const RemoveJob& event);

  // Adds the replies that show a job, in its state after the step, to the step's effects.
  void Reply(const std::function<v1::Job(const Job&)>& view);

 private:
  struct PendingReply {
    RequestId request;
    JobId job;
    bool already_existed;
  };

  // Returns null after replying with an error: those of JobNames::Resolve, and PERMISSION_DENIED if
  // the actor may not change the job.
  Job* FindFor(RequestId request, const std::string& name, const Actor& actor);
  // Asks rank 0 of a running train job to write a checkpoint. Errors: FAILED_PRECONDITION if the
  // job does not train or writes no checkpoints, UNAVAILABLE if the node of rank 0 is not
  // connected.
  absl::Status RequestCheckpoint(Job& job, const Actor& actor);
  absl::Status CheckRemovable(const Job& job) const;
  // Makes the connected nodes that ran the job delete its files.
  void DeleteFiles(const Job& job);
  void ReplyError(RequestId request, absl::Status status);
  void ReplyLater(RequestId request, const JobId& job, bool already_existed = false);

  Jobs& jobs_;
  NodeTable& nodes_;
  Queueing& queueing_;
  LifeCycle& life_cycle_;
  Context& context_;
  std::vector<PendingReply> pending_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_REQUESTS_JOB_REQUESTS_H_
