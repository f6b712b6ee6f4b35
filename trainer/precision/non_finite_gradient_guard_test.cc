#include "trainer/precision/non_finite_gradient_guard.h"

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "collectives/testing.h"
#include "common/status.h"
#include "gtest/gtest.h"
#include "kernels/testing/limited_device.h"
#include "trainer/loop/testing.h"

namespace muster::train {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(NonFiniteGradientGuardTest, ChecksEveryElement) {
  const auto communicators = MakeLoopbackGroup(1);
  auto created = NonFiniteGradientGuard::Create(communicators[0].get(), kernels::CpuDevice(),
                                                /*buffers=*/nullptr, /*buffer_elements=*/0);
  ASSERT_TRUE(created.ok()) << created.status();
  NonFiniteGradientGuard& guard = *created;
  std::vector<float> gradients(67, 1e38f);
  guard.Check(gradients.data(), gradients.size());
  EXPECT_TRUE(*guard.finite());
  for (const size_t place : {0u, 33u, 66u}) {
    for (const float value : {kInfinity, -kInfinity, kNan}) {
      std::vector<float> bad = gradients;
      bad[place] = value;
      guard.Check(bad.data(), bad.size());
      EXPECT_FALSE(*guard.finite()) << place;
    }
  }
}

// Decision and running statistics of each rank.
struct Agreement {
  std::vector<bool> skip;
  std::vector<std::vector<float>> buffers;
};
Agreement Agree(const std::vector<bool>& overflowed) {
  const auto ranks = static_cast<uint32_t>(overflowed.size());
  const auto communicators = MakeLoopbackGroup(ranks);
  std::vector<int> skip(ranks);
  std::vector<std::vector<float>> buffers(ranks, {1, 2, 3});
  const auto results = collectives::RunRankThreads(ranks, [&](uint32_t rank) -> absl::Status {
    ASSIGN_OR_RETURN(NonFiniteGradientGuard guard,
                     NonFiniteGradientGuard::Create(communicators[rank].get(), kernels::CpuDevice(),
                                                    buffers[rank].data(), buffers[rank].size()));
    guard.Begin();
    buffers[rank] = {4, overflowed[rank] ? kNan : 5, 6};  // as after forward
    const float gradient = overflowed[rank] ? kNan : 1;
    guard.Check(&gradient, 1);
    const absl::Status agreed = guard.Agree();
    skip[rank] = *guard.finite() ? 0 : 1;
    const kernels::UpdateScalars scalars{.skip = static_cast<uint32_t>(skip[rank])};
    guard.Restore(&scalars);
    return agreed;
  });
  for (const std::string& result : results) EXPECT_EQ(result, "");
  return {std::vector<bool>(skip.begin(), skip.end()), std::move(buffers)};
}

TEST(NonFiniteGradientGuardTest, OverflowOnOneRankSkipsStepOnAll) {
  for (const size_t culprit : {0u, 1u, 2u}) {
    std::vector<bool> overflowed(3, false);
    overflowed[culprit] = true;
    const Agreement agreement = Agree(overflowed);
    for (size_t rank = 0; rank < 3; ++rank) {
      EXPECT_TRUE(agreement.skip[rank]);
      EXPECT_EQ(agreement.buffers[rank], (std::vector<float>{1, 2, 3})) << "not restored";
    }
  }
}

TEST(NonFiniteGradientGuardTest, CleanStepKeepsNewStatistics) {
  for (const size_t ranks : {1u, 3u}) {
    const Agreement agreement = Agree(std::vector<bool>(ranks, false));
    for (size_t rank = 0; rank < ranks; ++rank) {
      EXPECT_FALSE(agreement.skip[rank]);
      EXPECT_EQ(agreement.buffers[rank], (std::vector<float>{4, 5, 6}));
    }
  }
}

TEST(NonFiniteGradientGuardTest, ReturnsExhaustionOfDeviceMemory) {
  const auto communicators = MakeLoopbackGroup(1);
  std::vector<float> buffers(3);
  kernels::LimitedDevice device;
  const auto create = [&] {
    return NonFiniteGradientGuard::Create(communicators[0].get(), device, buffers.data(),
                                          buffers.size())
        .status();
  };
  EXPECT_EQ(AllocationsNeeded(device, create), 2);
}

}  // namespace
}  // namespace muster::train
