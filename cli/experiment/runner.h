// Runs the jobs of an experiment, one after the other.
#ifndef MUSTER_CLI_EXPERIMENT_RUNNER_H_
#define MUSTER_CLI_EXPERIMENT_RUNNER_H_

#include <string>
#include <vector>

#include "cli/client.h"
#include "cli/context.h"
#include "cli/experiment/cells.h"
#include "cli/experiment/experiment.h"
#include "cli/experiment/results.h"
#include "cli/follow/stopper.h"

namespace muster::cli {

struct RunnerOptions {
  bool rerun = false;  // cells that succeeded before, too
};

// Runs what has not succeeded yet, with progress on stderr, and writes all results after each job.
// A job that fails is noted, and the next one runs. A job that a killed process left behind is
// found again. Ctrl-C cancels the job that runs, and no other one is started; a second one stops
// waiting for its end. Stopping `stopper` ends it, too. Returns the exit status: 1 when some cell
// failed, 130 when interrupted, or that of an error.
int RunCells(Context& context, ClusterClient& client, const Experiment& experiment,
             const std::vector<Cell>& cells, const RunnerOptions& options, RunStore& store,
             Stopper& stopper);

// results.json, results.md, results.csv and the plots.
absl::Status WriteResults(const Experiment& experiment, const std::vector<CellResult>& results,
                          const RunStore& store);

}  // namespace muster::cli

#endif  // MUSTER_CLI_EXPERIMENT_RUNNER_H_
