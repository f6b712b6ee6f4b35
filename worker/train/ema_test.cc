#include "worker/train/ema.h"

#include <vector>

#include "gtest/gtest.h"

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

TEST(EmaTest, AveragesFromTheFirstStepOn) {
  ExponentialMovingAverage average(0.75, kParameters, kBuffers);
  const auto update = [&](uint64_t step, float value) {
    const Values values(value);
    average.Update(step, values.parameters.data(), values.buffers.data());
  };
  update(0, 8);
  ExpectAll(average, 8);
  update(100, 4);
  ExpectAll(average, 7);
  update(101, 11);
  ExpectAll(average, 8);
}

TEST(EmaTest, ForgetsTheFirstWeightsSoon) {
  ExponentialMovingAverage average(0.999, kParameters, kBuffers);
  const auto update = [&](uint64_t step, float value) {
    const Values values(value);
    average.Update(step, values.parameters.data(), values.buffers.data());
  };
  update(0, 11);
  update(1, 0);  // d = 2/11
  ExpectAll(average, 2);
  for (uint64_t step = 2; step < 100; ++step) update(step, 0);
  EXPECT_LT(average.parameters()[0], 1e-6);
}

TEST(EmaTest, GoesOnFromAStart) {
  ExponentialMovingAverage average(0.5, kParameters, kBuffers);
  const Values start(2), next(6);
  average.Start(start.parameters.data(), start.buffers.data());
  ExpectAll(average, 2);
  average.Update(100, next.parameters.data(), next.buffers.data());
  ExpectAll(average, 4);
}

TEST(EmaTest, WithoutDecayItIsTheValues) {
  ExponentialMovingAverage average(0, kParameters, kBuffers);
  for (uint64_t step = 0; step < 3; ++step) {
    const Values values(static_cast<float>(step) + 0.1f);
    average.Update(step, values.parameters.data(), values.buffers.data());
    ExpectAll(average, static_cast<float>(step) + 0.1f);
  }
}

}  // namespace
}  // namespace muster::train
