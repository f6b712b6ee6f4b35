// Natural sort order of names.
#ifndef MUSTER_COORDINATOR_CORE_SCHEDULER_PLACEMENT_NATURAL_ORDER_H_
#define MUSTER_COORDINATOR_CORE_SCHEDULER_PLACEMENT_NATURAL_ORDER_H_

#include "absl/strings/string_view.h"

namespace muster::core {

// Whether `a` sorts before `b`, where numbers within names compare as numbers: node-2 comes before
// node-10. A strict weak ordering.
bool NaturalLess(absl::string_view a, absl::string_view b);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_SCHEDULER_PLACEMENT_NATURAL_ORDER_H_
