#include "cli/identity/identity_client.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cli/pages.h"
#include "common/grpc_channel.h"
#include "common/grpc_deadline.h"
#include "common/grpc_status.h"
#include "grpcpp/grpcpp.h"

namespace muster::cli {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(10);

}  // namespace

IdentityClient::IdentityClient(std::string address, security::ClientSecurity security)
    : address_(std::move(address)),
      security_(std::move(security)),
      stub_(v1::IdentityService::NewStub(OpenChannel(address_, {}, security_))) {}

template <typename Request, typename Response>
absl::StatusOr<Response> IdentityClient::Call(grpc::Status (v1::IdentityService::Stub::*method)(
                                                  grpc::ClientContext*, const Request&, Response*),
                                              const Request& request) {
  grpc::ClientContext context;
  context.set_deadline(GrpcDeadline(kTimeout));
  Response response;
  const absl::Status status = FromGrpcStatus((*stub_.*method)(&context, request, &response));
  if (status.ok()) return response;
  if (absl::IsUnavailable(status)) {
    // gRPC does not say why TLS failed.
    const absl::Status reason = Explain(status, security_, address_);
    if (!absl::IsUnavailable(reason)) return reason;
    const std::string message(status.message());
    const size_t cause = message.rfind(": ");
    return absl::UnavailableError(
        absl::StrCat("no coordinator at ", address_, ": ",
                     cause == std::string::npos ? message : message.substr(cause + 2)));
  }
  if (absl::IsUnimplemented(status)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the coordinator at ", address_, " is of a version that has no identities of nodes"));
  }
  return status;
}

absl::StatusOr<v1::EnrollNodeResponse> IdentityClient::EnrollNode(
    const v1::EnrollNodeRequest& request) {
  // The coordinator's reason is about the join token, not about an access token.
  return Call(&v1::IdentityService::Stub::EnrollNode, request);
}

absl::StatusOr<v1::CreateJoinTokenResponse> IdentityClient::CreateJoinToken(
    const v1::CreateJoinTokenRequest& request) {
  auto response = Call(&v1::IdentityService::Stub::CreateJoinToken, request);
  if (!response.ok()) return Explain(response.status(), security_, address_);
  return response;
}

absl::StatusOr<v1::ListJoinTokensResponse> IdentityClient::ListJoinTokens() {
  auto response = ReadPages(
      v1::ListJoinTokensRequest(),
      [this](const v1::ListJoinTokensRequest& request) {
        return Call(&v1::IdentityService::Stub::ListJoinTokens, request);
      },
      [](const v1::ListJoinTokensResponse& page, v1::ListJoinTokensResponse& all) {
        all.mutable_tokens()->MergeFrom(page.tokens());
      });
  if (!response.ok()) return Explain(response.status(), security_, address_);
  return response;
}

absl::Status IdentityClient::RevokeJoinToken(const std::string& id) {
  v1::RevokeJoinTokenRequest request;
  request.set_id(id);
  const absl::Status status = Call(&v1::IdentityService::Stub::RevokeJoinToken, request).status();
  return status.ok() ? status : Explain(status, security_, address_);
}

}  // namespace muster::cli
