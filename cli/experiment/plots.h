// The plots of an experiment.
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

// One for each plot that the file asks for and each combination of the axes that are neither its x
// nor its series; without any, images per second over the first two axes. Plots without a single
// value are left out.
std::vector<PlotFile> DrawPlots(const Experiment& experiment,
                                const std::vector<CellResult>& results);

}  // namespace muster::cli

#endif  // MUSTER_CLI_EXPERIMENT_PLOTS_H_
