// The results of an experiment as tables and documents.
#ifndef MUSTER_CLI_EXPERIMENT_TABLES_H_
#define MUSTER_CLI_EXPERIMENT_TABLES_H_

#include <string>
#include <vector>

#include "cli/experiment/experiment.h"
#include "cli/experiment/results.h"
#include "nlohmann/json_fwd.hpp"

namespace muster::cli {

// For the terminal: a row for each cell; metrics that no cell has, and axes with one value, are
// left out. Under it, a line for each cell that failed or was left out, with its reason.
std::string ResultTable(const Experiment& experiment, const std::vector<CellResult>& results);

// The same as Markdown, with the plots' files, and what others found.
std::string ResultMarkdown(const Experiment& experiment, const std::vector<CellResult>& results,
                           const std::vector<std::string>& plots);

// RFC 4180 with LF: all cells and all metrics, in base units; empty where there is none.
std::string ResultCsv(const Experiment& experiment, const std::vector<CellResult>& results);

// What -o json prints, and results.json begins with: name, axes, cells with labels, state, reason,
// metrics; found.
nlohmann::ordered_json ResultDocument(const Experiment& experiment,
                                      const std::vector<CellResult>& results);

// "succeeded", "failed", "left out", "pending".
std::string CellStateWord(CellState state);

}  // namespace muster::cli

#endif  // MUSTER_CLI_EXPERIMENT_TABLES_H_
