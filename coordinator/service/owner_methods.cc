// ClusterService: methods about owners of jobs.
#include <utility>

#include "common/status.h"
#include "coordinator/service/cluster_service.h"
#include "coordinator/service/unary_call.h"
#include "coordinator/service/validate.h"

namespace muster::service {
namespace {

constexpr uint32_t kDefaultReportDays = 7;

}  // namespace

grpc::ServerUnaryReactor* ClusterServiceImpl::GetReport(grpc::CallbackServerContext* context,
                                                        const v1::GetReportRequest* request,
                                                        v1::GetReportResponse* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const absl::Status valid = ValidateGetReport(*request);
  if (!valid.ok()) return Finish(reactor, valid);
  const uint32_t days = request->days() == 0 ? kDefaultReportDays : request->days();
  return Answer(reactor, [=](core::Core& core, const Time& now) {
    *response = core.GetReport(days, now);
    return CheckSize(*response);
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
                                                          const v1::ListSecretsRequest* /*request*/,
                                                          v1::ListSecretsResponse* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const absl::StatusOr<core::Actor> actor = ActorOf(*context);
  if (!actor.ok()) return Finish(reactor, actor.status());
  return Answer(reactor, [=](core::Core& core, const Time&) {
    *response = core.ListSecrets(*actor);
    return CheckSize(*response);
  });
}

}  // namespace muster::service
