// ClusterService: methods about the queue.
#include "common/limits.h"
#include "common/status.h"
#include "coordinator/core/owners/visibility.h"
#include "coordinator/service/cluster_service.h"
#include "coordinator/service/unary_call.h"

namespace muster::service {
namespace {

// Leaves out the last jobs if the response does not fit into a message; `total` still counts them.
void Shorten(v1::GetQueueResponse& response) {
  size_t bytes = 0;
  for (const v1::OwnerUse& use : response.owners()) bytes += use.ByteSizeLong() + 16;
  int kept = 0;
  for (const v1::QueuedJob& queued : response.jobs()) {
    bytes += queued.ByteSizeLong() + 16;  // exceeds any field header
    if (bytes > limits::kMessageBytes) break;
    ++kept;
  }
  response.mutable_jobs()->DeleteSubrange(kept, response.jobs_size() - kept);
}

}  // namespace

grpc::ServerUnaryReactor* ClusterServiceImpl::GetQueue(grpc::CallbackServerContext* context,
                                                       const v1::GetQueueRequest* request,
                                                       v1::GetQueueResponse* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const absl::StatusOr<core::Actor> actor = ActorOf(*context);
  if (!actor.ok()) return Finish(reactor, actor.status());
  return Answer(reactor, [=](core::Core& core, const Time& now) {
    *response = core.GetQueue(request->limit(), now);
    for (v1::QueuedJob& queued : *response->mutable_jobs()) {
      core::HidePrivate(*actor, *queued.mutable_job());
    }
    Shorten(*response);
    return CheckSize(*response);
  });
}

}  // namespace muster::service
