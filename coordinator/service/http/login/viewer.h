// Identifies the user who has sent an HTTP request to the status page.
#ifndef MUSTER_COORDINATOR_SERVICE_HTTP_LOGIN_VIEWER_H_
#define MUSTER_COORDINATOR_SERVICE_HTTP_LOGIN_VIEWER_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/http/message.h"
#include "coordinator/core/actor.h"
#include "coordinator/service/auth/authorizer.h"
#include "coordinator/service/http/login/page_logins.h"

namespace muster::service {

// Thread-safe.
class ViewerCheck {
 public:
  // `logins` has the address of the HTTP server. Both must outlive this object.
  ViewerCheck(Authorizer& authorizer, PageLogins& logins);

  // The user by the request's token, otherwise by its session. Errors: those of CheckRequest;
  // UNAUTHENTICATED for a wrong token and without a sign-in, PERMISSION_DENIED if the user's role
  // may not view jobs, RESOURCE_EXHAUSTED after too many wrong tokens.
  absl::StatusOr<core::Actor> Check(const http::Request& request);
  // Errors: PERMISSION_DENIED for requests that are refused whoever has sent them: those that
  // another web site has caused, and in plaintext if NeedsTls.
  absl::Status CheckRequest(const http::Request& request) const;

  // Opens a session for the token or, as "Login CODE", the code of `muster page` in the request's
  // header Authorization. Returns the value of Set-Cookie. Errors: those of Check; UNAUTHENTICATED
  // for a code that is unknown, has expired or was used.
  absl::StatusOr<std::string> SignIn(const http::Request& request);
  // Ends the request's session. Returns the value of Set-Cookie. Errors: those of Check.
  absl::StatusOr<std::string> SignOut(const http::Request& request);

  // Whether the server beyond loopback has received a request in plaintext though it serves TLS.
  bool NeedsTls(const http::Request& request) const {
    return logins_.tls && !on_loopback_ && !request.tls;
  }

 private:
  absl::StatusOr<Authorizer::Caller> TakeCode(const http::Request& request, absl::string_view code);
  absl::StatusOr<Authorizer::Caller> CheckToken(const http::Request& request);
  absl::StatusOr<core::Actor> CheckCaller(const Authorizer::Caller& caller);
  // The secret in the cookie of the request's session; empty if it has none.
  std::string SessionOf(const http::Request& request) const;
  std::string Cookie(const http::Request& request, absl::string_view secret,
                     absl::Duration validity) const;

  const bool on_loopback_;
  // Random, because browsers share cookies among all ports of a host.
  const std::string cookie_name_;
  Authorizer& authorizer_;
  PageLogins& logins_;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_HTTP_LOGIN_VIEWER_H_
