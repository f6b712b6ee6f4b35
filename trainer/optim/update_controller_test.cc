// What the decisions are is kernels/contract/update_contract_test's to see; here, when they are
// told.
#include "trainer/optim/update_controller.h"

#include <memory>

#include "gtest/gtest.h"
#include "kernels/testing/recording_device.h"

namespace muster::train {
namespace {

std::unique_ptr<UpdateController> Make(kernels::Device& device,
                                       const kernels::UpdateRules& rules = {}) {
  auto control = UpdateController::Create(rules, device, /*counted=*/1, /*parts=*/1);
  EXPECT_TRUE(control.ok()) << control.status();
  return *std::move(control);
}

// With a loss that is the step's number.
absl::Status Step(UpdateController& control, kernels::Device& device, uint64_t step) {
  const absl::Status begun = control.Begin(step, 0.5);
  if (!begun.ok()) return begun;
  const kernels::LossResult loss{.loss_sum = static_cast<double>(step)};
  device.CopyToDevice(control.loss(0), &loss, sizeof(loss));
  control.Decide(nullptr, 0, nullptr);
  control.Finish();
  return absl::OkStatus();
}

// The loss of the next step, or -1.
double Read(UpdateController& control, bool wait) {
  const auto record = control.Read(wait);
  EXPECT_TRUE(record.ok()) << record.status();
  return record->has_value() ? (*record)->loss.loss_sum : -1;
}

TEST(UpdateControlTest, WhereCallsHappenAtOnceSoDoesTheirOutcome) {
  const auto control = Make(kernels::CpuDevice());
  EXPECT_EQ(Read(*control, /*wait=*/false), -1);
  for (uint64_t step = 40; step < 65; ++step) {
    ASSERT_TRUE(Step(*control, kernels::CpuDevice(), step).ok());
    EXPECT_EQ(Read(*control, /*wait=*/false), step);
    EXPECT_EQ(Read(*control, /*wait=*/false), -1);
  }
}

TEST(UpdateControlTest, ElsewhereOutcomesComeLaterAndInOrder) {
  kernels::Device& device = kernels::RecordingDevice();
  const auto control = Make(device);
  uint64_t told = 7;
  for (uint64_t step = 7; step < 32; ++step) {
    ASSERT_TRUE(Step(*control, device, step).ok());
    for (double loss; (loss = Read(*control, /*wait=*/false)) >= 0; ++told) EXPECT_EQ(loss, told);
    EXPECT_EQ(control->pending(), step + 1 - told);
  }
  EXPECT_GT(told, 7u);
  EXPECT_LT(told, 32u) << "not all are known";
  while (told < 32) EXPECT_EQ(Read(*control, /*wait=*/true), told++);
  EXPECT_EQ(Read(*control, /*wait=*/true), -1);
}

TEST(UpdateControlTest, NoOutcomeIsWrittenOver) {
  kernels::Device& device = kernels::RecordingDevice();
  const auto control = Make(device);
  for (uint64_t step = 0; step < UpdateController::kStepsAhead; ++step) {
    ASSERT_TRUE(Step(*control, device, step).ok());
  }
  EXPECT_EQ(Step(*control, device, UpdateController::kStepsAhead).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Read(*control, /*wait=*/true), 0);
  EXPECT_TRUE(Step(*control, device, UpdateController::kStepsAhead).ok());
  for (uint64_t step = 1; step <= UpdateController::kStepsAhead; ++step) {
    EXPECT_EQ(Read(*control, /*wait=*/true), step);
  }
}

TEST(UpdateControlTest, TheLossIsScaledWhereTheRulesSaySo) {
  EXPECT_EQ(Make(kernels::CpuDevice())->loss_scale(), nullptr);
  const auto control = Make(kernels::CpuDevice(), {.scales_loss = true});
  control->SetLossScale({.scale = 32});
  EXPECT_EQ(*control->loss_scale(), 32);
}

}  // namespace
}  // namespace muster::train
