#include "coordinator/service/calls/core_calls.h"

namespace muster::service {

grpc::ServerUnaryReactor* CoreCalls::Query(grpc::CallbackServerContext* context,
                                           const absl::Status& valid, Read read) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  if (!valid.ok()) return Finish(reactor, valid);
  absl::StatusOr<core::Actor> actor = ActorOf(*context);
  if (!actor.ok()) return Finish(reactor, actor.status());
  Query(reactor, *std::move(actor), std::move(read));
  return reactor;
}

void CoreCalls::Query(grpc::ServerUnaryReactor* reactor, core::Actor actor, Read read) {
  const bool queued = loop_.PushQuery([reactor, actor = std::move(actor), read = std::move(read)](
                                          core::Core& core, const Time& now) mutable {
    const absl::Status status = read(core, actor, now);
    return Release([reactor, status] { Finish(reactor, status); });
  });
  if (!queued) Finish(reactor, ShuttingDown());
}

}  // namespace muster::service
