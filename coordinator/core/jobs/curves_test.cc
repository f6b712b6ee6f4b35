#include <cmath>

#include "common/limits.h"
#include "coordinator/core/jobs/histories.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

v1::Progress At(uint64_t step, double loss, double test_accuracy = 0) {
  v1::Progress progress;
  progress.set_step(step);
  progress.set_loss(loss);
  progress.set_train_accuracy(0.5);
  progress.set_test_accuracy(test_accuracy);
  progress.set_images_per_second(100);
  return progress;
}

// Adds steps `first` to `last`, one per second, with the step as the loss.
void Train(Curves& curves, uint64_t first, uint64_t last, uint64_t generation = 1) {
  for (uint64_t step = first; step <= last; ++step) {
    curves.Add(At(step, static_cast<double>(step)), generation, absl::Seconds(step));
  }
}

TEST(Curves, KeepReportsAsTheyAre) {
  Curves curves;
  EXPECT_FALSE(curves.Add(At(0, 9), 1, absl::Seconds(1))) << "no step has been completed";
  EXPECT_TRUE(curves.Add(At(10, 2.5), 1, absl::Seconds(3)));
  EXPECT_FALSE(curves.Add(At(10, 2.5), 1, absl::Seconds(4))) << "repeated";
  EXPECT_TRUE(curves.Add(At(10, 2.5, 0.875), 1, absl::Seconds(5))) << "an evaluation";
  EXPECT_FALSE(curves.Add(At(9, 3), 1, absl::Seconds(6))) << "an old report";
  const v1::Curves view = curves.View();
  ASSERT_EQ(view.points_size(), 1);
  EXPECT_EQ(view.points(0).step(), 10u);
  EXPECT_EQ(view.points(0).generation(), 1u);
  EXPECT_EQ(view.points(0).seconds(), 3);
  EXPECT_EQ(view.points(0).loss(), 2.5);
  EXPECT_EQ(view.points(0).train_accuracy(), 0.5);
  EXPECT_EQ(view.points(0).test_accuracy(), 0.875);
  EXPECT_EQ(view.points(0).images_per_second(), 100);
}

TEST(Curves, MergeNeighboursWhenTheyAreFull) {
  Curves curves;
  Train(curves, 1, limits::kCurvePoints);
  EXPECT_EQ(curves.View().points_size(), static_cast<int>(limits::kCurvePoints));
  Train(curves, limits::kCurvePoints + 1, limits::kCurvePoints + 1);
  const v1::Curves half = curves.View();
  ASSERT_EQ(half.points_size(), static_cast<int>(limits::kCurvePoints / 2 + 1));
  EXPECT_EQ(half.points(0).step(), 2u);
  EXPECT_EQ(half.points(0).loss(), 1.5);
  EXPECT_EQ(half.reports(), limits::kCurvePoints + 1);
}

TEST(Curves, StayEvenlySpreadOverALongRun) {
  Curves curves;
  Train(curves, 1, 100'000);
  const v1::Curves view = curves.View();
  EXPECT_LE(view.points_size(), static_cast<int>(limits::kCurvePoints));
  EXPECT_GT(view.points_size(), static_cast<int>(limits::kCurvePoints / 4));
  EXPECT_EQ(view.points().rbegin()->step(), 100'000u);
  const uint64_t gap = view.points(1).step() - view.points(0).step();
  for (int i = 1; i + 1 < view.points_size(); ++i) {
    ASSERT_EQ(view.points(i).step() - view.points(i - 1).step(), gap) << "point " << i;
    // The mean of the steps that were merged.
    ASSERT_NEAR(view.points(i).loss(), view.points(i).step() - (gap - 1) / 2.0, 0.01);
  }
}

TEST(Curves, RepeatedStepsReplaceThoseOfEarlierGenerations) {
  Curves curves;
  Train(curves, 1, 20);
  Train(curves, 11, 12, /*generation=*/2);
  const v1::Curves view = curves.View();
  ASSERT_EQ(view.points_size(), 12);
  EXPECT_EQ(view.points(9).generation(), 1u);
  EXPECT_EQ(view.points(10).step(), 11u);
  EXPECT_EQ(view.points(10).generation(), 2u);
}

TEST(Curves, ShowLossesThatAreNotFinite) {
  Curves curves;
  Train(curves, 1, 10);
  curves.Add(At(11, std::nan("")), 1, absl::Seconds(11));
  Train(curves, 12, 2000);
  const v1::Curves view = curves.View();
  int not_finite = 0;
  for (const v1::CurvePoint& point : view.points()) {
    not_finite += std::isfinite(point.loss()) ? 0 : 1;
  }
  EXPECT_EQ(not_finite, 1);
}

TEST(Curves, ContinueFromTheirRecord) {
  Curves whole, first;
  Train(whole, 1, 3000);
  Train(first, 1, 2048);
  Curves second(first.ToRecord());
  Train(second, 2049, 3000);
  EXPECT_EQ(second.View().SerializeAsString(), whole.View().SerializeAsString());
}

TEST(Curves, TolerateADamagedRecord) {
  v1::CurvesRecord record;
  for (int i = 1; i < 2000; ++i) record.add_steps(i);
  record.add_losses(1);
  Curves curves(record);
  EXPECT_EQ(curves.View().points_size(), 0);
  Train(curves, 1, 3);
  EXPECT_EQ(curves.View().points_size(), 3);
}

TEST(Curves, ViewHasAtMostTheRequestedPoints) {
  Curves curves;
  Train(curves, 1, 500);
  EXPECT_EQ(curves.View(500).points_size(), 500);
  EXPECT_EQ(curves.View(100).points_size(), 63);
  EXPECT_EQ(curves.View(1).points_size(), 1);
}

}  // namespace
}  // namespace muster::core
