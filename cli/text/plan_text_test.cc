#include "cli/text/plan_text.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::cli {
namespace {

using ::testing::HasSubstr;

v1::PlanReport Report() {
  v1::PlanReport report;
  report.set_ranks(2);
  report.set_rows(64);
  report.set_accumulation_steps(1);
  report.set_views(1);
  report.set_parameters(421834);
  report.set_arena_bytes(24 << 20);
  report.set_parameter_bytes(5 << 20);
  report.set_forward_flops_per_image(8'490'000);
  report.set_training_flops_per_image(24'900'000);
  v1::PlanOperation& conv = *report.add_operations();
  conv.set_name("0");
  conv.set_kind("conv2d");
  conv.add_inputs()->set_height(28);
  conv.mutable_inputs(0)->set_width(28);
  conv.mutable_inputs(0)->set_channels(1);
  *conv.mutable_output() = conv.inputs(0);
  conv.mutable_output()->set_channels(32);
  conv.set_dtype("float32");
  conv.add_input_dtypes("float32");
  conv.set_compute_dtype("float32");
  conv.set_kernel("direct 3x3");
  conv.set_parameters(320);
  conv.set_forward_flops(28'901'376);
  conv.set_activation_bytes(6'422'528);
  conv.set_saved_bytes(1 << 20);
  conv.set_arena_offset(200704);
  v1::PlanOperation& add = *report.add_operations();
  add = conv;
  add.set_name("add");
  *add.add_inputs() = conv.inputs(0);
  add.set_parameters(0);
  add.set_dtype("bfloat16");
  add.add_input_dtypes("bfloat16");
  add.set_evaluation("in bn");
  add.set_recomputed("random mask");
  return report;
}

TEST(PlanTableTest, PrintsColumns) {
  EXPECT_EQ(PlanTable(Report(), /*wide=*/false),
            "LAYER  KIND    INPUT              OUTPUT    DTYPE               COMPUTE  KERNEL      "
            "PARAMETERS  BYTES    FLOPS   OFFSET\n"
            "0      conv2d  28x28x1            28x28x32  float32             float32  direct 3x3  "
            "320         6.1 MiB  28.9 M  200,704\n"
            "add    conv2d  28x28x1 + 28x28x1  28x28x32  float32 > bfloat16  float32  direct 3x3  "
            "-           6.1 MiB  28.9 M  200,704\n");
  const std::string wide = PlanTable(Report(), /*wide=*/true);
  EXPECT_THAT(wide, HasSubstr("OFFSET   SAVED    WORKSPACE  EVALUATION  RECOMPUTED\n"));
  EXPECT_THAT(wide, HasSubstr("in bn       random mask\n"));
}

TEST(PlanTableTest, PrintsTimes) {
  v1::PlanReport report = Report();
  for (v1::PlanOperation& operation : *report.mutable_operations()) {
    operation.set_forward_us(1000);
    operation.set_backward_us(2000);
    operation.set_share(45);
  }
  report.mutable_times()->set_steps(20);
  report.mutable_times()->set_step_us(6700);
  report.mutable_times()->set_images_per_second(9552.2);
  report.mutable_times()->set_objective_us(200);
  report.mutable_times()->set_objective_share(3);
  report.mutable_times()->set_optimizer_us(466.66);
  report.mutable_times()->set_optimizer_share(7);
  const std::string table = PlanTable(report, /*wide=*/false);
  EXPECT_THAT(table, HasSubstr("FORWARD_US  BACKWARD_US  SHARE\n"));
  EXPECT_THAT(table, HasSubstr("1000.0      2000.0       45.0%\n"));
  EXPECT_THAT(table, HasSubstr("466.7       -            7.0%\n"));
  EXPECT_THAT(table, HasSubstr("2666.7      4000.0       100.0%\n"));
  EXPECT_THAT(
      PlanTotals(report),
      HasSubstr(
          "a step takes 6.70 ms, 9,552 images/s on this rank (median of 20 steps, without data "
          "loading and communication)\n"));
}

TEST(PlanTableTest, PrintsWork) {
  v1::PlanReport report = Report();
  v1::PlanPhaseWork phase;
  phase.set_nodes(3);
  phase.set_bytes(6 << 20);
  phase.set_flops(28'901'376);
  phase.set_us(12.34);
  for (v1::PlanOperation& operation : *report.mutable_operations()) {
    *operation.mutable_forward_work() = phase;
    *operation.mutable_backward_work() = phase;
  }
  v1::PlanWork& work = *report.mutable_work();
  work.set_gpu("h200");
  *work.mutable_objective() = phase;
  *work.mutable_total() = phase;
  work.mutable_total()->set_nodes(1234);
  work.mutable_total()->set_us(6400);
  work.set_bytes_per_convolution_output(14.444);
  work.set_images_per_second(10000);
  const std::string table = PlanTable(report, /*wide=*/false);
  EXPECT_THAT(
      table,
      HasSubstr("NODES  FORWARD_BYTES  BACKWARD_BYTES  STEP_FLOPS  FORWARD_US*  BACKWARD_US*\n"));
  EXPECT_THAT(table, HasSubstr("6      6.0 MiB        6.0 MiB         57.8 M      12.3         "));
  EXPECT_THAT(table, HasSubstr("(objective)"));
  EXPECT_THAT(PlanTotals(report),
              HasSubstr("a step has 1,234 graph nodes, moves 6.0 MiB, 14.44 times the "
                        "convolutions' outputs, and computes 28.9 MFLOPs\n"
                        "(*) at 90 % of the published rates of an H200: a step of 6.40 ms, "
                        "10,000 images/s\n"));
}

// In the order of a step: backward begins with the last operation.
TEST(PlanTableTest, PrintsKernels) {
  v1::PlanReport report = Report();
  const auto phase = [](const char* name, double us) {
    v1::PlanPhaseWork work;
    v1::PlanKernel& kernel = *work.add_kernels();
    kernel.set_name(name);
    kernel.set_bytes(6'422'528);
    kernel.set_flops(28'901'376);
    kernel.set_us(us);
    return work;
  };
  for (v1::PlanOperation& operation : *report.mutable_operations()) {
    *operation.mutable_forward_work() = phase("cudnn forward", 12.34);
    *operation.mutable_backward_work() = phase("cudnn backward data", 20);
  }
  *report.mutable_work()->mutable_optimizer() = phase("ItemKernel<SgdBody>", 1);
  EXPECT_EQ(PlanKernelTable(report),
            "LAYER        PHASE     KERNEL               BYTES      FLOPS       US*\n"
            "0            forward   cudnn forward        6,422,528  28,901,376  12.3\n"
            "add          forward   cudnn forward        6,422,528  28,901,376  12.3\n"
            "add          backward  cudnn backward data  6,422,528  28,901,376  20.0\n"
            "0            backward  cudnn backward data  6,422,528  28,901,376  20.0\n"
            "(optimizer)  -         ItemKernel<SgdBody>  6,422,528  28,901,376  1.0\n");
}

TEST(PlanTotalsTest, DescribesTotals) {
  v1::PlanReport report = Report();
  EXPECT_EQ(PlanTotals(report),
            "421,834 parameters; for each image 8.49 MFLOPs forward and 24.9 MFLOPs in a training "
            "step\n"
            "64 samples at most on each of 2 ranks; activations take 24 MiB, parameters, gradients "
            "and optimizer state 5.0 MiB\n");
  v1::PlanTypeBytes& bfloat16 = *report.add_activation_bytes();
  bfloat16.set_dtype("bfloat16");
  bfloat16.set_bytes(20 << 20);
  v1::PlanTypeBytes& float32 = *report.add_activation_bytes();
  float32.set_dtype("float32");
  float32.set_bytes(1 << 20);
  EXPECT_THAT(PlanTotals(report),
              HasSubstr("batch and activations: 20 MiB of bfloat16, 1.0 MiB of float32\n"));
  report.set_views(2);
  report.set_ranks(1);
  report.set_accumulation_steps(4);
  EXPECT_THAT(PlanTotals(report),
              HasSubstr("64 samples, 2 views of each image, 4 accumulation steps; "));
  report.set_device("cpu");
  EXPECT_THAT(PlanTotals(report), HasSubstr("4 accumulation steps; "));
  report.set_device("cuda:0 NVIDIA H200");
  EXPECT_THAT(PlanTotals(report), HasSubstr("4 accumulation steps, on cuda:0 NVIDIA H200; "));
}

}  // namespace
}  // namespace muster::cli
