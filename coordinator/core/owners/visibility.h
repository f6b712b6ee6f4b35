// Removes from a job what only its owner and admins may see.
#ifndef MUSTER_COORDINATOR_CORE_OWNERS_VISIBILITY_H_
#define MUSTER_COORDINATOR_CORE_OWNERS_VISIBILITY_H_

#include <memory>

#include "coordinator/core/actor.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::core {

// Unless the actor may use the job (see actor.h): removes the values of its environment variables,
// and sets environment_hidden if there are any; removes the ends of the ranks' logs.
void HidePrivate(const Actor& actor, v1::Job& job);

// The job as the actor may see it; the same object if it may see everything.
std::shared_ptr<const v1::Job> VisibleTo(const Actor& actor, std::shared_ptr<const v1::Job> job);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_OWNERS_VISIBILITY_H_
