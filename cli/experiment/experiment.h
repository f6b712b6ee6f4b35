// The description of an experiment: one job spec over a grid of variants, parsed from a file.
//
//   experiment: {name: precision, repeat: 3}
//   parameters: {steps: 200}              # replaces $steps; --set steps=50 overrides it
//   base: { a job spec }
//   grid:                                 # one job per combination of values
//     ranks:                              # an axis: labels and the fields that they set
//       - {label: one, set: {resources.ranks_per_node: 1}}
//       - {label: two, set: {resources.ranks_per_node: 2}}
//     precision: {field: train.precision, values: [O0, O2]}
//   skip:
//     - {when: {ranks: two, precision: O2}, reason: why the cell is skipped}
//   baseline: {ranks: one}                # reference of the column SPEEDUP
//   found: published results, shown next to the measured ones
#ifndef MUSTER_CLI_EXPERIMENT_EXPERIMENT_H_
#define MUSTER_CLI_EXPERIMENT_EXPERIMENT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace muster::cli {

struct AxisValue {
  std::string label;
  std::vector<std::string> overrides;  // a.b=c
};

struct Axis {
  std::string name;
  std::vector<AxisValue> values;  // labels differ; at least one
};

// Labels by axis. A cell is selected if its label matches on every axis in the map.
using Selection = std::map<std::string, std::vector<std::string>>;

struct SkipRule {
  Selection when;
  std::string reason;
};

struct Experiment {
  std::string name;  // a job name: lower-case letters, digits, '-'
  std::string title;
  uint32_t repeat = 1;
  std::string base_text;               // YAML of the spec, with the line numbers of the file
  std::string base_source;             // the file, for errors
  std::vector<std::string> overrides;  // for the base, from the command line
  std::vector<Axis> axes;              // the last one varies fastest
  std::vector<SkipRule> skips;
  Selection baseline;  // one label per named axis; empty: no baseline
  std::string found;
};

inline constexpr uint32_t kMaxRepeat = 100;

// Parses an experiment. `source` names the text in errors. `settings` are NAME=VALUE for parameters
// and a.b=c for fields of the base. INVALID_ARGUMENT lists all errors of the file itself, one per
// line; the base is validated by MakeCells.
absl::StatusOr<Experiment> ParseExperiment(const std::string& text, const std::string& source,
                                           absl::Span<const std::string> settings);

}  // namespace muster::cli

#endif  // MUSTER_CLI_EXPERIMENT_EXPERIMENT_H_
