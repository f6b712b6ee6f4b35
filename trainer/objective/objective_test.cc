#include "trainer/objective/objective.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/aligned_floats.h"
#include "trainer/graph/plan.h"
#include "trainer/loop/testing.h"
#include "trainer/objective/distributed_plan.h"

namespace muster::train {
namespace {

using testing::HasSubstr;

v1::ObjectiveSpec CrossEntropy(double label_smoothing) {
  v1::ObjectiveSpec spec;
  spec.set_name("cross_entropy");
  spec.set_label_smoothing(label_smoothing);
  return spec;
}

v1::ObjectiveSpec NtXent(const std::string& negatives = "global") {
  v1::ObjectiveSpec spec;
  spec.set_name("nt_xent");
  spec.set_temperature(0.3);
  spec.set_negatives(negatives);
  return spec;
}

// A convolution with a projection head, without batch norm.
nn::Graph ProjectionGraph() {
  nn::Graph graph;
  graph.input = {.height = 5, .width = 7, .channels = 2};
  nn::NodeId node = graph.Add("conv", nn::Conv2d{.out_channels = 6, .kernel = 3}, {nn::kInput});
  node = graph.Add("relu1", nn::Relu{}, {node});
  node = graph.Add("flatten", nn::Flatten{}, {node});
  node = graph.Add("fc.0", nn::Linear{.out_features = 19}, {node});
  node = graph.Add("fc.1", nn::Relu{}, {node});
  graph.Add("fc.2", nn::Linear{.out_features = 11}, {node});
  return graph;
}

TEST(ObjectiveTest, NtXentTrainsIdenticallyOnAnyNumberOfRanks) {
  for (const uint32_t samples : {10u, 3u}) {
    DistributedOptions options{.samples = samples, .steps = 3, .objective = NtXent()};
    const auto one = TrainDistributed(ProjectionGraph(), options);
    for (const uint32_t ranks : {2u, 4u}) {
      options.ranks = ranks;
      ExpectSameSteps(TrainDistributed(ProjectionGraph(), options), one, 1e-5,
                      absl::StrCat(samples, " samples on ", ranks, " ranks"));
    }
  }
}

// With all process backends, and with the node's group in addition to the world.
TEST(ObjectiveTest, NtXentTrainsIdenticallyOnEveryBackend) {
  DistributedOptions options{.samples = 10, .steps = 2, .objective = NtXent()};
  const auto one = TrainDistributed(ProjectionGraph(), options);
  options.ranks = 4;
  for (const std::string backend : {"shm", "gloo", "hierarchical"}) {
    options.backend = backend;
    options.ranks_per_node = backend == "hierarchical" ? 2 : 4;
    options.objective = NtXent("global");
    ExpectSameSteps(TrainDistributed(ProjectionGraph(), options), one, 1e-5, backend);
    if (options.ranks_per_node < 4) continue;
    // A single node has all samples.
    options.objective = NtXent("node");
    ExpectSameSteps(TrainDistributed(ProjectionGraph(), options), one, 1e-5, backend + ", node");
  }
}

// Two nodes with half of the batch each compute the losses of two separate halves.
TEST(ObjectiveTest, UsesNegativesOfNode) {
  DistributedOptions options{
      .ranks = 4, .ranks_per_node = 2, .samples = 12, .objective = NtXent("node")};
  const auto by_four = TrainDistributed(ProjectionGraph(), options);
  options.ranks = 2;
  options.ranks_per_node = 1;
  options.objective = NtXent("rank");
  ExpectSameSteps(by_four, TrainDistributed(ProjectionGraph(), options), 1e-5, "halves");
}

TEST(ObjectiveTest, CrossEntropyTrainsIdenticallyOnAnyNumberOfRanks) {
  DistributedOptions options{.samples = 10, .steps = 3, .objective = CrossEntropy(0.1)};
  const auto one = TrainDistributed(ProjectionGraph(), options);
  options.ranks = 4;
  ExpectSameSteps(TrainDistributed(ProjectionGraph(), options), one, 1e-5, "cross-entropy");
}

TEST(ObjectiveTest, UsesFewerNegativesPerRank) {
  DistributedOptions options{.ranks = 2, .samples = 6, .objective = NtXent()};
  const auto global = TrainDistributed(ProjectionGraph(), options);
  options.objective = NtXent("rank");
  const auto own = TrainDistributed(ProjectionGraph(), options);
  EXPECT_LT(own[0].loss_sum, global[0].loss_sum - 1);
}

// A plan of one rank after one forward pass.
class PlanTest : public testing::Test {
 protected:
  static constexpr uint32_t kSamples = 8;

  void SetUp() override {
    auto plan = nn::Compile(ProjectionGraph(), {.max_batch = kSamples});
    ASSERT_TRUE(plan.ok()) << plan.status();
    plan_ = *std::move(plan);
    parameters_ = kernels::MakeAlignedFloats(plan_->parameter_elements());
    gradients_ = kernels::MakeAlignedFloats(plan_->parameter_elements());
    plan_->Bind(parameters_.get(), gradients_.get(), nullptr);
    plan_->Initialize(2);
    for (uint32_t i = 0; i < kSamples * 70; ++i) {
      plan_->input()[i] = std::sin(static_cast<float>(i));
    }
    for (uint32_t sample = 0; sample < kSamples; ++sample) {
      plan_->labels()[sample] = static_cast<int32_t>(sample);
    }
    plan_->Forward(kSamples, /*training=*/true, {});
  }

  std::unique_ptr<Objective> Make(const v1::ObjectiveSpec& spec) {
    auto objective = Objective::Create(spec, ProcessGroups{}, kSamples, 11);
    EXPECT_TRUE(objective.ok()) << objective.status();
    return *std::move(objective);
  }

  std::vector<float> OutputGradient() const {
    return {plan_->output_gradient(), plan_->output_gradient() + kSamples * 11};
  }

  std::unique_ptr<nn::Plan> plan_;
  kernels::AlignedFloats parameters_, gradients_;
};

TEST_F(PlanTest, CrossEntropyEqualsLossOfPlan) {
  const auto objective = Make(CrossEntropy(0.2));
  EXPECT_EQ(objective->views(), 1u);
  const auto loss = objective->Compute(*plan_, kSamples, 32, /*training=*/true);
  ASSERT_TRUE(loss.ok()) << loss.status();
  const std::vector<float> gradient = OutputGradient();
  EXPECT_EQ(loss->loss_sum, plan_->Loss(kSamples, 0.2, 1.0f / 32).loss_sum);
  EXPECT_EQ(gradient, OutputGradient());
  // No label smoothing in evaluation.
  const auto plain = objective->Compute(*plan_, kSamples, 32, /*training=*/false);
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->loss_sum, plan_->Loss(kSamples, 0, 0).loss_sum);
  EXPECT_NE(plain->loss_sum, loss->loss_sum);
}

TEST_F(PlanTest, NtXentWritesGradientOnlyInTraining) {
  const auto objective = Make(NtXent("rank"));
  EXPECT_EQ(objective->views(), 2u);
  std::fill_n(plan_->output_gradient(), kSamples * 11, 7.0f);
  const auto evaluated = objective->Compute(*plan_, kSamples, kSamples, /*training=*/false);
  ASSERT_TRUE(evaluated.ok()) << evaluated.status();
  EXPECT_THAT(OutputGradient(), testing::Each(7.0f));
  const auto trained = objective->Compute(*plan_, kSamples, kSamples, /*training=*/true);
  ASSERT_TRUE(trained.ok()) << trained.status();
  EXPECT_EQ(trained->loss_sum, evaluated->loss_sum);
  // The loss does not depend on an embedding's length, so each gradient is orthogonal to it.
  for (uint32_t sample = 0; sample < kSamples; ++sample) {
    double product = 0, size = 0;
    for (uint32_t i = sample * 11; i < (sample + 1) * 11; ++i) {
      product += double{plan_->logits(kSamples)[i]} * double{plan_->output_gradient()[i]};
      size += std::abs(double{plan_->output_gradient()[i]});
    }
    EXPECT_NEAR(product, 0, 1e-6);
    EXPECT_GT(size, 1e-3);
  }
}

TEST(ObjectiveTest, RejectsUnsupportedSpecs) {
  const auto message = [](const v1::ObjectiveSpec& spec) {
    return std::string(Objective::Create(spec, ProcessGroups{}, 8, 11).status().message());
  };
  v1::ObjectiveSpec spec = CrossEntropy(0);
  spec.set_name("hinge");
  EXPECT_THAT(message(spec), HasSubstr("train.objective.name: unknown 'hinge'"));
  EXPECT_THAT(message(NtXent("some")), HasSubstr("train.objective.negatives: unknown 'some'"));
  EXPECT_THAT(message(NtXent("global")), HasSubstr("no process group for 'global'"));
  EXPECT_THAT(message(NtXent("node")), HasSubstr("no process group for 'node'"));
  spec = NtXent("rank");
  spec.set_temperature(0);
  EXPECT_THAT(message(spec), HasSubstr("temperature"));
}

TEST(ObjectiveTest, NeedsLocalGroupOnlyForNegativesOfNode) {
  EXPECT_TRUE(NeedsLocalGroup(NtXent("node")));
  EXPECT_FALSE(NeedsLocalGroup(NtXent("global")));
  EXPECT_FALSE(NeedsLocalGroup(NtXent("rank")));
  v1::ObjectiveSpec spec = CrossEntropy(0);
  spec.set_negatives("node");
  EXPECT_FALSE(NeedsLocalGroup(spec));
}

}  // namespace
}  // namespace muster::train
