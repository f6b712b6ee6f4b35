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

}  // namespace
}  // namespace muster::train
