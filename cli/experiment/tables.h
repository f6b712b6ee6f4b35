// Formats the results of an experiment as tables and documents.
#ifndef MUSTER_CLI_EXPERIMENT_TABLES_H_
#define MUSTER_CLI_EXPERIMENT_TABLES_H_

#include <string>
#include <vector>

#include "cli/experiment/experiment.h"
#include "cli/experiment/results.h"
#include "nlohmann/json_fwd.hpp"

namespace muster::cli {

// A table for the terminal, one row per cell; omits metrics that no cell has and axes with one
// value. Below it, one line with the reason for each cell that failed or was skipped.
std::string ResultTable(const Experiment& experiment, const std::vector<CellResult>& results);

// The same table as Markdown, with details of the cells and the published results.
std::string ResultMarkdown(const Experiment& experiment, const std::vector<CellResult>& results);

// CSV (RFC 4180 with LF) of all cells and all metrics in base units; missing values are empty.
std::string ResultCsv(const Experiment& experiment, const std::vector<CellResult>& results);

// The document that -o json prints and results.json begins with: name, axes, cells with labels,
// state, reason and metrics, and published results.
nlohmann::ordered_json ResultDocument(const Experiment& experiment,
                                      const std::vector<CellResult>& results);

// "succeeded", "failed", "left out", "pending".
std::string CellStateWord(CellState state);

}  // namespace muster::cli

#endif  // MUSTER_CLI_EXPERIMENT_TABLES_H_
