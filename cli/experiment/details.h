// Tables that explain why the cells of an experiment differ: phases of a step, memory per device,
// and pipeline stages.
#ifndef MUSTER_CLI_EXPERIMENT_DETAILS_H_
#define MUSTER_CLI_EXPERIMENT_DETAILS_H_

#include <string>
#include <vector>

#include "cli/experiment/results.h"

namespace muster::cli {

// Markdown with a section per table; empty if no cell's job reported such data.
std::string DetailMarkdown(const std::vector<CellResult>& results);

}  // namespace muster::cli

#endif  // MUSTER_CLI_EXPERIMENT_DETAILS_H_
