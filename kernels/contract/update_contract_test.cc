// Checks every kernel set's decision about a step's update by manual calculation: when it is
// skipped, its step size, and the loss scale afterwards.
#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "kernels/contract/kernel_contract.h"
#include "kernels/update.h"
#include "kernels/update_rules.h"

namespace muster::kernels {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class UpdateContractTest : public KernelSetTest {
 protected:
  static constexpr uint64_t kRecords = 3;

  void SetUp() override {
    KernelSetTest::SetUp();
    if (IsSkipped()) return;
    memory_ = Stored(Memory());
    rules_.records = kRecords;
  }

  // Runs BeginUpdate for step `step` and returns its record; the scalars are in scalars().
  const StepRecord& Begin(uint64_t step, double loss = 1.5, bool finite = true,
                          double sum_of_squares = 0) {
    Memory& memory = memory_[0];
    memory.step = {.step = step, .learning_rate = 0.1};
    memory.losses[0] = {.loss_sum = loss, .correct = 3};
    memory.losses[1] = {.loss_sum = 2, .correct = 4};
    memory.finite = finite;
    memory.squares = sum_of_squares;
    kernels().begin_update(rules_,
                           {.step = &memory.step,
                            .losses = memory.losses,
                            .loss_count = 2,
                            .finite = &memory.finite,
                            .sum_of_squares = &memory.squares,
                            .failed = &memory.failed},
                           &memory.state, &memory.scalars, memory.records);
    return memory.records[step % kRecords];
  }
  UpdateState& state() { return memory_[0].state; }
  const UpdateScalars& scalars() { return memory_[0].scalars; }
  uint32_t* failed() { return &memory_[0].failed; }

  UpdateRules rules_;

 private:
  struct Memory {
    StepScalars step;
    LossResult losses[2];
    bool finite;
    double squares;
    uint32_t failed;
    UpdateState state;
    UpdateScalars scalars;
    StepRecord records[kRecords];
  };
  TestVector<Memory> memory_;
};

TEST_P(UpdateContractTest, ReportsTheSumOfAllLosses) {
  const StepRecord& record = Begin(4);
  EXPECT_EQ(record.loss.loss_sum, 3.5);
  EXPECT_EQ(record.loss.correct, 7u);
  EXPECT_EQ(record.skipped, 0u);
  EXPECT_EQ(scalars().learning_rate, 0.1);
  EXPECT_EQ(scalars().gradient_scale, 1);
  EXPECT_EQ(scalars().decay_scale, 1);
  Begin(5, 7);
  EXPECT_EQ(record.loss.loss_sum, 3.5) << "other steps use other records";
}

TEST_P(UpdateContractTest, CorrectsTheBiasOfAdamW) {
  rules_.beta1 = 0.5;
  rules_.beta2 = 0.75;
  Begin(0);
  EXPECT_NEAR(scalars().step_size, 0.1 / 0.5, 1e-15);
  EXPECT_NEAR(scalars().root_scale, 2, 1e-15);
  Begin(2);
  EXPECT_NEAR(scalars().step_size, 0.1 / 0.875, 1e-15);
  EXPECT_NEAR(scalars().root_scale, 1 / std::sqrt(1 - 0.421875), 1e-15);
}

// After update t with weight 1 - min(decay, (1 + t) / (10 + t)).
TEST_P(UpdateContractTest, AveragesFromTheFirstUpdateOn) {
  rules_.average_decay = 0.75;
  for (const auto& [step, weight] :
       {std::pair<uint64_t, float>(0, 1), {1, 9.0f / 11}, {2, 0.75f}, {100, 0.25f}}) {
    Begin(step);
    EXPECT_FLOAT_EQ(scalars().average_weight, weight) << step;
  }
  rules_.average_decay = 0;
  Begin(100);
  EXPECT_EQ(scalars().average_weight, 1);
}

TEST_P(UpdateContractTest, ClipsTheNorm) {
  EXPECT_EQ(Begin(0, 1, true, 25).gradient_norm, 0) << "only with clip_norm";
  rules_.clip_norm = 10;
  EXPECT_EQ(Begin(0, 1, true, 25).gradient_norm, 5);
  EXPECT_EQ(scalars().gradient_scale, 1);
  rules_.clip_norm = 0.5;
  EXPECT_EQ(Begin(0, 1, true, 25).gradient_norm, 5);
  EXPECT_NEAR(scalars().gradient_scale, 0.1, 1e-6);
  EXPECT_TRUE(std::isnan(Begin(0, 1, true, std::nan("")).gradient_norm));
  EXPECT_TRUE(std::isnan(scalars().gradient_scale)) << "NaN must be visible";
}

TEST_P(UpdateContractTest, NonFiniteLossWithoutLossScaleDiverges) {
  EXPECT_EQ(Begin(0, 1, /*finite=*/false).diverged, 0u) << "gradients are not checked";
  const StepRecord record = Begin(1, kInfinity);
  EXPECT_EQ(record.diverged, 1u);
  EXPECT_EQ(scalars().skip, 1u);
  // Steps that were queued before the divergence was detected are skipped, too.
  EXPECT_EQ(Begin(2).diverged, 1u);
  EXPECT_EQ(scalars().skip, 1u);
}

TEST_P(UpdateContractTest, OverflowSkipsTheStepAndLowersTheScale) {
  rules_.scales_loss = true;
  rules_.loss_scale = {.backoff_factor = 0.25, .growth_factor = 2, .growth_interval = 2};
  rules_.clip_norm = 1e9;
  state().loss_scale.scale = 64;
  const StepRecord clean = Begin(0, 1, true, 128 * 128);
  EXPECT_EQ(clean.skipped, 0u);
  EXPECT_EQ(clean.gradient_norm, 2);
  EXPECT_EQ(scalars().gradient_scale, 1.0 / 64);
  const StepRecord skipped = Begin(1, 1, /*finite=*/false);
  EXPECT_EQ(skipped.skipped, 1u);
  EXPECT_EQ(skipped.diverged, 0u);
  EXPECT_EQ(skipped.loss_scale.scale, 16);
  EXPECT_EQ(skipped.loss_scale.skipped_steps, 1u);
  EXPECT_EQ(scalars().skip, 1u);
  EXPECT_EQ(Begin(2, kInfinity).loss_scale.scale, 4) << "a non-finite loss is an overflow, too";
  // Skipped steps do not count as updates.
  rules_.beta1 = 0.5;
  Begin(3);
  EXPECT_EQ(scalars().skip, 0u);
  EXPECT_EQ(scalars().gradient_scale, 0.25);
  EXPECT_NEAR(scalars().step_size, 0.1 / (1 - 0.25), 1e-15) << "the second update";
  EXPECT_EQ(Begin(4).loss_scale.scale, 8);
}

TEST_P(UpdateContractTest, FailedGradientsChangeNothing) {
  rules_.scales_loss = true;
  state().loss_scale.scale = 64;
  Begin(0);
  EXPECT_EQ(scalars().skip, 0u);
  *failed() = 1;
  const LossScaleState before = state().loss_scale;
  for (const bool finite : {true, false}) {
    const StepRecord record = Begin(1, 1, finite);
    EXPECT_EQ(record.failed, 1u);
    EXPECT_EQ(scalars().skip, 1u);
  }
  EXPECT_EQ(state().loss_scale.clean_steps, before.clean_steps);
  EXPECT_EQ(state().loss_scale.skipped_steps, 0u);
  EXPECT_EQ(state().diverged, 0u);
}

TEST_P(UpdateContractTest, DivergesIfNoScalePreventsOverflow) {
  rules_.scales_loss = true;
  rules_.loss_scale.fixed = true;
  for (uint64_t step = 0; step < kLossScalePatience; ++step) {
    const StepRecord record = Begin(step, 1, /*finite=*/false);
    EXPECT_EQ(record.diverged, step + 1 == kLossScalePatience ? 1u : 0u) << step;
  }
  const StepRecord after = Begin(kLossScalePatience);
  EXPECT_EQ(after.skipped, 1u);
  EXPECT_EQ(after.diverged, 1u);
  EXPECT_EQ(after.loss_scale.skipped_steps, kLossScalePatience);
}

INSTANTIATE_TEST_SUITE_P(KernelSets, UpdateContractTest,
                         testing::ValuesIn(WithCudaPtx({KernelSet::kPlain, KernelSet::kCudaOnHost,
                                                        KernelSet::kCuda})),
                         KernelSetName);

}  // namespace
}  // namespace muster::kernels
