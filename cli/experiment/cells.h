// The cells of an experiment: one job per combination of the grid.
#ifndef MUSTER_CLI_EXPERIMENT_CELLS_H_
#define MUSTER_CLI_EXPERIMENT_CELLS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cli/experiment/experiment.h"
#include "cli/files/local_files.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::cli {

inline constexpr size_t kMaxCells = 1000;

// One combination of the grid.
struct Cell {
  std::vector<std::string> labels;  // by axis
  std::string name;                 // "ranks=two precision=O2"; "base" without a grid
  std::string skip_reason;  // if not empty, the cell has no job and the fields below are empty
  v1::JobSpec spec;         // without defaults
  LocalFiles files;         // to be uploaded before the spec is submitted
  v1::JobSpec defaulted;
  // The job as a task of an array: setting `values` in `shared`, which cells have in common as far
  // as possible, gives `spec`.
  v1::JobSpec shared;
  v1::ArrayTaskValues values;
  std::string shared_digest;  // equal for cells with the same `shared`
  // Digest of the defaulted spec and its files, without name and priority; equal for equal jobs.
  std::string digest;
};

// All cells of the grid that `only` selects, with their files and specs validated as the
// coordinator will. INVALID_ARGUMENT lists each problem once, with the cells that have it, and
// unknown axes and labels in `only`.
absl::StatusOr<std::vector<Cell>> MakeCells(const Experiment& experiment,
                                            const Selection& only = {},
                                            Place place = Place::kCluster);

// Parses values of --only, "AXIS=LABEL,LABEL". INVALID_ARGUMENT.
absl::StatusOr<Selection> ParseSelection(absl::Span<const std::string> texts);

// Whether the selection contains the cell's labels; axes that it does not name match any label.
bool Selects(const Selection& selection, const std::vector<Axis>& axes, const Cell& cell);

// The number of devices that compute in a job of this spec; 0 if only the nodes know it.
uint32_t DevicesOf(const v1::JobSpec& defaulted);

}  // namespace muster::cli

#endif  // MUSTER_CLI_EXPERIMENT_CELLS_H_
