#include "trainer/rank/explain_plan.h"

#include <filesystem>
#include <sstream>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/counting/counting_device.h"
#include "kernels/testing/guarded_device.h"
#include "kernels/testing/limited_device.h"
#include "spec/spec.h"
#include "trainer/data/testing.h"
#include "trainer/exit_code.h"

namespace muster::rank {
namespace {

using ::testing::HasSubstr;

v1::JobSpec Spec(const std::vector<std::string>& overrides = {}) {
  auto spec = spec::Parse(R"(
train:
  model: {name: small_cnn}
  dataset: {name: fashion_mnist, path: /nowhere}
  epochs: 1
  global_batch: 37
  optimizer: {learning_rate: 0.1, momentum: 0.9}
  augment: {flip: true}
)",
                          "spec", overrides);
  EXPECT_TRUE(spec.ok()) << spec.status();
  spec::ApplyDefaults(*spec);
  EXPECT_TRUE(spec::Validate(*spec).ok()) << spec::Validate(*spec);
  return *spec;
}

TEST(ExplainPlanTest, PlansLargestShareWithoutData) {
  const auto report = ExplainPlan(Spec(), {.ranks = 4});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->ranks(), 4u);
  EXPECT_EQ(report->rows(), 10u);
  EXPECT_EQ(report->parameters(), 421834u);
  // At least parameters, gradients and momentum.
  EXPECT_GE(report->parameter_bytes(), 3u * 4 * 421834);
  EXPECT_GT(report->operations_size(), 4);
  EXPECT_FALSE(report->has_times());
}

TEST(ExplainPlanTest, PlansAccumulationAndViews) {
  const auto accumulated = ExplainPlan(Spec({"train.accumulation_steps=4"}), {.ranks = 2});
  ASSERT_TRUE(accumulated.ok()) << accumulated.status();
  EXPECT_EQ(accumulated->rows(), 5u);  // of 19
  const auto views = ExplainPlan(Spec({"train.objective.name=nt_xent"}), {.ranks = 2});
  ASSERT_TRUE(views.ok()) << views.status();
  EXPECT_EQ(views->rows(), 38u);
  EXPECT_EQ(views->views(), 2u);
  // The projection head replaces the classifier.
  EXPECT_EQ(views->operations().rbegin()->output().channels(), 128);
}

TEST(ExplainPlanTest, CountsShardOfOptimizerState) {
  const auto whole = ExplainPlan(Spec(), {.ranks = 4});
  const auto shared = ExplainPlan(Spec({"train.strategy.shard_optimizer=true"}), {.ranks = 4});
  ASSERT_TRUE(whole.ok() && shared.ok());
  // Three quarters of the momentum are on other ranks.
  EXPECT_NEAR(static_cast<double>(whole->parameter_bytes() - shared->parameter_bytes()),
              0.75 * 4 * 421834, 4096);
}

TEST(ExplainPlanTest, PlansMicroBatchesOfPipeline) {
  const auto report = ExplainPlan(
      Spec({"resources.ranks_per_node=4",
            "train.strategy={name: pipeline, pipeline: {stages: 2, micro_batches: 3}}"}),
      {.ranks = 4});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->rows(), 7u);  // largest of 3 micro-batches of 19 samples
  EXPECT_EQ(report->accumulation_steps(), 3u);
  EXPECT_EQ(report->parameters(), 421834u);
}

TEST(ExplainPlanTest, TimesOperations) {
  for (const auto& [objective, device] : {std::pair("cross_entropy", &kernels::CpuDevice()),
                                          {"nt_xent", &kernels::GuardedDevice()}}) {
    const auto report = ExplainPlan(
        Spec({absl::StrCat("train.objective.name=", objective), "train.optimizer.clip_norm=1"}),
        {.ranks = 4, .time = true, .time_budget = absl::ZeroDuration(), .device = device});
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->device(), device->name());
    EXPECT_EQ(report->times().steps(), 3u);
    EXPECT_GT(report->times().images_per_second(), 0);
    EXPECT_GT(report->times().objective_us(), 0);
    EXPECT_GT(report->times().optimizer_us(), 0);
    double shares = report->times().objective_share() + report->times().optimizer_share();
    for (const v1::PlanOperation& operation : report->operations()) shares += operation.share();
    EXPECT_NEAR(shares, 100, 1e-6);
  }
}

v1::JobSpec ResNet50Spec() {
  return Spec({"train.model={name: resnet50}", "train.dataset={name: cifar10, path: /nowhere}",
               "train.image_size=224", "train.global_batch=256", "train.precision=O2"});
}

TEST(ExplainPlanTest, CountsWorkOfResNet50OnH200) {
  const kernels::GpuModel* const model = kernels::FindGpuModel("h200");
  const auto device = kernels::MakeCountingDevice(*model);
  const auto report = ExplainPlan(ResNet50Spec(), {.device = device.get(), .gpu_model = model});
  ASSERT_TRUE(report.ok()) << report.status();
  const v1::PlanWork& work = report->work();
  EXPECT_EQ(work.gpu(), "h200");
  EXPECT_LE(work.total().nodes(), 420u);
  EXPECT_LE(work.bytes_per_convolution_output(), 14.5);
  // Three products per weight and position, except for the first layer's input.
  EXPECT_NEAR(static_cast<double>(work.total().flops()),
              256.0 * static_cast<double>(report->training_flops_per_image()),
              0.01 * static_cast<double>(work.total().flops()));
  v1::PlanPhaseWork sum;
  for (const v1::PlanOperation& operation : report->operations()) {
    EXPECT_GT(operation.forward_work().us(), 0) << operation.name();
    sum.set_nodes(sum.nodes() + operation.forward_work().nodes() +
                  operation.backward_work().nodes());
    sum.set_us(sum.us() + operation.forward_work().us() + operation.backward_work().us());
  }
  for (const v1::PlanPhaseWork& phase : {work.objective(), work.optimizer(), work.other()}) {
    sum.set_nodes(sum.nodes() + phase.nodes());
    sum.set_us(sum.us() + phase.us());
  }
  EXPECT_EQ(work.total().nodes(), sum.nodes());
  EXPECT_NEAR(work.total().us(), sum.us(), 1e-6 * sum.us());
  EXPECT_NEAR(work.images_per_second(), 256e6 / sum.us(), 1);
}

TEST(ExplainPlanTest, ListsKernelsThatAddUpToTheirPhase) {
  const kernels::GpuModel* const model = kernels::FindGpuModel("h200");
  const auto device = kernels::MakeCountingDevice(*model);
  const auto report =
      ExplainPlan(ResNet50Spec(), {.kernels = true, .device = device.get(), .gpu_model = model});
  ASSERT_TRUE(report.ok()) << report.status();
  const auto expect_sum = [](const v1::PlanPhaseWork& phase, const std::string& what) {
    SCOPED_TRACE(what);
    ASSERT_EQ(phase.kernels_size(), static_cast<int>(phase.nodes()));
    double bytes = 0, flops = 0, us = 0;
    for (const v1::PlanKernel& kernel : phase.kernels()) {
      EXPECT_NE(kernel.name(), "");
      bytes += static_cast<double>(kernel.bytes());
      flops += static_cast<double>(kernel.flops());
      us += kernel.us();
    }
    EXPECT_NEAR(bytes, static_cast<double>(phase.bytes()), phase.kernels_size());
    EXPECT_NEAR(flops, static_cast<double>(phase.flops()), phase.kernels_size());
    EXPECT_NEAR(us, phase.us(), 1e-6 * us);
  };
  for (const v1::PlanOperation& operation : report->operations()) {
    expect_sum(operation.forward_work(), operation.name() + " forward");
    expect_sum(operation.backward_work(), operation.name() + " backward");
  }
  expect_sum(report->work().objective(), "objective");
  expect_sum(report->work().optimizer(), "optimizer");
  expect_sum(report->work().other(), "other");
  // Forward and backward of conv1 read images that are cast once.
  EXPECT_EQ(report->operations(0).name(), "input.cast");
  const v1::PlanOperation& conv1 = report->operations(1);
  ASSERT_EQ(conv1.name(), "conv1");
  ASSERT_EQ(conv1.forward_work().kernels_size(), 1);
  EXPECT_EQ(conv1.forward_work().kernels(0).name(), "cudnn forward");
  ASSERT_EQ(conv1.backward_work().kernels_size(), 1);
  EXPECT_EQ(report->operations(2).forward_work().kernels(0).name(),
            "BlockKernel<PixelSumsBody<StatisticsTerms<Bfloat16, 8>, PrepareFinish<Bfloat16>, 8, "
            "2>>");
}

TEST(ExplainPlanTest, ReturnsExhaustionOfDeviceMemory) {
  kernels::LimitedDevice device;
  const ExplainPlanOptions options{
      .time = true, .time_budget = absl::ZeroDuration(), .device = &device};
  const auto explain = [&] { return ExplainPlan(Spec(), options).status(); };
  EXPECT_GT(AllocationsNeeded(device, explain), 6);
}

TEST(ExplainPlanTest, ReturnsBadSpecForInconsistentModel) {
  const auto report = ExplainPlan(
      Spec({"train.model={layers: [conv2d: {out_channels: 3, kernel: 40}, flatten, linear]}"}), {});
  EXPECT_EQ(report.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(train::ExitCodeOf(report.status()), train::kExitBadSpec);
}

TEST(ExplainPlanTest, CountsFoldersAsClasses) {
  const data::TemporaryDirectory directory;
  const std::vector<std::string> overrides = {
      "train.dataset={name: image_folder, path: " + directory.path() + "}", "train.image_size=16"};
  const auto missing = ExplainPlan(Spec(overrides), {});
  EXPECT_EQ(train::ExitCodeOf(missing.status()), train::kExitNoInput) << missing.status();
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr(directory.path() + "/train"));
  for (const char* name : {"cat", "dog", "owl"}) {
    const std::string folder = directory.path() + "/train/" + name;
    std::filesystem::create_directories(folder);
    data::WriteFile(folder + "/1.jpg", "not read");
  }
  const auto report = ExplainPlan(Spec(overrides), {});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->operations().rbegin()->output().channels(), 3);
  EXPECT_EQ(report->operations(0).inputs(0).channels(), 3);
}

TEST(RunExplainPlanTest, WritesAnswerInEveryCase) {
  const auto run = [](const std::vector<std::string>& flags, const std::string& input,
                      int exit_code) {
    std::istringstream in(input);
    std::ostringstream out;
    EXPECT_EQ(RunExplainPlan(flags, in, out), exit_code);
    v1::PlanAnswer answer;
    EXPECT_TRUE(answer.ParseFromString(out.str()));
    return answer;
  };
  const std::string spec = Spec().SerializeAsString();
  EXPECT_EQ(run({"--ranks=2"}, spec, 0).report().rows(), 19u);
  EXPECT_EQ(run({"--device=cpu"}, spec, 0).report().device(), "cpu");
  // There is no CUDA library next to this program; it is required only if a GPU is requested.
  EXPECT_THAT(run({"--device=cuda"}, spec, train::kExitNoDevice).error(),
              HasSubstr("/trainer/rank/libmuster-cuda.so"));
  const v1::JobSpec on_gpu = Spec({"resources.device=gpu"});
  EXPECT_EQ(run({}, on_gpu.SerializeAsString(), 0).report().device(), "cpu");
  EXPECT_EQ(run({"--device=h100"}, spec, 0).report().work().gpu(), "h100");
  EXPECT_THAT(run({"--device=h100", "--time"}, spec, 1).error(), HasSubstr("needs a GPU"));
  const v1::PlanReport with_kernels = run({"--device=h100", "--kernels"}, spec, 0).report();
  EXPECT_GT(with_kernels.operations(0).forward_work().kernels_size(), 0);
  EXPECT_THAT(run({"--device=cpu", "--kernels"}, spec, 1).error(), HasSubstr("--device=h100"));
  EXPECT_THAT(run({"--device=tpu"}, spec, 1).error(), HasSubstr("unknown flag --device=tpu"));
  EXPECT_THAT(run({"--ranks=0"}, spec, 1).error(), HasSubstr("unknown flag --ranks=0"));
  EXPECT_THAT(run({"--ranks=x"}, spec, 1).error(), HasSubstr("unknown flag"));
  EXPECT_THAT(run({}, "\xff\xff", 1).error(), HasSubstr("not a serialized JobSpec"));
  EXPECT_THAT(run({}, "", 1).error(), HasSubstr("not a train job's"));
  const v1::JobSpec unfit =
      Spec({"train.model={layers: [relu, avg_pool2d: {kernel: 99}, flatten, linear]}"});
  EXPECT_THAT(run({}, unfit.SerializeAsString(), 78).error(), HasSubstr("layer 1: kernel size 99"));
}

}  // namespace
}  // namespace muster::rank
