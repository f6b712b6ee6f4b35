#include "trainer/precision/loss_scale.h"

#include "gtest/gtest.h"
#include "kernels/update_rules.h"

namespace muster::train {
namespace {

v1::LossScaleSpec Spec(double initial) {
  v1::LossScaleSpec spec;
  spec.set_initial(initial);
  spec.set_growth_interval(3);
  spec.set_growth_factor(2);
  spec.set_backoff_factor(0.5);
  return spec;
}

// Simulates the loss scale of a training step by step.
class LossScale {
 public:
  static constexpr double kSmallest = kernels::kSmallestLossScale;
  static constexpr double kLargest = kernels::kLargestLossScale;
  static constexpr int kPatience = kernels::kLossScalePatience;

  explicit LossScale(const v1::LossScaleSpec& spec) : spec_(spec), state_(InitialLossScale(spec)) {}
  void StepDone(bool overflowed) {
    kernels::AdvanceLossScale(LossScaleRulesOf(spec_), overflowed, state_);
  }
  void Restore(const LossScaleState& state) { state_ = RestoredLossScale(spec_, state); }
  double scale() const { return state_.scale; }
  uint64_t skipped_steps() const { return state_.skipped_steps; }
  bool diverged() const { return state_.overflows_in_row >= kPatience; }
  const LossScaleState& state() const { return state_; }

 private:
  const v1::LossScaleSpec spec_;
  LossScaleState state_;
};

void Steps(LossScale& scale, int count, bool overflowed) {
  for (int i = 0; i < count; ++i) scale.StepDone(overflowed);
}

TEST(LossScaleTest, GrowsAfterCleanStepsAndFallsOnOverflow) {
  LossScale scale(Spec(1024));
  Steps(scale, 2, false);
  EXPECT_EQ(scale.scale(), 1024);
  Steps(scale, 1, false);
  EXPECT_EQ(scale.scale(), 2048);
  Steps(scale, 1, true);
  EXPECT_EQ(scale.scale(), 1024);
  EXPECT_EQ(scale.skipped_steps(), 1u);
  // An overflow restarts the count of clean steps.
  Steps(scale, 2, false);
  Steps(scale, 1, true);
  Steps(scale, 2, false);
  EXPECT_EQ(scale.scale(), 512);
  Steps(scale, 1, false);
  EXPECT_EQ(scale.scale(), 1024);
  EXPECT_EQ(scale.skipped_steps(), 2u);
}

TEST(LossScaleTest, StaysWithinItsBounds) {
  LossScale high(Spec(LossScale::kLargest));
  Steps(high, 30, false);
  EXPECT_EQ(high.scale(), LossScale::kLargest);
  LossScale low(Spec(1.5));
  Steps(low, 2, true);
  EXPECT_EQ(low.scale(), LossScale::kSmallest);
}

TEST(LossScaleTest, DivergesWhenScaleCannotBeReduced) {
  LossScale scale(Spec(4));
  Steps(scale, 2 + LossScale::kPatience - 1, true);
  EXPECT_FALSE(scale.diverged());
  Steps(scale, 1, false);
  Steps(scale, LossScale::kPatience - 1, true);
  EXPECT_FALSE(scale.diverged()) << "a clean step in between";
  Steps(scale, 1, true);
  EXPECT_TRUE(scale.diverged());
}

TEST(LossScaleTest, KeepsFixedScale) {
  v1::LossScaleSpec spec = Spec(128);
  spec.set_fixed(true);
  LossScale scale(spec);
  Steps(scale, 10, false);
  Steps(scale, 2, true);
  EXPECT_EQ(scale.scale(), 128);
  EXPECT_EQ(scale.skipped_steps(), 2u);
  LossScaleState other;
  other.scale = 64;
  other.skipped_steps = 7;
  scale.Restore(other);
  EXPECT_EQ(scale.scale(), 128);
  EXPECT_EQ(scale.skipped_steps(), 7u);
  Steps(scale, LossScale::kPatience, true);
  EXPECT_TRUE(scale.diverged());
}

TEST(LossScaleTest, ResumesFromSavedState) {
  LossScale whole(Spec(256));
  Steps(whole, 1, true);
  Steps(whole, 2, false);
  LossScale rest(Spec(256));
  rest.Restore(whole.state());
  for (LossScale* scale : {&whole, &rest}) Steps(*scale, 1, false);
  EXPECT_EQ(whole.scale(), 256);
  EXPECT_EQ(rest.scale(), whole.scale());
  EXPECT_EQ(rest.skipped_steps(), whole.skipped_steps());
}

}  // namespace
}  // namespace muster::train
