// The choice of on_cut_off.
#ifndef MUSTER_SPEC_CUT_OFF_H_
#define MUSTER_SPEC_CUT_OFF_H_

#include "proto/muster/v1/job.pb.h"

namespace muster::spec {

// Whether the job's ranks continue on a node that is cut off from the coordinator and from most
// nodes.
inline bool ContinuesWhenCutOff(const v1::JobSpec& spec) {
  return spec.on_cut_off().empty() ? spec.has_train() : spec.on_cut_off() == "continue";
}

}  // namespace muster::spec

#endif  // MUSTER_SPEC_CUT_OFF_H_
