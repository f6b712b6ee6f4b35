#include "kernels/cuda/convolution/cudnn/autotune.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::kernels::cuda {
namespace {

using ::testing::ElementsAre;

// A GPU whose clock is low until it has worked for 40 ms.
class IdleGpu {
 public:
  absl::StatusOr<float> Run(float milliseconds, int runs) {
    const float took = milliseconds * static_cast<float>(runs) * (worked_ < 40 ? 4.0f : 1.0f);
    worked_ += took;
    return took;
  }

 private:
  float worked_ = 0;
};

TEST(FindFastestTest, WarmsUpAnIdleGpu) {
  IdleGpu gpu;
  // At the low clock the first candidate would take 4 ms, the second at the high clock 2 ms.
  const auto fastest = FindFastest(
      2, [&](size_t candidate, int runs) { return gpu.Run(candidate == 0 ? 1 : 2, runs); });
  EXPECT_EQ(*fastest, 0u);
}

TEST(FindFastestTest, ComparesMediansOfFiveRunsInTurn) {
  std::vector<size_t> timed;
  int calls = 0;
  const auto fastest = FindFastest(2, [&](size_t candidate, int) -> absl::StatusOr<float> {
    if (++calls <= 3) return 100;  // one run of each, and the warm-up
    timed.push_back(candidate);
    // Another program disturbs two of the first candidate's runs.
    const bool disturbed = candidate == 0 && (timed.size() == 3 || timed.size() == 7);
    return disturbed ? 50 : candidate == 0 ? 1 : 2;
  });
  EXPECT_EQ(*fastest, 0u);
  EXPECT_THAT(timed, ElementsAre(0, 1, 0, 1, 0, 1, 0, 1, 0, 1));
}

TEST(FindFastestTest, LeavesOutCandidatesThatFail) {
  const auto fails = [](size_t candidate, int) -> absl::StatusOr<float> {
    if (candidate == 0) return absl::InternalError("fails");
    return candidate == 1 ? 70 : 60;
  };
  EXPECT_EQ(*FindFastest(3, fails), 2u);
  EXPECT_EQ(FindFastest(1, fails).status(), absl::InternalError("fails"));
  EXPECT_EQ(FindFastest(0, fails).status().code(), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace muster::kernels::cuda
