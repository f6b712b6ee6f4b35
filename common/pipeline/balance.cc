#include "common/pipeline/balance.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace muster::pipeline {
namespace {

// Prefix sums: sums[i] is the sum of the first i costs.
std::vector<double> PrefixSums(absl::Span<const double> costs) {
  std::vector<double> sums = {0};
  for (const double cost : costs) sums.push_back(sums.back() + cost);
  return sums;
}

// best[k - 1][i]: the cost of the slowest of k stages made of segments i and later, minimized over
// the cuts; infinite if there are fewer than k segments.
std::vector<std::vector<double>> SlowestOfSuffixes(const std::vector<double>& sums,
                                                   uint32_t stages) {
  const size_t segments = sums.size() - 1;
  constexpr double kImpossible = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> best(stages, std::vector<double>(segments + 1, kImpossible));
  for (size_t i = 0; i < segments; ++i) best[0][i] = sums[segments] - sums[i];
  for (uint32_t k = 1; k < stages; ++k) {
    for (size_t i = 0; i + k < segments; ++i) {
      double slowest = kImpossible;
      // A later cut can only make the first stage slower.
      for (size_t cut = i + 1; cut + k <= segments && sums[cut] - sums[i] < slowest; ++cut) {
        slowest = std::min(slowest, std::max(sums[cut] - sums[i], best[k - 1][cut]));
      }
      best[k][i] = slowest;
    }
  }
  return best;
}

}  // namespace

absl::StatusOr<std::vector<size_t>> BalancedCuts(absl::Span<const double> costs, uint32_t stages) {
  if (stages == 0) return absl::InvalidArgumentError("a pipeline needs at least one stage");
  if (costs.size() < stages) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot split ", costs.size(), " segments into ", stages, " stages"));
  }
  for (const double cost : costs) {
    if (!std::isfinite(cost) || cost < 0) {
      return absl::InvalidArgumentError(absl::StrCat("invalid cost ", cost));
    }
  }
  const std::vector<double> sums = PrefixSums(costs);
  const std::vector<std::vector<double>> best = SlowestOfSuffixes(sums, stages);
  const double slowest = best[stages - 1][0];
  std::vector<size_t> cuts;
  size_t begin = 0;
  for (uint32_t left = stages - 1; left > 0; --left) {
    size_t cut = begin + 1;
    while (best[left - 1][cut] > slowest) ++cut;
    cuts.push_back(cut);
    begin = cut;
  }
  return cuts;
}

std::vector<double> StageCosts(absl::Span<const double> costs, absl::Span<const size_t> cuts) {
  const std::vector<double> sums = PrefixSums(costs);
  std::vector<double> stages;
  size_t begin = 0;
  for (const size_t cut : cuts) {
    stages.push_back(sums[cut] - sums[begin]);
    begin = cut;
  }
  stages.push_back(sums.back() - sums[begin]);
  return stages;
}

}  // namespace muster::pipeline
