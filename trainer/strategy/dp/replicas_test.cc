// Expects replicas on several devices to give the results of a plan on one device.
#include "trainer/strategy/dp/replicas.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/testing/guarded_device.h"
#include "trainer/graph/testing/graphs.h"
#include "trainer/graph/testing/trainer.h"

namespace muster::train {
namespace {

using nn::CompileOptions;
using nn::ExpectBuffersClose;
using nn::ExpectClose;
using nn::Graph;
using nn::LossResult;
using nn::ParameterInfo;
using nn::SmallResNet;
using nn::TestGraph;
using nn::TestGraphs;
using nn::TestTrainer;

constexpr uint32_t kBatch = 13;

std::unique_ptr<Replicas> Replicated(const Graph& graph, const CompileOptions& compiling,
                                     size_t devices, uint32_t views = 1) {
  ReplicaOptions options;
  options.devices.assign(devices, &kernels::CpuDevice());
  options.views = views;
  auto replicas = Replicas::Compile(graph, compiling, options);
  EXPECT_TRUE(replicas.ok()) << replicas.status();
  return *std::move(replicas);
}

void ExpectSameStep(TestTrainer& actual, TestTrainer& expected, uint64_t step, uint32_t samples) {
  const LossResult loss = actual.Gradients(step, 5, samples, samples);
  const LossResult expected_loss = expected.Gradients(step, 5, samples, samples);
  EXPECT_NEAR(loss.loss_sum, expected_loss.loss_sum, 1e-5 * expected_loss.loss_sum);
  EXPECT_EQ(loss.correct, expected_loss.correct);
  ExpectClose({actual.gradients(), actual.elements()}, {expected.gradients(), expected.elements()},
              1e-5, "gradients");
}

class ReplicasTest : public testing::TestWithParam<TestGraph> {};

// Also with devices that have no samples. Batch norm statistics are synchronized over the devices.
TEST_P(ReplicasTest, TrainsLikeOneDevice) {
  const Graph& graph = GetParam().graph;
  for (const size_t devices : {1, 2, 3, 4}) {
    TestTrainer alone(graph, {.max_batch = kBatch});
    const auto replicas =
        Replicated(graph, {.max_batch = kBatch, .synchronize_batch_norm = true}, devices);
    TestTrainer replicated(graph, &replicas->plan(0), replicas.get());
    uint64_t step = 0;
    for (const uint32_t samples : {kBatch, 6u, 2u}) {
      ExpectSameStep(replicated, alone, step++, samples);
      ExpectBuffersClose(replicated, alone);
      alone.Update();
      replicated.Update();
    }
    for (TestTrainer* trainer : {&alone, &replicated}) {
      trainer->Fill(step, 0, kBatch);
      trainer->execution().Forward(kBatch, /*training=*/false);
    }
    ExpectClose(replicas->logits(kBatch), alone.plan().logits(kBatch), 1e-4, "logits");
    LossResult loss;
    replicas->QueueLoss(kBatch, {.scale = 0}, &loss);
    EXPECT_NEAR(loss.loss_sum, alone.plan().Loss(kBatch, 0, 0).loss_sum, 1e-3);
  }
}

INSTANTIATE_TEST_SUITE_P(Graphs, ReplicasTest, testing::ValuesIn(TestGraphs()),
                         [](const auto& info) { return info.param.name; });

// Each device computes statistics of its own samples; those of the first are kept.
TEST(ReplicasTest, KeepsRunningStatisticsOfFirstDevice) {
  const Graph graph = SmallResNet();
  const auto replicas = Replicated(graph, {.max_batch = 8}, 2);
  TestTrainer replicated(graph, &replicas->plan(0), replicas.get());
  TestTrainer first(graph, {.max_batch = 8});
  replicated.Gradients(0, 0, 8, 8);
  first.Gradients(0, 0, 4, 8);
  ExpectBuffersClose(replicated, first);
}

// Simulates a second process with the same samples.
class Doubling final : public nn::StatisticsReducer {
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

TEST(ReplicasTest, SumsStatisticsWithOtherProcesses) {
  const Graph graph = SmallResNet();
  const CompileOptions compiling{.max_batch = 8, .synchronize_batch_norm = true};
  const auto replicas = Replicated(graph, compiling, 3);
  TestTrainer replicated(graph, &replicas->plan(0), replicas.get());
  TestTrainer alone(graph, compiling);
  Doubling ours, theirs;
  replicas->set_statistics_reducer(&ours);
  alone.plan().set_statistics_reducer(&theirs);
  ExpectSameStep(replicated, alone, 0, 8);
  ExpectBuffersClose(replicated, alone);
  EXPECT_EQ(ours.calls, theirs.calls);
  EXPECT_GT(ours.calls, 0);
}

TEST(ReplicasTest, ReportsTimesAndMemoryOfEachDevice) {
  const Graph graph = SmallResNet();
  const auto replicas = Replicated(graph, {.max_batch = 8}, 2);
  TestTrainer trainer(graph, &replicas->plan(0), replicas.get());
  trainer.Gradients(0, 0, 8, 8);
  const ReplicaTimes& times = replicas->times();
  for (const absl::Duration phase : {times.scatter, times.replicate, times.forward, times.gather,
                                     times.scatter_gradient, times.backward, times.reduce}) {
    EXPECT_GT(phase, absl::ZeroDuration());
  }
  EXPECT_LE(times.sum(), replicas->kernel_time());
  ASSERT_EQ(replicas->size(), 2u);
  EXPECT_FALSE(replicas->shares_parameters(0));
  EXPECT_TRUE(replicas->shares_parameters(1));
  // At least the whole batch.
  EXPECT_GE(replicas->gathered_bytes(), 8 * trainer.image_elements() * sizeof(float));
  for (size_t device = 0; device < 2; ++device) {
    EXPECT_GT(replicas->busy(device), absl::ZeroDuration());
  }
}

// The two views of a sample stay on one device.
TEST(ReplicasTest, KeepsViewsOfSampleTogether) {
  const Graph graph = SmallResNet();
  const auto replicas = Replicated(graph, {.max_batch = 6}, 2, /*views=*/2);
  TestTrainer replicated(graph, &replicas->plan(0), replicas.get());
  TestTrainer first(graph, {.max_batch = 6});
  replicated.Gradients(0, 0, 6, 6);  // three samples: one, then two
  first.Gradients(0, 0, 2, 6);
  ExpectBuffersClose(replicated, first);
}

// Memory is accessed only through device calls.
TEST(ReplicasTest, TrainsInDeviceMemory) {
  const Graph graph = SmallResNet();
  ReplicaOptions options;
  options.devices = {&kernels::GuardedDevice()};
  const CompileOptions compiling{.max_batch = kBatch, .synchronize_batch_norm = true};
  const auto replicas = Replicas::Compile(graph, compiling, options);
  ASSERT_TRUE(replicas.ok()) << replicas.status();
  TestTrainer guarded(graph, &(*replicas)->plan(0), replicas->get());
  TestTrainer alone(graph, {.max_batch = kBatch});
  const LossResult loss = guarded.Gradients(0, 0, kBatch, kBatch);
  EXPECT_NEAR(loss.loss_sum, alone.Gradients(0, 0, kBatch, kBatch).loss_sum, 1e-4);
  for (const ParameterInfo& info : alone.plan().parameters()) {
    ExpectClose(guarded.Gradient(info), alone.Gradient(info), 1e-5, info.name);
  }
}

TEST(ReplicasTest, RejectsEmptyDeviceList) {
  const auto replicas = Replicas::Compile(SmallResNet(), {.max_batch = 1}, {});
  EXPECT_EQ(replicas.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ReplicasTest, RejectsPartialModelsAndSeveralMicroBatches) {
  const Graph graph = SmallResNet();
  Graph part = graph;
  part.nodes.pop_back();
  part.outputs = {static_cast<nn::NodeId>(part.nodes.size()) - 1};
  const ReplicaOptions options = {.devices = {&kernels::CpuDevice(), &kernels::CpuDevice()}};
  EXPECT_TRUE(Replicas::Compile(graph, {.max_batch = 2}, options).ok());
  EXPECT_EQ(Replicas::Compile(part, {.max_batch = 2}, options).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Replicas::Compile(graph, {.max_batch = 2, .in_flight_micro_batches = 2}, options)
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace muster::train
