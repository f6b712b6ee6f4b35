// ClusterService: methods about arrays of jobs.
#include <optional>
#include <string>
#include <utility>

#include "common/proto_time.h"
#include "common/status.h"
#include "coordinator/core/owners/visibility.h"
#include "coordinator/service/calls/cluster_service.h"
#include "coordinator/service/calls/page.h"
#include "coordinator/service/checks/validate.h"
#include "coordinator/service/loop/unary_call.h"

namespace muster::service {

grpc::ServerUnaryReactor* ClusterServiceImpl::GetArray(grpc::CallbackServerContext* context,
                                                       const v1::GetArrayRequest* request,
                                                       v1::GetArrayResponse* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const absl::Status valid = ValidateJobName(request->array_id());
  if (!valid.ok()) return Finish(reactor, valid);
  const absl::StatusOr<core::Actor> actor = ActorOf(*context);
  if (!actor.ok()) return Finish(reactor, actor.status());
  return Answer(reactor, [=](core::Core& core, const Time&) -> absl::Status {
    ASSIGN_OR_RETURN(Page page, Page::Open("tasks", request->page_token()));
    ASSIGN_OR_RETURN(*response->mutable_array(), core.GetArray(request->array_id()));
    for (const JobId& id : core.ListTasks(response->array().array_id())) {
      v1::Job task = core.ListEntry(id);
      const std::string position = Page::Ascending(task.array_index());
      if (!page.IsAfter(position)) continue;
      core::HidePrivate(*actor, task);
      if (!page.Add(task, position)) break;
      *response->add_tasks() = std::move(task);
    }
    response->set_next_page_token(page.next_token());
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* ClusterServiceImpl::CancelArray(grpc::CallbackServerContext* context,
                                                          const v1::CancelArrayRequest* request,
                                                          v1::JobArray* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  v1::CancelJobRequest as_job;
  as_job.set_job_id(request->array_id());
  if (request->has_grace_period()) *as_job.mutable_grace_period() = request->grace_period();
  const absl::Status valid = ValidateCancel(as_job);
  if (!valid.ok()) return Finish(reactor, valid);
  const absl::StatusOr<core::Actor> actor = ActorOf(*context);
  if (!actor.ok()) return Finish(reactor, actor.status());
  std::optional<absl::Duration> grace_period;
  if (request->has_grace_period()) grace_period = FromProto(request->grace_period());
  const auto complete = [reactor, response](core::Reply reply) {
    if (reply.array.has_value()) *response = *std::move(reply.array);
    Finish(reactor, reply.job.status());
  };
  const bool queued = loop_.PushQuery([=, this](core::Core& core, const Time&) -> Release {
    const absl::StatusOr<std::string> id = core.ResolveArray(request->array_id());
    if (!id.ok()) return [reactor, status = id.status()] { Finish(reactor, status); };
    const RequestId cancel = requests_.Add(complete);
    if (!loop_.Push(core::CancelArray{cancel, *id, grace_period, *actor})) {
      requests_.Complete({cancel, ShuttingDown(), false});
    }
    return nullptr;
  });
  return queued ? reactor : Finish(reactor, ShuttingDown());
}

}  // namespace muster::service
