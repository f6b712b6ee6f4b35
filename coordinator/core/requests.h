// Handles client requests.
//
// Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_REQUESTS_H_
#define MUSTER_COORDINATOR_CORE_REQUESTS_H_

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/core/admission.h"
#include "coordinator/core/checkpoints.h"
#include "coordinator/core/context.h"
#include "coordinator/core/event.h"
#include "coordinator/core/jobs/job_table.h"
#include "coordinator/core/life_cycle.h"

namespace muster::core {

class Requests {
 public:
  Requests(JobTable& jobs, Admission& admission, Checkpoints& checkpoints, LifeCycle& life_cycle,
           Context& context)
      : jobs_(jobs),
        admission_(admission),
        checkpoints_(checkpoints),
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

  // Adds the replies that show a job, in its state after the step, to the step's effects.
  void Reply(const std::function<v1::Job(const Job&)>& view);

 private:
  struct PendingReply {
    RequestId request;
    JobId job;
    bool already_existed;
  };

  // Returns null after replying NOT_FOUND, or PERMISSION_DENIED if the actor may not change the
  // job.
  Job* FindFor(RequestId request, const JobId& id, const Actor& actor);
  void ReplyError(RequestId request, absl::Status status);
  void ReplyLater(RequestId request, const JobId& job, bool already_existed = false);

  JobTable& jobs_;
  Admission& admission_;
  Checkpoints& checkpoints_;
  LifeCycle& life_cycle_;
  Context& context_;
  std::vector<PendingReply> pending_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_REQUESTS_H_
