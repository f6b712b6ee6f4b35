// How unary calls reach the core: a call identifies its user, queues a query or an event, and is
// finished when the core's answer is released. No thread waits for an answer.
#ifndef MUSTER_COORDINATOR_SERVICE_CALLS_CORE_CALLS_H_
#define MUSTER_COORDINATOR_SERVICE_CALLS_CORE_CALLS_H_

#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/service/auth/authorizer.h"
#include "coordinator/service/auth/caller.h"
#include "coordinator/service/loop/core_loop.h"
#include "coordinator/service/loop/pending_requests.h"
#include "coordinator/service/loop/unary_call.h"

namespace muster::service {

// Thread-safe. All referenced objects must outlive the server's calls.
class CoreCalls {
 public:
  CoreCalls(CoreLoop& loop, PendingRequests& requests, Authorizer& authorizer)
      : loop_(loop), requests_(requests), authorizer_(authorizer) {}

  // The user of the call. Errors: UNAUTHENTICATED.
  absl::StatusOr<core::Actor> ActorOf(const grpc::CallbackServerContext& context) {
    return authorizer_.Identify(CallerOf(context));
  }

  // Finishes the call with `valid` if that is an error, and otherwise with the result of `read`,
  // which runs on the core thread and fills the response for the actor.
  using Read = absl::AnyInvocable<absl::Status(core::Core&, const core::Actor&, const Time&)>;
  grpc::ServerUnaryReactor* Query(grpc::CallbackServerContext* context, const absl::Status& valid,
                                  Read read);
  // The same for a call whose user has been identified.
  void Query(grpc::ServerUnaryReactor* reactor, core::Actor actor, Read read);

  // Finishes the call with `valid` if that is an error. Otherwise queues the event, with the call's
  // user as its actor if it has one. After an OK reply, the call is finished with the result of
  // `take`, which fills the response.
  using Take = absl::AnyInvocable<absl::Status(core::Reply)>;
  template <typename Event>
  grpc::ServerUnaryReactor* Change(
      grpc::CallbackServerContext* context, const absl::Status& valid, Event event,
      Take take = [](const core::Reply&) { return absl::OkStatus(); }) {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    if (!valid.ok()) return Finish(reactor, valid);
    if constexpr (requires { event.actor; }) {
      absl::StatusOr<core::Actor> actor = ActorOf(*context);
      if (!actor.ok()) return Finish(reactor, actor.status());
      event.actor = *std::move(actor);
    }
    Push(std::move(event), [reactor, take = std::move(take)](core::Reply reply) mutable {
      Finish(reactor, reply.job.ok() ? take(std::move(reply)) : reply.job.status());
    });
    return reactor;
  }

  // Queues the event as a new request. `complete` is called once, with the core's reply or with
  // UNAVAILABLE when the coordinator is shutting down.
  template <typename Event>
  void Push(Event event, PendingRequests::Callback complete) {
    const RequestId id = requests_.Add(std::move(complete));
    event.request = id;
    if (!loop_.Push(std::move(event))) requests_.Complete({id, ShuttingDown()});
  }

 private:
  CoreLoop& loop_;
  PendingRequests& requests_;
  Authorizer& authorizer_;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_CALLS_CORE_CALLS_H_
