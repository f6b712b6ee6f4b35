// Where to cut a model into stages that take equally long, as far as that goes.
#ifndef MUSTER_COMMON_PIPELINE_BALANCE_H_
#define MUSTER_COMMON_PIPELINE_BALANCE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace muster::pipeline {

// What each part of a model costs, in order, in any unit; parts are not cut. The index of the first
// part of the second and every later stage, ascending, one fewer than `stages`: no other cuts have
// a cheaper slowest stage. Every stage has at least one part. Of equally good cuts the earliest
// ones, so that equal costs give equal cuts on every rank, and the first stages, which keep most
// activations, are the small ones. Takes stages × parts² at most.
// INVALID_ARGUMENT: no stage, fewer parts than stages, a cost that is negative or not finite.
absl::StatusOr<std::vector<size_t>> BalancedCuts(absl::Span<const double> costs, uint32_t stages);

// By stage: the sum of its parts' costs, for cuts as above.
std::vector<double> StageCosts(absl::Span<const double> costs, absl::Span<const size_t> cuts);

}  // namespace muster::pipeline

#endif  // MUSTER_COMMON_PIPELINE_BALANCE_H_
