#include "trainer/optim/ema.h"

#include <vector>

#include "gtest/gtest.h"
#include "kernels/testing/limited_device.h"
#include "kernels/update_rules.h"

namespace muster::train {
namespace {

constexpr size_t kParameters = 37;
constexpr size_t kBuffers = 5;

struct Values {
  explicit Values(float value) : parameters(kParameters, value), buffers(kBuffers, -value) {}
  std::vector<float> parameters, buffers;
};

void ExpectAll(ExponentialMovingAverage& average, float value) {
  for (size_t i = 0; i < kParameters; ++i) EXPECT_FLOAT_EQ(average.parameters()[i], value);
  for (size_t i = 0; i < kBuffers; ++i) EXPECT_FLOAT_EQ(average.buffers()[i], -value);
}

// Updates the average after update number `update` with the given decay.
void Update(ExponentialMovingAverage& average, double decay, uint64_t update,
            const Values& values) {
  const kernels::UpdateScalars scalars{.average_weight = kernels::AverageWeight(decay, update)};
  average.Update(&scalars, values.parameters.data(), values.buffers.data());
}

TEST(EmaTest, AveragesFromFirstStep) {
  ExponentialMovingAverage average = *ExponentialMovingAverage::Create(kParameters, kBuffers);
  const auto update = [&](uint64_t step, float value) {
    Update(average, 0.75, step, Values(value));
  };
  update(0, 8);
  ExpectAll(average, 8);
  update(100, 4);
  ExpectAll(average, 7);
  update(101, 11);
  ExpectAll(average, 8);
}

TEST(EmaTest, LimitsDecayInFirstSteps) {
  ExponentialMovingAverage average = *ExponentialMovingAverage::Create(kParameters, kBuffers);
  const auto update = [&](uint64_t step, float value) {
    Update(average, 0.999, step, Values(value));
  };
  update(0, 11);
  update(1, 0);  // d = 2/11
  ExpectAll(average, 2);
  for (uint64_t step = 2; step < 100; ++step) update(step, 0);
  EXPECT_LT(average.parameters()[0], 1e-6);
}

TEST(EmaTest, ContinuesFromStart) {
  ExponentialMovingAverage average = *ExponentialMovingAverage::Create(kParameters, kBuffers);
  const Values start(2), next(6);
  average.Start(start.parameters.data(), start.buffers.data());
  ExpectAll(average, 2);
  Update(average, 0.5, 100, next);
  ExpectAll(average, 4);
}

TEST(EmaTest, EqualsValuesWithoutDecay) {
  ExponentialMovingAverage average = *ExponentialMovingAverage::Create(kParameters, kBuffers);
  for (uint64_t step = 0; step < 3; ++step) {
    Update(average, 0, step, Values(static_cast<float>(step) + 0.1f));
    ExpectAll(average, static_cast<float>(step) + 0.1f);
  }
}

TEST(EmaTest, ReturnsExhaustionOfDeviceMemory) {
  kernels::LimitedDevice device;
  const auto create = [&] {
    return ExponentialMovingAverage::Create(kParameters, kBuffers, device).status();
  };
  EXPECT_EQ(AllocationsNeeded(device, create), 2);
}

}  // namespace
}  // namespace muster::train
