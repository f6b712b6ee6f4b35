// Median of numbers.
#ifndef MUSTER_COMMON_MEDIAN_H_
#define MUSTER_COMMON_MEDIAN_H_

#include <algorithm>
#include <cstddef>

#include "absl/types/span.h"

namespace muster {

// Reorders `values`, of which there must be at least one. The mean of the middle two if their
// number is even.
inline double MedianOf(absl::Span<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

}  // namespace muster

#endif  // MUSTER_COMMON_MEDIAN_H_
