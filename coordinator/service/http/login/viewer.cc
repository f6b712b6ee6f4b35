#include "coordinator/service/http/login/viewer.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/http/address.h"
#include "common/random_id.h"
#include "common/status.h"

namespace muster::service {
namespace {

// Whoever may call this method may view the page.
constexpr char kMethod[] = "/muster.v1.ClusterService/GetJob";
// Precedes a code in the header Authorization.
constexpr char kLogin[] = "Login ";

// The name in a Host header, without port and brackets.
absl::string_view HostName(absl::string_view host) {
  if (absl::ConsumePrefix(&host, "[")) return host.substr(0, host.find(']'));
  return host.substr(0, host.find(':'));
}

// Errors: PERMISSION_DENIED for a request that a page of another web site has caused. On loopback,
// this includes a page whose name resolves to the loopback address (DNS rebinding).
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

}  // namespace

ViewerCheck::ViewerCheck(Authorizer& authorizer, PageLogins& logins)
    : on_loopback_(IsLoopback(logins.address.host)),
      cookie_name_(absl::StrCat("muster-", RandomHexId(32))),
      authorizer_(authorizer),
      logins_(logins) {}

absl::Status ViewerCheck::CheckRequest(const http::Request& request) const {
  RETURN_IF_ERROR(CheckOrigin(request, on_loopback_));
  if (!NeedsTls(request)) return absl::OkStatus();
  return absl::PermissionDeniedError("the status page is served over TLS; open its address https:");
}

absl::StatusOr<core::Actor> ViewerCheck::CheckCaller(const Authorizer::Caller& caller) {
  RETURN_IF_ERROR(authorizer_.Check(kMethod, caller));
  return authorizer_.Identify(caller);
}

absl::StatusOr<Authorizer::Caller> ViewerCheck::TakeCode(const http::Request& request,
                                                         absl::string_view code) {
  std::optional<Authorizer::Caller> caller = logins_.codes.Take(code);
  if (caller.has_value()) return *std::move(caller);
  // Checked last: no code can be guessed, so that a valid one is accepted from any address.
  RETURN_IF_ERROR(logins_.failures.Check(request.peer));
  logins_.failures.Add(request.peer);
  return absl::UnauthenticatedError(
      "this login was used or has expired; run `muster page` for another one");
}

absl::StatusOr<Authorizer::Caller> ViewerCheck::CheckToken(const http::Request& request) {
  RETURN_IF_ERROR(logins_.failures.Check(request.peer));
  Authorizer::Caller caller = {.token = std::string(request.Header("authorization")),
                               .browser = true};
  const absl::StatusOr<Authorizer::Identity> identity = authorizer_.Authenticate(caller);
  if (absl::IsUnauthenticated(identity.status())) logins_.failures.Add(request.peer);
  RETURN_IF_ERROR(identity.status());
  return caller;
}

absl::StatusOr<core::Actor> ViewerCheck::Check(const http::Request& request) {
  RETURN_IF_ERROR(CheckRequest(request));
  if (!request.Header("authorization").empty()) {
    ASSIGN_OR_RETURN(const Authorizer::Caller caller, CheckToken(request));
    return CheckCaller(caller);
  }
  const std::string session = SessionOf(request);
  if (const auto caller = logins_.sessions.Find(session); caller.has_value()) {
    absl::StatusOr<core::Actor> viewer = CheckCaller(*caller);
    if (viewer.ok()) return viewer;
    logins_.sessions.Take(session);
  }
  return absl::UnauthenticatedError("sign in with a token, or run `muster page`");
}

absl::StatusOr<std::string> ViewerCheck::SignIn(const http::Request& request) {
  RETURN_IF_ERROR(CheckRequest(request));
  absl::string_view credentials = request.Header("authorization");
  ASSIGN_OR_RETURN(const Authorizer::Caller caller, absl::ConsumePrefix(&credentials, kLogin)
                                                        ? TakeCode(request, credentials)
                                                        : CheckToken(request));
  ASSIGN_OR_RETURN(const core::Actor viewer, CheckCaller(caller));
  return Cookie(request, logins_.sessions.Add(viewer.name, caller), logins_.sessions.validity());
}

absl::StatusOr<std::string> ViewerCheck::SignOut(const http::Request& request) {
  RETURN_IF_ERROR(Check(request).status());
  logins_.sessions.Take(SessionOf(request));
  return Cookie(request, "", absl::ZeroDuration());
}

std::string ViewerCheck::SessionOf(const http::Request& request) const {
  for (absl::string_view cookie : absl::StrSplit(request.Header("cookie"), ';')) {
    cookie = absl::StripLeadingAsciiWhitespace(cookie);
    if (absl::ConsumePrefix(&cookie, cookie_name_) && absl::ConsumePrefix(&cookie, "=")) {
      return std::string(cookie);
    }
  }
  return "";
}

std::string ViewerCheck::Cookie(const http::Request& request, absl::string_view secret,
                                absl::Duration validity) const {
  return absl::StrCat(cookie_name_, "=", secret, "; Path=/api; HttpOnly; SameSite=Strict; Max-Age=",
                      absl::ToInt64Seconds(validity), request.tls ? "; Secure" : "");
}

}  // namespace muster::service
