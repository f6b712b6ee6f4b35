// Tests when step records become available. kernels/contract/update_contract_test checks the
// values.
#include "trainer/optim/update_controller.h"

#include <memory>

#include "gtest/gtest.h"
#include "kernels/testing/capturing_device.h"

namespace muster::train {
namespace {

std::unique_ptr<UpdateController> Make(kernels::Device& device,
                                       const kernels::UpdateRules& rules = {}) {
  auto control = UpdateController::Create(rules, device, /*counted=*/1, /*accumulation_steps=*/1);
  EXPECT_TRUE(control.ok()) << control.status();
  return *std::move(control);
}

// Runs a step whose loss is the step's number.
absl::Status Step(UpdateController& control, kernels::Device& device, uint64_t step) {
  const absl::Status begun = control.Begin(step, 0.5);
  if (!begun.ok()) return begun;
  const kernels::LossResult loss{.loss_sum = static_cast<double>(step)};
  device.CopyToDevice(control.loss(0), &loss, sizeof(loss));
  control.Decide(nullptr, 0, nullptr);
  control.Finish();
  return absl::OkStatus();
}

// Returns the loss of the next step, or -1 if it is not available.
double Read(UpdateController& control, bool wait) {
  const auto record = control.Read(wait);
  EXPECT_TRUE(record.ok()) << record.status();
  return record->has_value() ? (*record)->loss.loss_sum : -1;
}

TEST(UpdateControllerTest, ReturnsRecordsAtOnceOnSynchronousDevice) {
  const auto control = Make(kernels::CpuDevice());
  EXPECT_EQ(Read(*control, /*wait=*/false), -1);
  for (uint64_t step = 40; step < 65; ++step) {
    ASSERT_TRUE(Step(*control, kernels::CpuDevice(), step).ok());
    EXPECT_EQ(Read(*control, /*wait=*/false), step);
    EXPECT_EQ(Read(*control, /*wait=*/false), -1);
  }
}

TEST(UpdateControllerTest, ReturnsRecordsInOrderOnAsynchronousDevice) {
  kernels::Device& device = kernels::CapturingDevice();
  const auto control = Make(device);
  uint64_t next = 7;
  for (uint64_t step = 7; step < 32; ++step) {
    ASSERT_TRUE(Step(*control, device, step).ok());
    for (double loss; (loss = Read(*control, /*wait=*/false)) >= 0; ++next) EXPECT_EQ(loss, next);
    EXPECT_EQ(control->pending(), step + 1 - next);
  }
  EXPECT_GT(next, 7u);
  EXPECT_LT(next, 32u) << "expected some records to be pending";
  while (next < 32) EXPECT_EQ(Read(*control, /*wait=*/true), next++);
  EXPECT_EQ(Read(*control, /*wait=*/true), -1);
}

TEST(UpdateControllerTest, RejectsStepThatWouldOverwriteRecord) {
  kernels::Device& device = kernels::CapturingDevice();
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

TEST(UpdateControllerTest, ScalesLossIfConfigured) {
  EXPECT_EQ(Make(kernels::CpuDevice())->loss_scale(), nullptr);
  const auto control = Make(kernels::CpuDevice(), {.scales_loss = true});
  control->SetLossScale({.scale = 32});
  EXPECT_EQ(*control->loss_scale(), 32);
}

}  // namespace
}  // namespace muster::train
