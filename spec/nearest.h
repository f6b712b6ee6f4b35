// The functions of common/nearest.h by their former names.
#ifndef MUSTER_SPEC_NEAREST_H_
#define MUSTER_SPEC_NEAREST_H_

#include "common/nearest.h"

namespace muster::spec {

using muster::EditDistance;
using muster::Nearest;
using muster::Quoted;

}  // namespace muster::spec

#endif  // MUSTER_SPEC_NEAREST_H_
