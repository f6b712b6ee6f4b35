// Tests synchronized batch norm: training must not depend on the number of ranks. Ranks are
// threads.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "collectives/testing.h"
#include "gtest/gtest.h"
#include "kernels/aligned_floats.h"
#include "trainer/graph/graph.h"
#include "trainer/graph/plan.h"
#include "trainer/loop/testing.h"
#include "trainer/objective/distributed_plan.h"
#include "trainer/objective/statistics_reducer.h"

namespace muster::train {
namespace {

v1::ObjectiveSpec CrossEntropy() {
  v1::ObjectiveSpec spec;
  spec.set_name("cross_entropy");
  return spec;
}

v1::ObjectiveSpec NtXent() {
  v1::ObjectiveSpec spec;
  spec.set_name("nt_xent");
  spec.set_temperature(0.3);
  spec.set_negatives("global");
  return spec;
}

// Batch norm fused with other operations, in a residual block, and alone.
nn::Graph BatchNormGraph() {
  nn::Graph graph;
  graph.input = {.height = 6, .width = 8, .channels = 3};
  nn::NodeId node = graph.Add("conv1", nn::Conv2d{8, 3, 1, 1}, {nn::kInput});
  node = graph.Add("bn1", nn::BatchNorm2d{}, {node});
  node = graph.Add("relu1", nn::Relu{}, {node});
  const nn::NodeId shortcut = graph.Add("pool", nn::MaxPool2d{}, {node});
  node = graph.Add("conv2", nn::Conv2d{8, 3, 1, 1, 1, /*bias=*/false}, {shortcut});
  node = graph.Add("bn2", nn::BatchNorm2d{}, {node});
  node = graph.Add("add", nn::Add{}, {node, shortcut});
  node = graph.Add("relu2", nn::Relu{}, {node});
  node = graph.Add("avgpool", nn::AdaptiveAvgPool2d{}, {node});
  node = graph.Add("flatten", nn::Flatten{}, {node});
  graph.Add("fc", nn::Linear{.out_features = 5}, {node});
  return graph;
}

class SyncBatchNormTest : public testing::TestWithParam<v1::ObjectiveSpec> {
 protected:
  static DistributedOptions Options(uint32_t ranks, uint32_t samples, bool synchronize) {
    return {.ranks = ranks,
            .samples = samples,
            .steps = 4,
            .synchronize_batch_norm = synchronize,
            .objective = GetParam()};
  }
};

TEST_P(SyncBatchNormTest, TrainsIdenticallyOnAnyNumberOfRanks) {
  // Uneven shares; with three samples, one of four ranks has no sample.
  for (const uint32_t samples : {16u, 10u, 3u}) {
    // A single rank needs no synchronization.
    const auto one = TrainDistributed(BatchNormGraph(), Options(1, samples, false));
    for (const uint32_t ranks : {1u, 2u, 4u}) {
      ExpectSameSteps(TrainDistributed(BatchNormGraph(), Options(ranks, samples, true)), one, 1e-5,
                      absl::StrCat(samples, " samples on ", ranks, " ranks"));
    }
  }
}

TEST_P(SyncBatchNormTest, TrainsIdenticallyOnEveryBackend) {
  const auto one = TrainDistributed(BatchNormGraph(), Options(1, 10, false));
  for (const std::string backend : {"shm", "gloo", "hierarchical"}) {
    DistributedOptions options = Options(4, 10, true);
    options.backend = backend;
    options.ranks_per_node = backend == "hierarchical" ? 2 : 4;
    ExpectSameSteps(TrainDistributed(BatchNormGraph(), options), one, 1e-5, backend);
  }
}

TEST_P(SyncBatchNormTest, TrainsDifferentlyWithoutSynchronization) {
  const auto one = TrainDistributed(BatchNormGraph(), Options(1, 10, false));
  const auto four = TrainDistributed(BatchNormGraph(), Options(4, 10, false));
  EXPECT_GT(std::abs(one[0].loss_sum - four[0].loss_sum), 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Objectives, SyncBatchNormTest, testing::Values(CrossEntropy(), NtXent()),
                         [](const auto& info) { return info.param.name(); });

TEST(CommunicatorReducerTest, SumsOverRanks) {
  const auto world = MakeLoopbackGroup(3);
  const auto results = collectives::RunRankThreads(3, [&](uint32_t rank) -> absl::Status {
    auto reducer = CommunicatorReducer::ByProcesses(world[rank].get(), &kernels::CpuDevice());
    double values[] = {1e-9 + rank, 10.0 * rank};
    reducer.Sum(values, 2);
    EXPECT_DOUBLE_EQ(values[0], 3 + 3e-9);
    EXPECT_EQ(values[1], 30);
    float floats[] = {1, static_cast<float>(rank)};
    reducer.Sum(floats, 2);
    EXPECT_EQ(floats[0], 3);
    EXPECT_EQ(floats[1], 3);
    return reducer.status();
  });
  for (const std::string& result : results) EXPECT_EQ(result, "");
}

// A rank waits for a peer in the middle of a step. The abort ends the step and all later sums.
TEST(CommunicatorReducerTest, AbortEndsStep) {
  const auto world = MakeLoopbackGroup(2);
  const absl::Status reason = absl::AbortedError("the generation is over");
  absl::Time aborted;
  const auto results = collectives::RunRankThreads(2, [&](uint32_t rank) -> absl::Status {
    constexpr uint32_t kSamples = 4;
    auto plan =
        nn::Compile(BatchNormGraph(), {.max_batch = kSamples, .synchronize_batch_norm = true});
    if (!plan.ok()) return plan.status();
    const auto parameters = kernels::MakeAlignedFloats((*plan)->parameter_elements());
    const auto gradients = kernels::MakeAlignedFloats((*plan)->parameter_elements());
    const auto buffers = kernels::MakeAlignedFloats((*plan)->buffer_elements());
    (*plan)->Bind(parameters.get(), gradients.get(), buffers.get());
    (*plan)->Initialize(1);
    auto reducer = CommunicatorReducer::ByProcesses(world[rank].get(), &kernels::CpuDevice());
    (*plan)->set_statistics_reducer(&reducer);
    (*plan)->Forward(kSamples, /*training=*/true, {});
    if (!reducer.status().ok()) return reducer.status();
    if (rank == 1) {
      aborted = absl::Now();
      world[0]->Abort(reason);
      return absl::OkStatus();
    }
    (*plan)->Loss(kSamples, 0, 1);
    (*plan)->Backward(kSamples, [](size_t) {});
    (*plan)->Forward(kSamples, /*training=*/true, {});
    EXPECT_EQ(reducer.status(), reason);
    return absl::OkStatus();
  });
  EXPECT_LT(absl::Now() - aborted, absl::Seconds(2));
  for (const std::string& result : results) EXPECT_EQ(result, "");
}

}  // namespace
}  // namespace muster::train
