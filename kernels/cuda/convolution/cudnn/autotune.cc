#include "kernels/cuda/convolution/cudnn/autotune.h"

#include <algorithm>
#include <vector>

#include "absl/status/status.h"
#include "common/status.h"

namespace muster::kernels::cuda {
namespace {

constexpr float kWarmUpMilliseconds = 50;
constexpr size_t kTimedRuns = 5;

struct Candidate {
  size_t index;
  std::vector<float> milliseconds;  // by run
};

float Median(std::vector<float> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Runs the candidate until the GPU has worked for kWarmUpMilliseconds. Doubles the runs of each
// call, because a call waits for the GPU; their limit is for a candidate that takes no time.
absl::Status WarmUp(size_t candidate, TimeCandidate time) {
  constexpr int kMostRuns = 1 << 14;
  float total = 0;
  for (int runs = 1; total < kWarmUpMilliseconds && runs <= kMostRuns; runs *= 2) {
    ASSIGN_OR_RETURN(const float milliseconds, time(candidate, runs));
    total += milliseconds;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<size_t> FindFastest(size_t candidates, TimeCandidate time) {
  absl::Status error;
  std::vector<Candidate> able;
  for (size_t index = 0; index < candidates; ++index) {
    // The first run loads kernels.
    const absl::Status status = time(index, 1).status();
    error.Update(status);
    if (status.ok()) able.push_back({.index = index, .milliseconds = {}});
  }
  if (able.empty()) return error.ok() ? absl::UnimplementedError("no candidates") : error;
  RETURN_IF_ERROR(WarmUp(able.front().index, time));
  for (size_t run = 0; run < kTimedRuns; ++run) {
    for (Candidate& candidate : able) {
      ASSIGN_OR_RETURN(const float milliseconds, time(candidate.index, 1));
      candidate.milliseconds.push_back(milliseconds);
    }
  }
  return std::min_element(able.begin(), able.end(),
                          [](const Candidate& a, const Candidate& b) {
                            return Median(a.milliseconds) < Median(b.milliseconds);
                          })
      ->index;
}

}  // namespace muster::kernels::cuda
