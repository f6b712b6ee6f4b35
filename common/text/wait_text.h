// Human-readable text of a wait, shared by the coordinator's log, ranks' logs, errors and the CLI.
#ifndef MUSTER_COMMON_TEXT_WAIT_TEXT_H_
#define MUSTER_COMMON_TEXT_WAIT_TEXT_H_

#include <cstddef>
#include <limits>
#include <string>

#include "proto/muster/v1/job.pb.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster {

// "rank 17 (node gpu-03, phase STARTED, pid 4411, last seen 2.1 s ago), rank 18 (...) and 3 more".
// "nothing" if the wait has no missing entries. `most_shown` limits the number of entries.
std::string MissingText(const v1::Wait& wait,
                        size_t most_shown = std::numeric_limits<size_t>::max());

// "barrier world/12 has waited 7.0 s for rank 17 (...)".
std::string WaitText(const v1::Wait& wait, bool timed_out = false,
                     size_t most_shown = std::numeric_limits<size_t>::max());

}  // namespace muster

#endif  // MUSTER_COMMON_TEXT_WAIT_TEXT_H_
