// Splits a model into pipeline stages of balanced cost.
#ifndef MUSTER_COMMON_PIPELINE_BALANCE_H_
#define MUSTER_COMMON_PIPELINE_BALANCE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace muster::pipeline {

// Splits a model so that the cost of the slowest stage is minimal. `costs` are the costs of the
// model's indivisible segments in order, in any unit. Returns the index of the first segment of the
// second and each later stage, in ascending order, stages - 1 in total. Every stage has at least
// one segment. Ties are broken towards the earliest cuts, so that all ranks compute the same cuts
// and the first stages, which keep the most activations, are the smallest. Takes O(stages ×
// segments²) time. INVALID_ARGUMENT: no stage, fewer segments than stages, or a cost that is
// negative or not finite.
absl::StatusOr<std::vector<size_t>> BalancedCuts(absl::Span<const double> costs, uint32_t stages);

// The sum of the segments' costs of each stage, for cuts as returned by BalancedCuts.
std::vector<double> StageCosts(absl::Span<const double> costs, absl::Span<const size_t> cuts);

}  // namespace muster::pipeline

#endif  // MUSTER_COMMON_PIPELINE_BALANCE_H_
