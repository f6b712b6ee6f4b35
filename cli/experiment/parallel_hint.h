// Tells the user of `muster experiment` when --parallel would use idle slots.
#ifndef MUSTER_CLI_EXPERIMENT_PARALLEL_HINT_H_
#define MUSTER_CLI_EXPERIMENT_PARALLEL_HINT_H_

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "cli/experiment/cells.h"
#include "proto/muster/v1/node.pb.h"

namespace muster::cli {

// "4 slots are free: --parallel 4 runs up to 4 jobs at a time; their times are then not
// comparable". Empty if the free slots hold only one job of the experiment, or if there is only
// one.
std::string ParallelHint(const std::vector<Cell>& cells, absl::Span<const v1::Node> nodes);

}  // namespace muster::cli

#endif  // MUSTER_CLI_EXPERIMENT_PARALLEL_HINT_H_
