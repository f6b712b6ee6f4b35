// The user on whose behalf a request is made.
#ifndef MUSTER_COORDINATOR_CORE_ACTOR_H_
#define MUSTER_COORDINATOR_CORE_ACTOR_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::core {

struct Actor {
  std::string name;  // of the token; empty if calls need none, in tests
  bool is_admin = false;
};

// "cancelled by alice"; "cancelled by user" for an actor without a name.
inline std::string DoneBy(absl::string_view what, const Actor& actor) {
  return absl::StrCat(what, " by ", actor.name.empty() ? "user" : actor.name);
}

// Checks that the actor is the job's owner or an admin. Jobs of older versions, which have no owner,
// are open to everyone. Errors: PERMISSION_DENIED.
inline absl::Status CheckOwner(const v1::Job& job, const Actor& actor) {
  if (actor.is_admin || job.owner().empty() || job.owner() == actor.name) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("job ", job.job_id(), " belongs to ", job.owner()));
}

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_ACTOR_H_
