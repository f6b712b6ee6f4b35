// Decides what the sender of an HTTP request may see.
#ifndef MUSTER_COORDINATOR_SERVICE_HTTP_VIEWER_H_
#define MUSTER_COORDINATOR_SERVICE_HTTP_VIEWER_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/http/address.h"
#include "common/http/message.h"
#include "coordinator/core/actor.h"
#include "coordinator/service/authorizer.h"

namespace muster::service {

// The user of the token in the request; none if it has no token, which is possible on loopback
// only.
struct Viewer {
  std::optional<core::Actor> actor;

  // Whether the viewer may read the job's logs, command and environment. Errors: UNAUTHENTICATED
  // without a token, PERMISSION_DENIED unless it is the owner's or an admin's.
  absl::Status CheckPrivate(const v1::Job& job) const;
};

// Thread-safe.
class ViewerCheck {
 public:
  // `listen` is the address of the HTTP server.
  ViewerCheck(const Address& listen, Authorizer& authorizer)
      : needs_token_(!IsLoopback(listen.host)), authorizer_(authorizer) {}

  // Errors: PERMISSION_DENIED for a request that another web site has caused, UNAUTHENTICATED
  // without a valid token where one is needed, PERMISSION_DENIED if its role may not view jobs.
  absl::StatusOr<Viewer> Check(const http::Request& request);

  // A server beyond loopback requires a token; one on loopback trusts the users of its machine with
  // what a token of role view shows.
  bool needs_token() const { return needs_token_; }

 private:
  const bool needs_token_;
  Authorizer& authorizer_;
};

// Errors: PERMISSION_DENIED for a request that a page of another web site has caused. On loopback,
// this includes a page whose name resolves to the loopback address (DNS rebinding).
absl::Status CheckOrigin(const http::Request& request, bool on_loopback);

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_HTTP_VIEWER_H_
