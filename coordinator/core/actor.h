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

// Whether the actor may change the job and read its logs, files and environment: its owner and
// admins may. Jobs of older versions, which have no owner, are open to everyone.
inline bool MayUse(const v1::Job& job, const Actor& actor) {
  return actor.is_admin || job.owner().empty() || job.owner() == actor.name;
}

// Errors: PERMISSION_DENIED unless MayUse.
inline absl::Status CheckOwner(const v1::Job& job, const Actor& actor) {
  if (MayUse(job, actor)) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("job ", job.job_id(), " belongs to ", job.owner(), ", and ",
                   actor.name.empty() ? "the caller" : actor.name,
                   " is neither its owner nor an admin"));
}

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_ACTOR_H_
