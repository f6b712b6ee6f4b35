// What is measured of a finished job: the words of an experiment's plots and the columns of its
// tables.
#ifndef MUSTER_CLI_EXPERIMENT_METRICS_H_
#define MUSTER_CLI_EXPERIMENT_METRICS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::cli {

enum class Unit { kSeconds, kBytes, kPerSecond, kRatio, kNumber };

struct Metric {
  const char* name;
  const char* title;  // for people: a plot's heading
  Unit unit;
  // Of its column in the table on the terminal and in results.md; null: results.csv alone has it.
  const char* head;
};

// The last two compare a cell with others: Compare in results.h.
absl::Span<const Metric> Metrics();
inline constexpr char kSpeedup[] = "speedup";
inline constexpr char kScalingEfficiency[] = "scaling_efficiency";

// Null when there is none of that name.
const Metric* FindMetric(absl::string_view name);

// By metric's name; what the job does not tell is not in it.
using Measurements = std::map<std::string, double>;
Measurements MeasurementsOf(const v1::Job& job);

// Of an even number the mean of the two in the middle; by metric, over those that have it.
Measurements Medians(const std::vector<Measurements>& runs);

// "1,234", "0.0123", "210 MiB", "87.5 %": for people.
std::string MetricText(Unit unit, double value);
// "s", "images/s", "MiB": behind a plot's title. Bytes are plotted as MiB.
std::string UnitName(Unit unit);
double PlotValue(Unit unit, double value);

}  // namespace muster::cli

#endif  // MUSTER_CLI_EXPERIMENT_METRICS_H_
