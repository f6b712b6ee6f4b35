#include "coordinator/service/calls/identity_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/proto_time.h"
#include "common/random_id.h"
#include "common/security/certificate.h"
#include "common/sha256.h"
#include "common/status.h"
#include "coordinator/service/auth/caller.h"
#include "coordinator/service/calls/page.h"
#include "coordinator/service/checks/validate.h"
#include "coordinator/service/loop/unary_call.h"

namespace muster::service {
namespace {

// Without letters that look like digits. 26 characters have 130 bits.
constexpr char kAlphabet[] = "0123456789abcdefghjkmnpqrstvwxyz";
constexpr size_t kIdLength = 6;
constexpr size_t kSecretLength = 26;

absl::Status NoAuthority() {
  return absl::FailedPreconditionError(
      "this coordinator does not issue certificates: it was started without --ca-key; see muster "
      "cluster init");
}

}  // namespace

template <typename Event>
grpc::ServerUnaryReactor* IdentityServiceImpl::Ask(grpc::ServerUnaryReactor* reactor, Event event,
                                                   absl::AnyInvocable<absl::Status()> finish) {
  event.request = requests_.Add([reactor, finish = std::move(finish)](core::Reply reply) mutable {
    Finish(reactor, reply.job.ok() ? finish() : reply.job.status());
  });
  const RequestId id = event.request;
  if (!loop_.Push(std::move(event))) requests_.Complete({id, ShuttingDown(), false});
  return reactor;
}

absl::StatusOr<std::string> IdentityServiceImpl::Sign(const Issue& issue) const {
  return authority_->Issue(issue.public_key,
                           {issue.node,
                            {security::kNodeHost},
                            security::NodeUri(issue.node, issue.machine_id),
                            security::Usage::kBoth},
                           issue.serial, security::ValidFor(validity_, clock_().wall));
}

grpc::ServerUnaryReactor* IdentityServiceImpl::EnrollNode(grpc::CallbackServerContext* context,
                                                          const v1::EnrollNodeRequest* request,
                                                          v1::EnrollNodeResponse* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  if (!authority_.has_value()) return Finish(reactor, NoAuthority());
  const absl::Status valid = ValidateEnrollNode(*request);
  if (!valid.ok()) return Finish(reactor, valid);
  absl::StatusOr<std::string> key = security::PublicKeyOfRequest(request->certificate_request());
  if (!key.ok()) return Finish(reactor, key.status());
  Issue issue{*std::move(key), request->node_name(), request->machine_id()};
  core::EnrollNode event{RequestId(),          Sha256Hex(request->token()),
                         NodeName(issue.node), issue.machine_id,
                         issue.serial,         clock_().wall + validity_};
  return Ask(reactor, std::move(event),
             [this, issue = std::move(issue), response]() -> absl::Status {
               ASSIGN_OR_RETURN(*response->mutable_certificate_chain(), Sign(issue));
               return absl::OkStatus();
             });
}

grpc::ServerUnaryReactor* IdentityServiceImpl::RenewCertificate(
    grpc::CallbackServerContext* context, const v1::RenewCertificateRequest* /*request*/,
    v1::RenewCertificateResponse* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  if (!authority_.has_value()) return Finish(reactor, NoAuthority());
  const Authorizer::Caller caller = CallerOf(*context);
  const std::optional<security::NodeCertificate> current = caller.node();
  if (!current.has_value()) {
    return Finish(reactor, absl::PermissionDeniedError(
                               "the client has not presented the certificate of a node"));
  }
  Issue issue{caller.certificate->public_key, current->node, current->machine_id};
  core::RenewNode event{RequestId(), *current, issue.serial, clock_().wall + validity_};
  return Ask(reactor, std::move(event),
             [this, issue = std::move(issue), response]() -> absl::Status {
               ASSIGN_OR_RETURN(*response->mutable_certificate_chain(), Sign(issue));
               return absl::OkStatus();
             });
}

grpc::ServerUnaryReactor* IdentityServiceImpl::CreateJoinToken(
    grpc::CallbackServerContext* context, const v1::CreateJoinTokenRequest* request,
    v1::CreateJoinTokenResponse* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  if (!authority_.has_value()) return Finish(reactor, NoAuthority());
  const absl::Status valid = ValidateCreateJoinToken(*request, clock_().wall);
  if (!valid.ok()) return Finish(reactor, valid);
  absl::StatusOr<core::Actor> actor = authorizer_.Identify(CallerOf(*context));
  if (!actor.ok()) return Finish(reactor, actor.status());
  response->set_secret(RandomId(kSecretLength, kAlphabet));
  response->set_ca_pin(authority_->pin());
  v1::JoinToken& token = *response->mutable_token();
  token.set_id(RandomId(kIdLength, kAlphabet));
  *token.mutable_expire_time() = request->expire_time();
  token.set_uses_left(request->uses());
  token.set_node(request->node());
  token.set_created_by(actor->name);
  return Ask(reactor,
             core::CreateJoinToken{RequestId(), token.id(), Sha256Hex(response->secret()),
                                   FromProto(request->expire_time()), request->uses(),
                                   NodeName(request->node()), *std::move(actor)},
             [] { return absl::OkStatus(); });
}

grpc::ServerUnaryReactor* IdentityServiceImpl::ListJoinTokens(
    grpc::CallbackServerContext* context, const v1::ListJoinTokensRequest* request,
    v1::ListJoinTokensResponse* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const absl::StatusOr<Page> page = Page::Open("tokens", request->page_token());
  if (!page.ok()) return Finish(reactor, page.status());
  const bool queued = loop_.PushQuery([=](core::Core& core, const Time& now) {
    Page kept = *page;
    *response = core.ListJoinTokens(now);
    kept.Keep(*response->mutable_tokens(), [](const v1::JoinToken& token) { return token.id(); });
    response->set_next_page_token(kept.next_token());
    return Release([reactor] { Finish(reactor, absl::OkStatus()); });
  });
  return queued ? reactor : Finish(reactor, ShuttingDown());
}

grpc::ServerUnaryReactor* IdentityServiceImpl::RevokeJoinToken(
    grpc::CallbackServerContext* context, const v1::RevokeJoinTokenRequest* request,
    v1::RevokeJoinTokenResponse* /*response*/) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  absl::StatusOr<core::Actor> actor = authorizer_.Identify(CallerOf(*context));
  if (!actor.ok()) return Finish(reactor, actor.status());
  return Ask(reactor, core::RevokeJoinToken{RequestId(), request->id(), *std::move(actor)},
             [] { return absl::OkStatus(); });
}

}  // namespace muster::service
