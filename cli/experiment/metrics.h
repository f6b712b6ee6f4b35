// Metrics of finished jobs: the columns of an experiment's tables.
#ifndef MUSTER_CLI_EXPERIMENT_METRICS_H_
#define MUSTER_CLI_EXPERIMENT_METRICS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::cli {

enum class Unit { kSeconds, kBytes, kPerSecond, kRatio, kNumber };

struct Metric {
  const char* name;
  Unit unit;
  // Column heading in the terminal's table and results.md; null: only in results.csv.
  const char* head;
};

// All metrics. The last two compare a cell with others; see Collect in results.h.
absl::Span<const Metric> Metrics();
inline constexpr char kSpeedup[] = "speedup";
inline constexpr char kScalingEfficiency[] = "scaling_efficiency";

// Values by metric name; metrics that the job does not report are absent.
using Measurements = std::map<std::string, double>;
Measurements MeasurementsOf(const v1::Job& job);

// Medians per metric over the runs that have it; for an even number of runs, the mean of the two
// middle values.
Measurements Medians(const std::vector<Measurements>& runs);

// "1,234", "0.0123", "210 MiB", "87.5 %".
std::string MetricText(Unit unit, double value);

}  // namespace muster::cli

#endif  // MUSTER_CLI_EXPERIMENT_METRICS_H_
