// Why the cells of an experiment differ: what a step consists of, what each device holds, how the
// stages of a pipeline share the work.
#ifndef MUSTER_CLI_EXPERIMENT_DETAILS_H_
#define MUSTER_CLI_EXPERIMENT_DETAILS_H_

#include <string>
#include <vector>

#include "cli/experiment/results.h"

namespace muster::cli {

// Markdown, a section for each of these that some cell's job told; empty when none did.
std::string DetailMarkdown(const std::vector<CellResult>& results);

}  // namespace muster::cli

#endif  // MUSTER_CLI_EXPERIMENT_DETAILS_H_
