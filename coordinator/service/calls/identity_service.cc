#include "coordinator/service/calls/identity_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/random_id.h"
#include "common/security/certificate.h"
#include "common/sha256.h"
#include "common/status.h"
#include "common/time/proto_time.h"
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
  return calls_.Change(context, absl::OkStatus(), std::move(event),
                       [this, issue = std::move(issue), response](auto&&) -> absl::Status {
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
  return calls_.Change(context, absl::OkStatus(), std::move(event),
                       [this, issue = std::move(issue), response](auto&&) -> absl::Status {
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
  absl::StatusOr<core::Actor> actor = calls_.ActorOf(*context);
  if (!actor.ok()) return Finish(reactor, actor.status());
  response->set_secret(RandomId(kSecretLength, kAlphabet));
  response->set_ca_pin(authority_->pin());
  v1::JoinToken& token = *response->mutable_token();
  token.set_id(RandomId(kIdLength, kAlphabet));
  *token.mutable_expire_time() = request->expire_time();
  token.set_uses_left(request->uses());
  token.set_node(request->node());
  token.set_created_by(actor->name);
  return calls_.Change(context, absl::OkStatus(),
                       core::CreateJoinToken{RequestId(), token.id(), Sha256Hex(response->secret()),
                                             FromProto(request->expire_time()), request->uses(),
                                             NodeName(request->node())});
}

grpc::ServerUnaryReactor* IdentityServiceImpl::ListJoinTokens(
    grpc::CallbackServerContext* context, const v1::ListJoinTokensRequest* request,
    v1::ListJoinTokensResponse* response) {
  return calls_.Query(
      context, absl::OkStatus(),
      [=](core::Core& core, const core::Actor& /*actor*/, const Time& now) -> absl::Status {
        ASSIGN_OR_RETURN(Page page, Page::Open("tokens", request->page_token()));
        *response = core.ListJoinTokens(now);
        page.Keep(*response->mutable_tokens(),
                  [](const v1::JoinToken& token) { return token.id(); });
        response->set_next_page_token(page.next_token());
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* IdentityServiceImpl::RevokeJoinToken(
    grpc::CallbackServerContext* context, const v1::RevokeJoinTokenRequest* request,
    v1::RevokeJoinTokenResponse* /*response*/) {
  return calls_.Change(context, absl::OkStatus(), core::RevokeJoinToken{.id = request->id()});
}

}  // namespace muster::service
