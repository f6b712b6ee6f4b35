#include "coordinator/service/http/viewer.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/status.h"

namespace muster::service {
namespace {

// Whoever may call this method may view the page.
constexpr char kMethod[] = "/muster.v1.ClusterService/GetJob";

// The name in a Host header, without port and brackets.
absl::string_view HostName(absl::string_view host) {
  if (absl::ConsumePrefix(&host, "[")) return host.substr(0, host.find(']'));
  return host.substr(0, host.find(':'));
}

}  // namespace

absl::Status CheckOrigin(const http::Request& request, bool on_loopback) {
  const absl::string_view site = request.Header("sec-fetch-site");
  if (!site.empty() && site != "same-origin" && site != "none") {
    return absl::PermissionDeniedError(
        "the request comes from another web site; open the status page itself");
  }
  const absl::string_view host = request.Header("host");
  if (on_loopback && !IsLoopback(HostName(host))) {
    return absl::PermissionDeniedError(absl::StrCat(
        "host '", host.substr(0, 64),
        "' is not this machine's loopback address; open http://127.0.0.1 with the port "
        "of --http, or forward that port with ssh -L"));
  }
  return absl::OkStatus();
}

absl::Status Viewer::CheckPrivate(const v1::Job& job) const {
  if (actor.has_value()) return core::CheckOwner(job, *actor);
  return absl::UnauthenticatedError(absl::StrCat(
      "this part of job ", job.job_id(), " requires the token of its owner or of an admin"));
}

absl::StatusOr<Viewer> ViewerCheck::Check(const http::Request& request) {
  RETURN_IF_ERROR(CheckOrigin(request, !needs_token_));
  const absl::string_view token = request.Header("authorization");
  if (token.empty() && !needs_token_) return Viewer();
  Authorizer::Caller caller;
  if (!token.empty()) caller.token = std::string(token);
  RETURN_IF_ERROR(authorizer_.Check(kMethod, caller));
  ASSIGN_OR_RETURN(core::Actor actor, authorizer_.Identify(caller));
  return Viewer{std::move(actor)};
}

}  // namespace muster::service
