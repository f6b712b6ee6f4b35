// Runs the jobs of an experiment as an array, one after another or several at a time.
#ifndef MUSTER_CLI_EXPERIMENT_RUNNER_H_
#define MUSTER_CLI_EXPERIMENT_RUNNER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cli/client.h"
#include "cli/context.h"
#include "cli/experiment/cells.h"
#include "cli/experiment/experiment.h"
#include "cli/experiment/results.h"
#include "cli/follow/signals.h"

namespace muster::cli {

struct RunnerOptions {
  bool rerun = false;     // also run cells that have succeeded before
  uint32_t parallel = 1;  // most jobs at a time; at least 1
};

// Runs the cells that have not succeeded yet, with progress on stderr, and writes all results after
// each job. The jobs are submitted at once, as one array for all cells that differ only in values
// of fields, so that they run even if this process ends; the next call then takes them over. A
// failed job is recorded, and the others run. Ctrl-C cancels all jobs; a second Ctrl-C stops
// waiting for their end. Stopping `stopper` also ends the run. Returns the exit code: 1 if a cell
// failed, 130 if interrupted, or that of an error.
int RunCells(Context& context, ClusterClient& client, const Experiment& experiment,
             const std::vector<Cell>& cells, const RunnerOptions& options, RunStore& store,
             Stopper& stopper);

// Writes results.json, results.md and results.csv.
absl::Status WriteResults(const Experiment& experiment, const std::vector<CellResult>& results,
                          const RunStore& store);

}  // namespace muster::cli

#endif  // MUSTER_CLI_EXPERIMENT_RUNNER_H_
