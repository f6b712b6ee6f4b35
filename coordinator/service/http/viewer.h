// Decides what the sender of an HTTP request may see.
#ifndef MUSTER_COORDINATOR_SERVICE_HTTP_VIEWER_H_
#define MUSTER_COORDINATOR_SERVICE_HTTP_VIEWER_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/http/message.h"
#include "coordinator/core/actor.h"
#include "coordinator/service/authorizer.h"
#include "coordinator/service/http/page_logins.h"

namespace muster::service {

// The user who has signed in; none without a sign-in, which is possible on loopback only.
struct Viewer {
  std::optional<core::Actor> actor;

  // Whether the viewer may read the job's logs, command and environment. Errors: UNAUTHENTICATED
  // without a token, PERMISSION_DENIED unless it is the owner's or an admin's.
  absl::Status CheckPrivate(const v1::Job& job) const;
  bool operator==(const Viewer& other) const;
};

// Thread-safe.
class ViewerCheck {
 public:
  // `logins` has the address of the HTTP server. Both must outlive this object.
  ViewerCheck(Authorizer& authorizer, PageLogins& logins);

  // The viewer by the request's token, otherwise by its session.
  // Errors: PERMISSION_DENIED for a request that another web site has caused, UNAUTHENTICATED
  // for a wrong token and without a sign-in where one is needed, PERMISSION_DENIED if the viewer's
  // role may not view jobs, RESOURCE_EXHAUSTED after too many wrong tokens.
  absl::StatusOr<Viewer> Check(const http::Request& request);

  // Opens a session for the token or, as "Login CODE", the code of `muster page` in the request's
  // header Authorization. Returns the value of Set-Cookie. Errors: those of Check; UNAUTHENTICATED
  // for a code that is unknown, has expired or was used.
  absl::StatusOr<std::string> SignIn(const http::Request& request);
  // Ends the request's session. Returns the value of Set-Cookie. Errors: those of CheckOrigin.
  absl::StatusOr<std::string> SignOut(const http::Request& request);

  // Whether the server beyond loopback has received a request in plaintext though it serves TLS.
  bool NeedsTls(const http::Request& request) const {
    return logins_.tls && needs_token_ && !request.tls;
  }

  // A server beyond loopback requires a token; one on loopback trusts the users of its machine with
  // what a token of role view shows.
  bool needs_token() const { return needs_token_; }

 private:
  // Errors: PERMISSION_DENIED for requests that are refused whoever has sent them.
  absl::Status CheckRequest(const http::Request& request) const;
  absl::StatusOr<Authorizer::Caller> TakeCode(const http::Request& request, absl::string_view code);
  absl::StatusOr<Authorizer::Caller> CheckToken(const http::Request& request);
  absl::StatusOr<Viewer> CheckCaller(const Authorizer::Caller& caller);
  // The secret in the cookie of the request's session; empty if it has none.
  std::string SessionOf(const http::Request& request) const;
  std::string Cookie(const http::Request& request, absl::string_view secret,
                     absl::Duration validity) const;

  const bool needs_token_;
  // Random, because browsers share cookies among all ports of a host.
  const std::string cookie_name_;
  Authorizer& authorizer_;
  PageLogins& logins_;
};

// Errors: PERMISSION_DENIED for a request that a page of another web site has caused. On loopback,
// this includes a page whose name resolves to the loopback address (DNS rebinding).
absl::Status CheckOrigin(const http::Request& request, bool on_loopback);

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_HTTP_VIEWER_H_
