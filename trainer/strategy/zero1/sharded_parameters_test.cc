#include "trainer/strategy/zero1/sharded_parameters.h"

#include "gtest/gtest.h"
#include "kernels/testing/limited_device.h"
#include "trainer/loop/testing.h"

namespace muster::train {
namespace {

TEST(ShardedParametersTest, ReturnsExhaustionOfDeviceMemory) {
  const auto communicators = MakeLoopbackGroup(1);
  kernels::LimitedDevice device;
  const auto create = [&] {
    return ShardedParameters::Create(communicators[0].get(), &device, /*by_devices=*/false,
                                     /*elements=*/20)
        .status();
  };
  EXPECT_EQ(AllocationsNeeded(device, create), 1);
}

TEST(GatherStatesTest, ReturnsExhaustionOfDeviceMemory) {
  const auto communicators = MakeLoopbackGroup(1);
  kernels::LimitedDevice device;
  v1::OptimizerSpec adamw;
  adamw.set_name("adamw");
  adamw.set_epsilon(1e-8);
  const nn::ParameterInfo parameter{.name = "weight", .shape = {20}, .offset = 0, .count = 32};
  const auto optimizer = Optimizer::Create(adamw, {parameter}, {.device = &device});
  ASSERT_TRUE(optimizer.ok()) << optimizer.status();
  const auto gather = [&] {
    return GatherStates(*communicators[0], device, **optimizer, Shares(32, 1)).status();
  };
  EXPECT_EQ(AllocationsNeeded(device, gather), 2);
}

}  // namespace
}  // namespace muster::train
