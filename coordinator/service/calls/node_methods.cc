// ClusterService: methods about nodes.
#include <string>
#include <utility>

#include "common/status.h"
#include "common/time/proto_time.h"
#include "coordinator/core/owners/visibility.h"
#include "coordinator/core/scheduler/placement/natural_order.h"
#include "coordinator/service/calls/cluster_service.h"
#include "coordinator/service/calls/page.h"
#include "coordinator/service/checks/validate.h"

namespace muster::service {
namespace {

// Fills the response with the node.
CoreCalls::Read NodeInto(v1::Node* response, const std::string& name) {
  return [=](core::Core& core, const core::Actor& actor, const Time& now) -> absl::Status {
    ASSIGN_OR_RETURN(*response, core.GetNode(NodeName(name), now));
    core::HidePrivate(actor, *response);
    return absl::OkStatus();
  };
}

}  // namespace

grpc::ServerUnaryReactor* ClusterServiceImpl::ListNodes(grpc::CallbackServerContext* context,
                                                        const v1::ListNodesRequest* request,
                                                        v1::ListNodesResponse* response) {
  return calls_.Query(
      context, absl::OkStatus(),
      [=](core::Core& core, const core::Actor& actor, const Time& now) -> absl::Status {
        ASSIGN_OR_RETURN(Page page, Page::Open("nodes", request->page_token()));
        for (v1::Node& node : core.ListNodes(now)) *response->add_nodes() = std::move(node);
        page.Keep(
            *response->mutable_nodes(), [](const v1::Node& node) { return node.name(); },
            core::NaturalLess);
        for (v1::Node& node : *response->mutable_nodes()) core::HidePrivate(actor, node);
        response->set_next_page_token(page.next_token());
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* ClusterServiceImpl::GetNode(grpc::CallbackServerContext* context,
                                                      const v1::GetNodeRequest* request,
                                                      v1::Node* response) {
  return calls_.Query(context, ValidateNodeName(request->name()),
                      NodeInto(response, request->name()));
}

grpc::ServerUnaryReactor* ClusterServiceImpl::ChangeNode(grpc::CallbackServerContext* context,
                                                         const absl::Status& valid,
                                                         core::Event event, const std::string& node,
                                                         v1::Node* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  if (!valid.ok()) return Finish(reactor, valid);
  const absl::StatusOr<core::Actor> actor = calls_.ActorOf(*context);
  if (!actor.ok()) return Finish(reactor, actor.status());
  if (!loop_.Push(std::move(event))) return Finish(reactor, ShuttingDown());
  // The query is queued behind the event, and its answer is released once the event's writes are on
  // disk.
  calls_.Query(reactor, *actor, NodeInto(response, node));
  return reactor;
}

grpc::ServerUnaryReactor* ClusterServiceImpl::CordonNode(grpc::CallbackServerContext* context,
                                                         const v1::CordonNodeRequest* request,
                                                         v1::Node* response) {
  return ChangeNode(context, ValidateCordon(request->name(), request->reason()),
                    core::CordonNode{NodeName(request->name()), request->reason()}, request->name(),
                    response);
}

grpc::ServerUnaryReactor* ClusterServiceImpl::UncordonNode(grpc::CallbackServerContext* context,
                                                           const v1::UncordonNodeRequest* request,
                                                           v1::Node* response) {
  return ChangeNode(context, ValidateNodeName(request->name()),
                    core::UncordonNode{NodeName(request->name())}, request->name(), response);
}

grpc::ServerUnaryReactor* ClusterServiceImpl::DrainNode(grpc::CallbackServerContext* context,
                                                        const v1::DrainNodeRequest* request,
                                                        v1::Node* response) {
  core::CordonNode drain{NodeName(request->name()), request->reason(), /*drain=*/true};
  if (request->has_deadline()) drain.deadline = FromProto(request->deadline());
  return ChangeNode(context, ValidateDrain(*request), std::move(drain), request->name(), response);
}

grpc::ServerUnaryReactor* ClusterServiceImpl::TestNode(grpc::CallbackServerContext* context,
                                                       const v1::TestNodeRequest* request,
                                                       v1::Node* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const absl::Status valid = ValidateNodeName(request->name());
  if (!valid.ok()) return Finish(reactor, valid);
  const absl::StatusOr<core::Actor> actor = calls_.ActorOf(*context);
  if (!actor.ok()) return Finish(reactor, actor.status());
  calls_.Push(core::TestNode{.node = NodeName(request->name())}, [=, this](core::Reply reply) {
    if (reply.job.ok()) {
      calls_.Query(reactor, *actor, NodeInto(response, request->name()));
    } else {
      Finish(reactor, reply.job.status());
    }
  });
  return reactor;
}

grpc::ServerUnaryReactor* ClusterServiceImpl::RemoveNode(grpc::CallbackServerContext* context,
                                                         const v1::RemoveNodeRequest* request,
                                                         v1::RemoveNodeResponse* /*response*/) {
  return calls_.Change(
      context, ValidateNodeName(request->name()),
      core::RemoveNode{.node = NodeName(request->name()), .force = request->force()});
}

grpc::ServerUnaryReactor* ClusterServiceImpl::ConfirmNodeLost(
    grpc::CallbackServerContext* context, const v1::ConfirmNodeLostRequest* request,
    v1::ConfirmNodeLostResponse* /*response*/) {
  return calls_.Change(context, ValidateNodeName(request->name()),
                       core::ConfirmNodeLost{.node = NodeName(request->name())});
}

grpc::ServerUnaryReactor* ClusterServiceImpl::RecoverJobs(grpc::CallbackServerContext* context,
                                                          const v1::RecoverJobsRequest* request,
                                                          v1::RecoverJobsResponse* response) {
  core::RecoverJobs event{.discard = request->discard()};
  absl::Status valid;
  for (const std::string& name : request->nodes()) {
    valid.Update(ValidateNodeName(name));
    event.nodes.emplace_back(name);
  }
  return calls_.Change(context, valid, std::move(event), [response](core::Reply reply) {
    *response = std::move(reply.recovered);
    return absl::OkStatus();
  });
}

}  // namespace muster::service
