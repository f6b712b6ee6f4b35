#include "trainer/graph/plan_report.h"

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::nn {
namespace {

// A convolution, batch norm with ReLU, a residual sum, and a linear layer.
Graph SmallGraph() {
  Graph graph;
  graph.input = {6, 5, 2};
  NodeId node = graph.Add("conv1", Conv2d{.out_channels = 4, .kernel = 3, .padding = 1}, {kInput});
  const NodeId shortcut = graph.Add("bn1", BatchNorm2d{}, {node});
  node = graph.Add("conv2", Conv2d{.out_channels = 4, .kernel = 1, .bias = false}, {shortcut});
  node = graph.Add("add", Add{}, {node, shortcut});
  node = graph.Add("flatten", Flatten{}, {node});
  graph.Add("fc", Linear{.out_features = 3}, {node});
  return graph;
}

const v1::PlanOperation* Find(const v1::PlanReport& report, const std::string& name) {
  for (const v1::PlanOperation& operation : report.operations()) {
    if (operation.name() == name) return &operation;
  }
  ADD_FAILURE() << "no operation " << name << " in " << report.DebugString();
  return nullptr;
}

TEST(PlanReportTest, CountsMatchManualCounts) {
  const auto plan = CompiledPlan::Make(SmallGraph(), {.max_batch = 7});
  ASSERT_TRUE(plan.ok()) << plan.status();
  const v1::PlanReport report =
      DescribePlan(**plan, {.samples = 7, .accumulation_steps = 2, .views = 2});
  EXPECT_EQ(report.rows(), 7u);
  EXPECT_EQ(report.parameters(), 4u * 2 * 9 + 4 + 2 * 4 + 4 * 4 + 3 * 4 * 30 + 3);
  EXPECT_EQ(report.arena_bytes(), (*plan)->arena_bytes());

  const v1::PlanOperation* const conv1 = Find(report, "conv1");
  ASSERT_NE(conv1, nullptr);
  EXPECT_EQ(conv1->kind(), "conv2d");
  EXPECT_EQ(conv1->dtype(), "float32");
  EXPECT_EQ(conv1->compute_dtype(), "float32");
  EXPECT_EQ(conv1->evaluation(), "in bn1");
  EXPECT_FALSE(conv1->kernel().empty());
  EXPECT_EQ(conv1->parameters(), 76u);
  const uint64_t conv1_row = 2 * 6 * 5 * 4 * 2 * 9;
  EXPECT_EQ(conv1->forward_flops(), 14 * conv1_row);
  EXPECT_EQ(conv1->activation_bytes(), 7u * 6 * 5 * 4 * 4);
  EXPECT_EQ(conv1->inputs(0).height(), 6);
  EXPECT_EQ(conv1->inputs(0).channels(), 2);
  EXPECT_EQ(conv1->output().channels(), 4);
  const v1::PlanOperation* const fc = Find(report, "fc");
  ASSERT_NE(fc, nullptr);
  const uint64_t fc_sample = 2 * 120 * 3;
  EXPECT_EQ(fc->forward_flops(), 14 * fc_sample);

  uint64_t forward = 0;
  for (const v1::PlanOperation& operation : report.operations()) {
    forward += operation.forward_flops() / 7;
  }
  EXPECT_EQ(report.forward_flops_per_image(), forward);
  // The first layer's input needs no gradient. With it, all other layers compute three times as
  // much, those without parameters twice.
  EXPECT_GT(report.training_flops_per_image(), 2 * forward);
  EXPECT_LE(report.training_flops_per_image(), 3 * forward - 2 * conv1_row);
  EXPECT_FALSE(report.has_times());
  EXPECT_FALSE(conv1->has_forward_us());
}

TEST(PlanReportTest, ReportsDtypesAndBytesPerDtype) {
  const auto plan =
      CompiledPlan::Make(SmallGraph(), {.max_batch = 7,
                                        .device = &kernels::ReferenceDevice(),
                                        .precision = PrecisionOf(2, kernels::DataType::kBfloat16)});
  ASSERT_TRUE(plan.ok()) << plan.status();
  const v1::PlanReport report = DescribePlan(**plan, {.samples = 7});
  const v1::PlanOperation* const conv1 = Find(report, "conv1");
  EXPECT_EQ(conv1->input_dtypes(0), "float32");
  EXPECT_EQ(conv1->dtype(), "bfloat16");
  EXPECT_EQ(conv1->compute_dtype(), "bfloat16");
  const v1::PlanOperation* const bn1 = Find(report, "bn1");
  EXPECT_EQ(bn1->evaluation(), "with conv1");
  EXPECT_EQ(bn1->recomputed(), "normalised values");
  EXPECT_EQ(Find(report, "fc")->dtype(), "float32");
  ASSERT_EQ(report.activation_bytes_size(), 2);
  // conv1, bn1, conv2 and the sum; the batch and the logits.
  EXPECT_EQ(report.activation_bytes(0).dtype(), "bfloat16");
  EXPECT_EQ(report.activation_bytes(0).bytes(), 4u * 7 * 6 * 5 * 4 * 2);
  EXPECT_EQ(report.activation_bytes(1).dtype(), "float32");
  EXPECT_EQ(report.activation_bytes(1).bytes(), 7u * (6 * 5 * 2 + 3) * 4);
}

TEST(PlanReportTest, SharesOfTimeAddUpToOneHundredPercent) {
  auto made = CompiledPlan::Make(SmallGraph(), {.max_batch = 7});
  ASSERT_TRUE(made.ok()) << made.status();
  CompiledPlan& plan = **made;
  // The plan requires 64-byte alignment.
  const size_t count = plan.parameter_elements() + 16;
  std::vector<float> memory(3 * count + plan.buffer_elements() + 64);
  float* const base = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) / 4;
  const size_t stride = (plan.parameter_elements() + 15) / 16 * 16;
  plan.Bind(base, base + stride, base + 2 * stride);
  plan.Initialize(1);
  std::iota(plan.input(), plan.input() + 7 * 60, 0.0f);
  std::fill_n(plan.labels(), 7, 1);

  PlanTimer timer(&plan);
  int objectives = 0;
  for (int step = 0; step < 3; ++step) {
    timer.BeginStep();
    for (int i = 0; i < 2; ++i) {
      plan.Forward(7, /*training=*/true, {});
      timer.Objective([&] {
        plan.Loss(7, 0, 1);
        ++objectives;
      });
      plan.Backward(7, nullptr);
    }
    timer.Optimizer([] {});
    timer.EndStep();
  }
  EXPECT_EQ(objectives, 6);
  v1::PlanReport report = DescribePlan(plan, {.samples = 7, .accumulation_steps = 2});
  AddTimes(timer, report);
  EXPECT_EQ(report.times().steps(), 3u);
  double shares = report.times().objective_share() + report.times().optimizer_share();
  double sum = report.times().objective_us() + report.times().optimizer_us();
  for (const v1::PlanOperation& operation : report.operations()) {
    EXPECT_GE(operation.forward_us(), 0) << operation.name();
    shares += operation.share();
    sum += operation.forward_us() + operation.backward_us();
  }
  EXPECT_NEAR(shares, 100, 1e-6);
  EXPECT_GT(Find(report, "conv1")->forward_us(), 0);
  EXPECT_GT(Find(report, "conv1")->backward_us(), 0);
  EXPECT_GT(report.times().objective_us(), 0);
  // The sum of the phases is at most the step, within the accuracy of medians of three steps.
  EXPECT_LT(sum, 3 * report.times().step_us());
  EXPECT_DOUBLE_EQ(report.times().images_per_second(), 14 / (report.times().step_us() * 1e-6));
}

}  // namespace
}  // namespace muster::nn
