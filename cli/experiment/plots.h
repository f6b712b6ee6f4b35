// Draws the plots of an experiment.
#ifndef MUSTER_CLI_EXPERIMENT_PLOTS_H_
#define MUSTER_CLI_EXPERIMENT_PLOTS_H_

#include <string>
#include <vector>

#include "cli/experiment/experiment.h"
#include "cli/experiment/results.h"

namespace muster::cli {

struct PlotFile {
  std::string name;  // "images_per_second-resnet50.svg"
  std::string svg;
};

// One plot for each requested plot and each combination of the axes that are neither its x nor its
// series; if no plot is requested, images per second over the first two axes. Plots without any
// value are omitted.
std::vector<PlotFile> DrawPlots(const Experiment& experiment,
                                const std::vector<CellResult>& results);

}  // namespace muster::cli

#endif  // MUSTER_CLI_EXPERIMENT_PLOTS_H_
