// Formats what a job waits for.
#ifndef MUSTER_CLI_TEXT_BLOCKER_TEXT_H_
#define MUSTER_CLI_TEXT_BLOCKER_TEXT_H_

#include <string>

#include "proto/muster/v1/job.pb.h"

namespace muster::cli {

// "  rank 3 on node-2: phase STARTED, pid 4411, last seen 2.1 s ago", and on a further line what
// would remove it, if anything: "    -> muster node uncordon gpu-3". Ends with a newline.
std::string BlockerLines(const v1::WaitedFor& blocker);

}  // namespace muster::cli

#endif  // MUSTER_CLI_TEXT_BLOCKER_TEXT_H_
