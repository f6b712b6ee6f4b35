// Percentiles of a benchmark's samples.
#ifndef MUSTER_TESTS_BENCH_PERCENTILE_H_
#define MUSTER_TESTS_BENCH_PERCENTILE_H_

#include <algorithm>
#include <cstddef>
#include <vector>

namespace muster::bench {

// Returns the smallest sample that is not below the given share of the samples; 0 if there are
// none.
inline double Percentile(std::vector<double> samples, double share) {
  if (samples.empty()) return 0;
  const size_t rank = std::min(samples.size() - 1,
                               static_cast<size_t>(share * static_cast<double>(samples.size())));
  std::nth_element(samples.begin(), samples.begin() + static_cast<ptrdiff_t>(rank), samples.end());
  return samples[rank];
}

}  // namespace muster::bench

#endif  // MUSTER_TESTS_BENCH_PERCENTILE_H_
