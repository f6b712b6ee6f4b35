// An experiment: one job spec over a grid of variants, as its file describes it.
//
//   experiment: {name: precision, repeat: 3}
//   parameters: {steps: 200}              # $steps in the rest of the file; --set steps=50 changes
//   it base: { a job spec } grid:                                 # one job for each combination of
//   values
//     ranks:                              # an axis: labels, and the fields that each one sets
//       - {label: one, set: {resources.ranks_per_node: 1}}
//       - {label: two, set: {resources.ranks_per_node: 2}}
//     precision: {field: train.precision, values: [O0, O2]}
//   skip:
//     - {when: {ranks: two, precision: O2}, reason: why it is left out}
//   baseline: {ranks: one}                # what the column SPEEDUP compares with
//   plots:
//     - {metric: images_per_second, x: precision, series: ranks}
//   found: what others measured, shown beside the results
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

// Labels by axis; every named axis has to match for a cell to be meant.
using Selection = std::map<std::string, std::vector<std::string>>;

struct SkipRule {
  Selection when;
  std::string reason;
};

struct PlotRequest {
  enum class Kind { kBars, kLines };
  Kind kind = Kind::kBars;
  std::string metric;  // a word of metrics.h
  std::string x;       // an axis
  std::string series;  // another one, or empty
  std::string title;   // empty: the metric's
};

struct Experiment {
  std::string name;  // as a job's: lower-case letters, digits, '-'
  std::string title;
  uint32_t repeat = 1;
  std::string base_text;               // YAML of the spec, its lines where they are in the file
  std::string base_source;             // the file, for errors
  std::vector<std::string> overrides;  // of the base, from the command line
  std::vector<Axis> axes;              // the last one varies fastest
  std::vector<SkipRule> skips;
  Selection baseline;  // one label of each named axis; empty without
  std::vector<PlotRequest> plots;
  std::string found;
};

inline constexpr uint32_t kMaxRepeat = 100;

// `source` names the text in errors. `settings` are NAME=VALUE of parameters, and a.b=c of the
// base. INVALID_ARGUMENT lists all that is wrong with the file itself, a line each; the base is
// looked at by MakeCells.
absl::StatusOr<Experiment> ParseExperiment(const std::string& text, const std::string& source,
                                           absl::Span<const std::string> settings);

}  // namespace muster::cli

#endif  // MUSTER_CLI_EXPERIMENT_EXPERIMENT_H_
