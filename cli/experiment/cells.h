// The jobs of an experiment: one for each combination of its grid.
#ifndef MUSTER_CLI_EXPERIMENT_CELLS_H_
#define MUSTER_CLI_EXPERIMENT_CELLS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cli/experiment/experiment.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::cli {

inline constexpr size_t kMaxCells = 1000;

// One combination of the grid.
struct Cell {
  std::vector<std::string> labels;  // by axis
  std::string name;                 // "ranks=two precision=O2"; "base" without a grid
  std::string skip_reason;          // not empty: there is no job of it, and what follows is empty
  v1::JobSpec spec;                 // without defaults; as it is submitted
  v1::JobSpec defaulted;
  // Of the defaulted spec without its name and priority: equal for equal jobs.
  std::string digest;
};

// All cells of the grid that `only` selects, each job's spec checked as the coordinator will.
// INVALID_ARGUMENT lists all problems of all cells: each once, with the cells that have it, and
// axes and labels in `only` that there are not.
absl::StatusOr<std::vector<Cell>> MakeCells(const Experiment& experiment,
                                            const Selection& only = {});

// "AXIS=LABEL,LABEL", as --only has it. INVALID_ARGUMENT.
absl::StatusOr<Selection> ParseSelection(absl::Span<const std::string> texts);

// Whether the cell's labels are among those selected; axes that are not named do not matter.
bool Selects(const Selection& selection, const std::vector<Axis>& axes, const Cell& cell);

// How many devices compute in a job of this spec; 0 where only the nodes know.
uint32_t DevicesOf(const v1::JobSpec& defaulted);

}  // namespace muster::cli

#endif  // MUSTER_CLI_EXPERIMENT_CELLS_H_
