// Human-readable text of the phase that a rank is in.
#ifndef MUSTER_COMMON_TEXT_PHASE_TEXT_H_
#define MUSTER_COMMON_TEXT_PHASE_TEXT_H_

#include <string>

#include "proto/muster/v1/job.pb.h"

namespace muster {

// "training", or with a counter of the phase's work, once it is not 0, "loading-data: 120,000 files
// indexed". Empty without a phase.
std::string PhaseText(const v1::Progress& progress);

}  // namespace muster

#endif  // MUSTER_COMMON_TEXT_PHASE_TEXT_H_
