// ClusterService: methods about owners of jobs.
#include <algorithm>
#include <string>
#include <utility>

#include "common/status.h"
#include "coordinator/service/calls/cluster_service.h"
#include "coordinator/service/calls/page.h"
#include "coordinator/service/checks/validate.h"
#include "coordinator/service/loop/unary_call.h"

namespace muster::service {
namespace {

constexpr uint32_t kDefaultReportDays = 7;

using ReportedOwner = v1::GetReportResponse::Owner;

double SlotSeconds(const ReportedOwner& owner) {
  return owner.cpu_slot_seconds() + owner.gpu_slot_seconds();
}

}  // namespace

grpc::ServerUnaryReactor* ClusterServiceImpl::GetReport(grpc::CallbackServerContext* context,
                                                        const v1::GetReportRequest* request,
                                                        v1::GetReportResponse* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const absl::Status valid = ValidateGetReport(*request);
  if (!valid.ok()) return Finish(reactor, valid);
  const uint32_t days = request->days() == 0 ? kDefaultReportDays : request->days();
  return Answer(reactor, [=](core::Core& core, const Time& now) -> absl::Status {
    ASSIGN_OR_RETURN(Page page, Page::Open("report", request->page_token()));
    *response = core.GetReport(days, now);
    // Their use changes between two pages: pages are by name, and sorted by use.
    page.Keep(*response->mutable_owners(),
              [](const ReportedOwner& owner) { return owner.owner(); });
    std::stable_sort(response->mutable_owners()->begin(), response->mutable_owners()->end(),
                     [](const ReportedOwner& a, const ReportedOwner& b) {
                       return SlotSeconds(a) > SlotSeconds(b);
                     });
    response->set_next_page_token(page.next_token());
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* ClusterServiceImpl::SetSecret(grpc::CallbackServerContext* context,
                                                        const v1::SetSecretRequest* request,
                                                        v1::SetSecretResponse* /*response*/) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  absl::StatusOr<core::Actor> actor = ActorOf(*context);
  if (!actor.ok()) return Finish(reactor, actor.status());
  const RequestId id =
      requests_.Add([reactor](core::Reply reply) { Finish(reactor, reply.job.status()); });
  if (!loop_.Push(core::SetSecret{id, request->name(), request->value(), *std::move(actor)})) {
    requests_.Complete({id, ShuttingDown(), false});
  }
  return reactor;
}

grpc::ServerUnaryReactor* ClusterServiceImpl::ListSecrets(grpc::CallbackServerContext* context,
                                                          const v1::ListSecretsRequest* request,
                                                          v1::ListSecretsResponse* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const absl::StatusOr<core::Actor> actor = ActorOf(*context);
  if (!actor.ok()) return Finish(reactor, actor.status());
  return Answer(reactor, [=](core::Core& core, const Time&) -> absl::Status {
    ASSIGN_OR_RETURN(Page page, Page::Open("secrets", request->page_token()));
    *response = core.ListSecrets(*actor);
    page.Keep(*response->mutable_secrets(), [](const v1::ListSecretsResponse::Secret& secret) {
      return secret.owner() + '\0' + secret.name();
    });
    response->set_next_page_token(page.next_token());
    return absl::OkStatus();
  });
}

}  // namespace muster::service
