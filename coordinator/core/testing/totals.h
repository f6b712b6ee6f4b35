// Reads series of the core's statistics.
#ifndef MUSTER_COORDINATOR_CORE_TESTING_TOTALS_H_
#define MUSTER_COORDINATOR_CORE_TESTING_TOTALS_H_

#include <string>
#include <utility>
#include <vector>

#include "coordinator/core/stats.h"

namespace muster::core::testing {

// The total of a counter; 0 if there is no such series.
inline double TotalOf(const Stats& stats, Metric metric, std::vector<std::string> labels = {}) {
  const auto total = stats.totals.find({metric.family, std::move(labels)});
  return total == stats.totals.end() ? 0 : total->second;
}
// The samples of a histogram.
inline std::vector<double> SamplesOf(const Stats& stats, Metric metric,
                                     std::vector<std::string> labels = {}) {
  const auto samples = stats.seconds.find({metric.family, std::move(labels)});
  return samples == stats.seconds.end() ? std::vector<double>() : samples->second;
}

}  // namespace muster::core::testing

#endif  // MUSTER_COORDINATOR_CORE_TESTING_TOTALS_H_
