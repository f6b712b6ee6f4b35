// Removes from jobs, events and nodes what only a job's owner and admins may see.
//
// Others see a job's state and reason, which ranks and nodes failed and how, its resources,
// progress and results. Every other text is private, also that of a field that is added later:
// commands, paths, environments and what programs print or report.
#ifndef MUSTER_COORDINATOR_CORE_OWNERS_VISIBILITY_H_
#define MUSTER_COORDINATOR_CORE_OWNERS_VISIBILITY_H_

#include <memory>

#include "absl/types/span.h"
#include "coordinator/core/actor.h"
#include "proto/muster/v1/job.pb.h"
#include "proto/muster/v1/node.pb.h"

namespace muster::core {

// The text fields that everybody may see: "Job.owner".
absl::Span<const char* const> PublicTexts();

// Removes what is private, and replaces messages by their public parts: "rank 1 on node-2 exited
// with code 1". Sets private_hidden if there was anything. A job that is shared keeps its spec
// without the environment, and the place of its checkpoints.
void RemovePrivate(v1::Job& job);
void RemovePrivate(v1::JobEvent& event);

// The same, unless the actor may use the job (see actor.h).
void HidePrivate(const Actor& actor, v1::Job& job);
// Leaves the error of a node's failed launch, which may name commands and paths, to admins. The
// owner of the job finds it in the job's first failure.
void HidePrivate(const Actor& actor, v1::Node& node);

// The job as the actor may see it; the same object if it may see everything.
std::shared_ptr<const v1::Job> VisibleTo(const Actor& actor, std::shared_ptr<const v1::Job> job);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_OWNERS_VISIBILITY_H_
