// ClusterService: methods about the histories of jobs.
#include "common/status.h"
#include "coordinator/core/owners/visibility.h"
#include "coordinator/service/calls/cluster_service.h"
#include "coordinator/service/checks/validate.h"
#include "coordinator/service/loop/unary_call.h"

namespace muster::service {

grpc::ServerUnaryReactor* ClusterServiceImpl::GetJobHistory(grpc::CallbackServerContext* context,
                                                            const v1::GetJobHistoryRequest* request,
                                                            v1::JobHistory* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const absl::Status valid = ValidateJobName(request->job_id());
  if (!valid.ok()) return Finish(reactor, valid);
  const absl::StatusOr<core::Actor> actor = ActorOf(*context);
  if (!actor.ok()) return Finish(reactor, actor.status());
  return Answer(reactor, [=](core::Core& core, const Time& now) -> absl::Status {
    ASSIGN_OR_RETURN(const JobId id, core.ResolveJob(request->job_id()));
    ASSIGN_OR_RETURN(*response, core.GetJobHistory(id, request->max_points(), now));
    core::HidePrivate(*actor, *response->mutable_job());
    return CheckSize(*response);
  });
}

}  // namespace muster::service
