// A plan on a device whose memory the process cannot access: the results equal those of the CPU
// bitwise, and the plan never accesses device memory directly. The same holds when the calls are
// captured once and replayed.
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "kernels/testing/capturing_device.h"
#include "kernels/testing/guarded_device.h"
#include "trainer/graph/plan.h"
#include "trainer/graph/testing/graphs.h"
#include "trainer/graph/testing/trainer.h"

namespace muster::nn {
namespace {

constexpr uint32_t kSamples = 6;

// Behaves like a second rank with the same samples.
class Doubling final : public StatisticsReducer {
 public:
  explicit Doubling(kernels::Device& device) : device_(device) {}
  void Sum(double* values, size_t count) override { Double(values, count); }
  void Sum(float* values, size_t count) override { Double(values, count); }

 private:
  template <typename T>
  void Double(T* values, size_t count) {
    std::vector<T> own(count);
    device_.CopyToHost(own.data(), values, count * sizeof(T));
    for (T& value : own) value *= 2;
    device_.CopyToDevice(values, own.data(), count * sizeof(T));
  }

  kernels::Device& device_;
};

std::vector<float> Values(const TestTrainer& trainer, const float* flat) {
  std::vector<float> all;
  for (const ParameterInfo& info : trainer.plan().parameters()) {
    const std::vector<float> one = trainer.Exported(flat, info);
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

// Weights, gradients and running statistics.
void AddState(TestTrainer& trainer, std::vector<double>& results) {
  for (const float* flat : {trainer.parameters(), trainer.gradients()}) {
    for (const float value : Values(trainer, flat)) results.push_back(value);
  }
  for (const ParameterInfo& info : trainer.plan().buffers()) {
    for (const float value : trainer.Buffer(info)) results.push_back(value);
  }
}

// Losses, weights and running statistics of a short training run with an evaluation after each
// step.
std::vector<double> Trained(const Graph& graph, CompileOptions options) {
  TestTrainer trainer(graph, options);
  Doubling reducer(trainer.plan().device());
  trainer.plan().set_statistics_reducer(&reducer);
  std::vector<double> results;
  for (uint64_t step = 0; step < 4; ++step) {
    const uint32_t samples = step == 2 ? kSamples - 2 : kSamples;
    const LossResult loss = trainer.Gradients(step, 0, samples, samples);
    trainer.Update();
    results.push_back(loss.loss_sum);
    trainer.plan().Forward(samples, /*training=*/false, {});
    results.push_back(trainer.plan().Loss(samples, 0, 0).loss_sum);
  }
  AddState(trainer, results);
  return results;
}

// State after each step of a short training run. If the device supports it, the passes are captured
// in the second step.
std::vector<double> TrainedByOnePass(const Graph& graph, const CompileOptions& options) {
  TestTrainer trainer(graph, options);
  Plan& plan = trainer.plan();
  kernels::Device& device = plan.device();
  const auto loss = device.Allocate(sizeof(LossResult));
  EXPECT_TRUE(loss.ok());
  const auto pass = [&] {
    plan.Forward(kSamples, /*training=*/true);
    plan.QueueLoss(kSamples, {.label_smoothing = 0.1, .scale = 1.0 / kSamples},
                   loss->as<LossResult>());
    plan.Backward(kSamples, nullptr);
  };
  std::vector<double> results;
  std::unique_ptr<kernels::DeviceGraph> captured;
  for (uint64_t step = 0; step < 6; ++step) {
    trainer.Fill(step, 0, kSamples);
    plan.SetStep({.seed = 9, .step = step, .first_sample = 3});
    if (step == 1 && device.supports_graph_capture()) {
      EXPECT_TRUE(device.StartCapture().ok());
      pass();
      auto graph = device.FinishCapture();
      EXPECT_TRUE(graph.ok()) << graph.status();
      if (graph.ok()) captured = *std::move(graph);
    }
    captured != nullptr ? captured->Launch() : pass();
    LossResult result;
    device.CopyToHost(&result, loss->data(), sizeof(result));
    results.push_back(result.loss_sum);
    AddState(trainer, results);
    trainer.Update();
  }
  return results;
}

class DeviceTest : public testing::TestWithParam<TestGraph> {};

TEST_P(DeviceTest, ComputesTheSameInInaccessibleDeviceMemory) {
  for (const bool recompute : {false, true}) {
    for (const bool synchronize : {false, true}) {
      CompileOptions options{.max_batch = kSamples,
                             .synchronize_batch_norm = synchronize,
                             .recompute_activations = recompute};
      const std::vector<double> expected = Trained(GetParam().graph, options);
      options.device = &kernels::GuardedDevice();
      EXPECT_EQ(Trained(GetParam().graph, options), expected);
    }
  }
}

TEST_P(DeviceTest, ComputesTheSameWhenCaptured) {
  for (const bool recompute : {false, true}) {
    CompileOptions options{.max_batch = kSamples, .recompute_activations = recompute};
    const std::vector<double> expected = TrainedByOnePass(GetParam().graph, options);
    options.device = &kernels::CapturingDevice();
    EXPECT_EQ(TrainedByOnePass(GetParam().graph, options), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Graphs, DeviceTest, testing::ValuesIn(TestGraphs()),
                         [](const auto& info) { return info.param.name; });

TEST(DeviceDeathTest, DiesOnDirectAccessToDeviceMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto memory = kernels::GuardedDevice().Allocate(64);
  ASSERT_TRUE(memory.ok());
  EXPECT_DEATH(*static_cast<volatile char*>(memory->data()) = 1, "");
}

}  // namespace
}  // namespace muster::nn
