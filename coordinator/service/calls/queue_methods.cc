// ClusterService: methods about the queue.
#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/limits.h"
#include "common/status.h"
#include "coordinator/core/owners/visibility.h"
#include "coordinator/service/calls/cluster_service.h"
#include "coordinator/service/calls/page.h"
#include "coordinator/service/loop/unary_call.h"

namespace muster::service {
namespace {

// The position of a job in a page token: the number of jobs up to it, and its id. The order of the
// queue changes: the next page continues after the job if it is still queued.
core::QueuePosition ParsePosition(const std::string& text) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('/', 1));
  core::QueuePosition position;
  if (absl::SimpleAtoi(parts.first, &position.count)) position.job = JobId(parts.second);
  return position;
}

}  // namespace

grpc::ServerUnaryReactor* ClusterServiceImpl::GetQueue(grpc::CallbackServerContext* context,
                                                       const v1::GetQueueRequest* request,
                                                       v1::GetQueueResponse* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const absl::StatusOr<core::Actor> actor = ActorOf(*context);
  if (!actor.ok()) return Finish(reactor, actor.status());
  return Answer(reactor, [=](core::Core& core, const Time& now) -> absl::Status {
    ASSIGN_OR_RETURN(Page page, Page::Open("queue", request->page_token(), request->limit()));
    const core::QueuePosition after = ParsePosition(page.after());
    const uint32_t most = limits::kJobsPerList;
    const uint32_t limit = request->limit() == 0 ? most : std::min(request->limit(), most);
    *response = core.GetQueue(limit + 1, now, after);  // to see whether more follow
    int kept = 0;
    for (v1::QueuedJob& queued : *response->mutable_jobs()) {
      core::HidePrivate(*actor, *queued.mutable_job());
      const std::string& id = queued.job().job_id();
      if (!page.Add(queued, absl::StrCat(after.count + kept + 1, "/", id))) break;
      ++kept;
    }
    response->mutable_jobs()->DeleteSubrange(kept, response->jobs_size() - kept);
    response->set_next_page_token(page.next_token());
    return CheckSize(*response);
  });
}

}  // namespace muster::service
