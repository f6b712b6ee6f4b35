#include "trainer/loop/training_log.h"

#include <string>
#include <vector>

#include "common/time/now.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::train {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// 10 steps of 8 samples per epoch; training ends after 25 steps.
class TrainingLogTest : public ::testing::Test {
 protected:
  TrainingLog Make(bool is_first) {
    return TrainingLog(is_first, *data::StepMap::Create(80, 8, false), 25,
                       [this](LogSeverity severity, const std::string& line) {
                         lines_.push_back((severity == LogSeverity::kInfo ? "I " : "W ") + line);
                       });
  }
  void Pass(absl::Duration duration) { now_ = now_ + duration; }
  // Steps from `first` to `last`, counted from 1, of a second each.
  void Train(TrainingLog& log, uint64_t first, uint64_t last, double loss) {
    for (uint64_t step = first; step <= last; ++step) {
      Pass(absl::Seconds(1));
      log.StepDone(absl::ZeroDuration(), now_);
      log.OnResult({.step = step - 1, .loss = loss, .accuracy = 0.5}, nullptr, now_);
    }
  }

  SteadyTime now_ = Now().steady;
  std::vector<std::string> lines_;
};

TEST_F(TrainingLogTest, FirstRankLogsTheCourse) {
  TrainingLog log = Make(true);
  log.Started(0, now_);
  Train(log, 1, 10, 2);
  Pass(absl::Seconds(3));
  log.Evaluated(10, {.loss = 1.5, .accuracy = 0.75}, absl::Seconds(2));
  log.CheckpointSaved(10, "/ckpt/step-00000010", absl::Seconds(7), absl::Seconds(1));
  Train(log, 11, 25, 1);
  EXPECT_THAT(
      lines_,
      ElementsAre("I training starts: epoch 0/2.5, step 0/25, 10 steps of 8 samples per epoch",
                  "I epoch 1/2.5, step 10/25: loss 2.0000, accuracy 0.5000, 8 images/s",
                  "I evaluation after step 10: test accuracy 0.7500, test loss 1.5000, took 2.00 s",
                  "I checkpoint of step 10 written to /ckpt/step-00000010 in 7.00 s, training "
                  "stalled for 1000 ms",
                  "I epoch 2/2.5, step 20/25: loss 1.0000, accuracy 0.5000, 8 images/s",
                  "I epoch 2.5/2.5, step 25/25: loss 1.0000, accuracy 0.5000, 8 images/s"));
}

TEST_F(TrainingLogTest, OtherRanksLogOnlyTheirWarnings) {
  TrainingLog log = Make(false);
  log.Started(0, now_);
  Train(log, 1, 10, 2);
  log.Evaluated(10, {}, absl::Seconds(2));
  log.CheckpointSaved(10, "/ckpt", absl::Seconds(1), absl::Seconds(1));
  log.OnResult({.step = 10, .skipped = true}, nullptr, now_);
  EXPECT_THAT(lines_, IsEmpty());
  Pass(absl::Seconds(30));
  log.StepDone(absl::Seconds(12), now_);
  EXPECT_THAT(lines_, ElementsAre("W waited 12.00 s of the last 40.00 s for the data loader; raise "
                                  "loader.threads or loader.prefetch"));
}

TEST_F(TrainingLogTest, WarnsOfSkippedSteps) {
  TrainingLog log = Make(true);
  log.Started(3, now_);
  Train(log, 4, 6, 2);
  const LossScaleState scale = {.scale = 32768, .skipped_steps = 2};
  log.OnResult({.step = 6, .loss = INFINITY, .skipped = true}, &scale, now_);
  Train(log, 8, 10, 1);
  EXPECT_THAT(
      lines_,
      ElementsAre("I training resumes: epoch 0.3/2.5, step 3/25, 10 steps of 8 samples per epoch",
                  "W step 7 was skipped because the loss or a gradient overflowed; loss scale is "
                  "now 32768, "
                  "2 steps skipped in total",
                  "I epoch 1/2.5, step 10/25: loss 1.5000, accuracy 0.5000, 9 images/s"));
}

TEST_F(TrainingLogTest, LogsLongEpochsEveryMinuteAndSharesALineAmongShortOnes) {
  TrainingLog log = Make(true);
  log.Started(0, now_);
  Pass(absl::Seconds(60));
  log.OnResult({.step = 0, .loss = 1}, nullptr, now_);
  Pass(absl::Milliseconds(50));
  log.OnResult({.step = 9, .loss = 3}, nullptr, now_);
  Pass(absl::Milliseconds(50));
  log.OnResult({.step = 19, .loss = 2}, nullptr, now_);
  ASSERT_EQ(lines_.size(), 3u);
  EXPECT_EQ(lines_[1], "I epoch 0.1/2.5, step 1/25: loss 1.0000, accuracy 0.0000, 0 images/s");
  EXPECT_EQ(lines_[2], "I epoch 2/2.5, step 20/25: loss 2.5000, accuracy 0.0000, 1520 images/s");
}

}  // namespace
}  // namespace muster::train
