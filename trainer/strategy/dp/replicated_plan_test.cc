// A plan over several devices gives what one over one device gives.
#include "trainer/strategy/dp/replicated_plan.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/testing/guarded_device.h"
#include "trainer/graph/testing/graphs.h"
#include "trainer/graph/testing/trainer.h"

namespace muster::nn {
namespace {

using ::testing::ElementsAre;

constexpr uint32_t kBatch = 13;

std::unique_ptr<Plan> Replicated(const Graph& graph, const CompileOptions& compiling,
                                 size_t devices, uint32_t rows_per_sample = 1) {
  ReplicaOptions options;
  options.devices.assign(devices, &kernels::CpuDevice());
  options.rows_per_sample = rows_per_sample;
  auto plan = ReplicatedPlan::Make(graph, compiling, options);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

void ExpectSameStep(TestTrainer& actual, TestTrainer& expected, uint64_t step, uint32_t rows) {
  const LossResult loss = actual.Gradients(step, 5, rows, rows);
  const LossResult expected_loss = expected.Gradients(step, 5, rows, rows);
  EXPECT_NEAR(loss.loss_sum, expected_loss.loss_sum, 1e-5 * expected_loss.loss_sum);
  EXPECT_EQ(loss.correct, expected_loss.correct);
  ExpectClose({actual.gradients(), actual.elements()}, {expected.gradients(), expected.elements()},
              1e-5, "gradients");
}

class ReplicatedPlanTest : public testing::TestWithParam<TestGraph> {};

// Also where some devices have no row. Batch norm's statistics are of all devices' rows, as one
// device's are.
TEST_P(ReplicatedPlanTest, TrainsAsOneDeviceDoes) {
  const Graph& graph = GetParam().graph;
  for (const size_t devices : {1, 2, 3, 4}) {
    TestTrainer alone(graph, {.max_batch = kBatch});
    TestTrainer replicated(
        graph, Replicated(graph, {.max_batch = kBatch, .synchronize_batch_norm = true}, devices));
    uint64_t step = 0;
    for (const uint32_t rows : {kBatch, 6u, 2u}) {
      ExpectSameStep(replicated, alone, step++, rows);
      ExpectBuffersClose(replicated, alone);
      alone.Update();
      replicated.Update();
    }
    for (TestTrainer* trainer : {&alone, &replicated}) {
      trainer->Fill(step, 0, kBatch);
      trainer->plan().Forward(kBatch, /*training=*/false);
    }
    ExpectClose(replicated.plan().logits(kBatch), alone.plan().logits(kBatch), 1e-4, "logits");
    EXPECT_NEAR(replicated.plan().Loss(kBatch, 0, 0).loss_sum,
                alone.plan().Loss(kBatch, 0, 0).loss_sum, 1e-3);
  }
}

INSTANTIATE_TEST_SUITE_P(Graphs, ReplicatedPlanTest, testing::ValuesIn(TestGraphs()),
                         [](const auto& info) { return info.param.name; });

// Each device has statistics of its own rows, and those of the first one are kept.
TEST(ReplicatedPlanTest, RunningStatisticsAreTheFirstDevices) {
  const Graph graph = SmallResNet();
  TestTrainer replicated(graph, Replicated(graph, {.max_batch = 8}, 2));
  TestTrainer first(graph, {.max_batch = 8});
  replicated.Gradients(0, 0, 8, 8);
  first.Gradients(0, 0, 4, 8);
  ExpectBuffersClose(replicated, first);
}

// As if there were a second process with the same rows.
class Doubling final : public StatisticsReducer {
 public:
  void Sum(double* values, size_t count) override { Double(values, count); }
  void Sum(float* values, size_t count) override { Double(values, count); }
  int calls = 0;

 private:
  template <typename T>
  void Double(T* values, size_t count) {
    ++calls;
    for (size_t i = 0; i < count; ++i) values[i] *= 2;
  }
};

TEST(ReplicatedPlanTest, SumsWithOtherProcesses) {
  const Graph graph = SmallResNet();
  const CompileOptions compiling{.max_batch = 8, .synchronize_batch_norm = true};
  TestTrainer replicated(graph, Replicated(graph, compiling, 3));
  TestTrainer alone(graph, compiling);
  Doubling ours, theirs;
  replicated.plan().set_statistics_reducer(&ours);
  alone.plan().set_statistics_reducer(&theirs);
  ExpectSameStep(replicated, alone, 0, 8);
  ExpectBuffersClose(replicated, alone);
  EXPECT_EQ(ours.calls, theirs.calls);
  EXPECT_GT(ours.calls, 0);
}

TEST(ReplicatedPlanTest, SaysWhatItDidAndWhatItHolds) {
  const Graph graph = SmallResNet();
  TestTrainer trainer(graph, Replicated(graph, {.max_batch = 8}, 2));
  trainer.Gradients(0, 0, 8, 8);
  Plan& plan = trainer.plan();
  std::vector<std::string> names;
  absl::Duration sum;
  for (const PlanPart& part : plan.parts()) {
    names.push_back(part.name);
    EXPECT_GT(part.spent, absl::ZeroDuration()) << part.name;
    sum += part.spent;
  }
  EXPECT_THAT(names, ElementsAre("scatter", "replicate", "forward", "gather", "scatter_gradient",
                                 "backward", "reduce"));
  EXPECT_LE(sum, plan.kernel_time());
  const std::vector<DeviceUse> devices = plan.devices();
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[0].parameter_bytes, plan.parameter_elements() * sizeof(float));
  EXPECT_EQ(devices[1].parameter_bytes, 0u);  // shared with the first
  EXPECT_EQ(devices[1].gradient_bytes, devices[0].gradient_bytes);
  // The first one holds all images and all outputs besides.
  EXPECT_GE(devices[0].gathered_bytes, 8 * trainer.image_elements() * sizeof(float));
  EXPECT_EQ(devices[1].gathered_bytes, 0u);
  for (const DeviceUse& use : devices) {
    EXPECT_GT(use.activation_bytes, 0u);
    EXPECT_GT(use.busy, absl::ZeroDuration());
  }
}

// The two views of a sample stay together.
TEST(ReplicatedPlanTest, DividesSamplesNotRows) {
  const Graph graph = SmallResNet();
  TestTrainer replicated(graph, Replicated(graph, {.max_batch = 6}, 2, /*rows_per_sample=*/2));
  TestTrainer first(graph, {.max_batch = 6});
  replicated.Gradients(0, 0, 6, 6);  // three samples: one, then two
  first.Gradients(0, 0, 2, 6);
  ExpectBuffersClose(replicated, first);
}

// Nothing is touched but by the device's own calls.
TEST(ReplicatedPlanTest, OnMemoryThatTheProcessCannotReach) {
  const Graph graph = SmallResNet();
  ReplicaOptions options;
  options.devices = {&kernels::GuardedDevice()};
  const CompileOptions compiling{.max_batch = kBatch, .synchronize_batch_norm = true};
  auto plan = ReplicatedPlan::Make(graph, compiling, options);
  ASSERT_TRUE(plan.ok()) << plan.status();
  TestTrainer guarded(graph, *std::move(plan));
  TestTrainer alone(graph, {.max_batch = kBatch});
  const LossResult loss = guarded.Gradients(0, 0, kBatch, kBatch);
  EXPECT_NEAR(loss.loss_sum, alone.Gradients(0, 0, kBatch, kBatch).loss_sum, 1e-4);
  for (const ParameterInfo& info : alone.plan().parameters()) {
    ExpectClose(guarded.Gradient(info), alone.Gradient(info), 1e-5, info.name);
  }
}

TEST(ReplicatedPlanTest, NeedsADevice) {
  const auto plan = ReplicatedPlan::Make(SmallResNet(), {.max_batch = 1}, {});
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ReplicatedPlanTest, TakesWholeModelsOneBatchAtATime) {
  const Graph graph = SmallResNet();
  Graph part = graph;
  part.nodes.pop_back();
  part.outputs = {static_cast<NodeId>(part.nodes.size()) - 1};
  const ReplicaOptions options = {.devices = {&kernels::CpuDevice(), &kernels::CpuDevice()}};
  EXPECT_TRUE(ReplicatedPlan::Make(graph, {.max_batch = 2}, options).ok());
  EXPECT_EQ(ReplicatedPlan::Make(part, {.max_batch = 2}, options).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReplicatedPlan::Make(graph, {.max_batch = 2, .slots = 2}, options).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace muster::nn
