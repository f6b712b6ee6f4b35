// The priority classes that a submitter may choose.
#ifndef MUSTER_COORDINATOR_CORE_OWNERS_PRIORITY_CLASS_H_
#define MUSTER_COORDINATOR_CORE_OWNERS_PRIORITY_CLASS_H_

#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "coordinator/core/scheduler/options.h"

namespace muster::core {

// The rank of a priority class, from 0 for low; that of normal for an empty one. nullopt for an
// unknown class.
std::optional<int> RankOfClass(absl::string_view name);

// Errors: PERMISSION_DENIED beyond the highest class of the role, INVALID_ARGUMENT for an unknown
// class.
absl::Status CheckPriorityClass(absl::string_view name, bool is_admin,
                                const SchedulerOptions& options);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_OWNERS_PRIORITY_CLASS_H_
