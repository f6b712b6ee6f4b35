#include "worker/agent/rank/progress_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "common/limits.h"
#include "common/time/proto_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::agent {
namespace {

using ::testing::HasSubstr;

TEST(ProgressLineTest, AppliesKnownKeysAndIgnoresOthers) {
  v1::Progress progress;
  for (const char* line :
       {"step=12 loss=0.5 epoch=1.25 total_steps=40 images_per_second=99.5 phase=warm-up "
        "test_accuracy=0.9 learning_rate=1e-3 samples=4096 mood=good and words",
        R"( {"step": 12, "loss": 0.5, "epoch": 1.25, "total_steps": "40", "mood": [1, {"a": 2}],
            "images_per_second": 99.5, "phase": "warm-up", "test_accuracy": 0.9,
            "learning_rate": 1e-3, "samples": 4096, "test_loss": null} )"}) {
    progress.Clear();
    const ProgressLine result = ApplyProgressLine(line, progress);
    EXPECT_TRUE(result.applied);
    EXPECT_EQ(result.problem, "");
    EXPECT_EQ(progress.step(), 12u);
    EXPECT_EQ(progress.loss(), 0.5);
    EXPECT_EQ(progress.epoch(), 1.25);
    EXPECT_EQ(progress.total_steps(), 40u);
    EXPECT_EQ(progress.images_per_second(), 99.5);
    EXPECT_EQ(progress.phase(), "warm-up");
    EXPECT_EQ(progress.test_accuracy(), 0.9);
    EXPECT_EQ(progress.learning_rate(), 1e-3);
    EXPECT_EQ(progress.samples(), 4096u);
  }
  EXPECT_TRUE(ApplyProgressLine("loss=0.25", progress).applied);
  EXPECT_EQ(progress.step(), 12u);
  EXPECT_EQ(progress.loss(), 0.25);
}

TEST(ProgressLineTest, IgnoresBlankLines) {
  v1::Progress progress;
  for (const char* line : {"", " ", "\t\r"}) {
    const ProgressLine result = ApplyProgressLine(line, progress);
    EXPECT_FALSE(result.applied);
    EXPECT_EQ(result.problem, "");
  }
}

TEST(ProgressLineTest, AcceptsLossesThatAreNotFinite) {
  for (const char* line : {"step=7 loss=nan", R"({"step": 7, "loss": NaN})"}) {
    v1::Progress progress;
    EXPECT_EQ(ApplyProgressLine(line, progress).problem, "");
    EXPECT_EQ(progress.step(), 7u);
    EXPECT_TRUE(std::isnan(progress.loss()));
  }
  v1::Progress progress;
  EXPECT_EQ(ApplyProgressLine(R"({"loss":-Infinity,"phase":"NaN, \"Infinity"})", progress).problem,
            "");
  EXPECT_EQ(progress.loss(), -HUGE_VAL);
  EXPECT_EQ(progress.phase(), "NaN, \"Infinity");
}

TEST(ProgressLineTest, ExplainsLinesThatAreNotUnderstood) {
  v1::Progress progress;
  progress.set_step(3);
  const auto problem = [&progress](const std::string& line) {
    const ProgressLine result = ApplyProgressLine(line, progress);
    EXPECT_FALSE(result.applied) << line;
    return result.problem;
  };
  for (const char* line : {"step", "=", "==", "{\"step\": 1", "{\"step\": 1}}", "{,}",
                           "{\"phase\": \"\xff\"}", "\xff\xfe\x80"}) {
    EXPECT_THAT(problem(line), HasSubstr("write key=value pairs or a JSON object per line"))
        << line;
  }
  EXPECT_EQ(problem("foo\tbar\xff"),
            R"(is not understood: "foo\tbar?"; write key=value pairs or a JSON object per line)");
  for (const char* line : {"iter=5", "{}", R"({"iter": 5})"}) {
    EXPECT_THAT(problem(line), HasSubstr("has no known key: "));
    EXPECT_THAT(problem(line), HasSubstr("; the keys are step, total_steps, "));
  }
  for (const char* line : {"step=", "step=-1", "step=1.5", "step=99999999999999999999",
                           R"({"step": -1})", R"({"step": 1.5})", R"({"step": [1]})"}) {
    EXPECT_THAT(problem(line), HasSubstr("has an invalid value: step=\"")) << line;
    EXPECT_THAT(problem(line), HasSubstr("\"; write a whole number")) << line;
  }
  for (const char* line : {"epoch=", "epoch=low", "epoch=nan", "epoch=-1", "learning_rate=inf"}) {
    EXPECT_THAT(problem(line), HasSubstr("\"; write a number")) << line;
  }
  EXPECT_EQ(problem("phase="), "has an invalid value: phase=\"\"; write a word");
  EXPECT_EQ(progress.step(), 3u);
  EXPECT_LT(problem(std::string(4000, 'x')).size(), 160u);
}

TEST(ProgressLineTest, AppliesTheOtherValuesOfALineWithAnInvalidOne) {
  v1::Progress progress;
  const ProgressLine result = ApplyProgressLine("step=1.5 loss=0.25", progress);
  EXPECT_TRUE(result.applied);
  EXPECT_EQ(result.problem, "has an invalid value: step=\"1.5\"; write a whole number");
  EXPECT_EQ(progress.loss(), 0.25);
}

TEST(ProgressLineTest, BoundsPhases) {
  v1::Progress progress;
  EXPECT_TRUE(ApplyProgressLine("phase=a\xff", progress).applied);
  EXPECT_EQ(progress.phase(), "a?");
  EXPECT_TRUE(ApplyProgressLine("phase=" + std::string(1000, 'x'), progress).applied);
  EXPECT_EQ(progress.phase().size(), 64u);
}

class ProgressFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = "/tmp/muster-progress-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    path_ = directory_ + "/progress";
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  void Append(const std::string& text) { std::ofstream(path_, std::ios::app) << text; }

  std::string directory_;
  std::string path_;
  Time After(absl::Duration elapsed) const {
    return {start_.steady + elapsed, start_.wall + elapsed};
  }

  const Time start_{SteadyTime(), absl::FromUnixSeconds(1000)};
};

TEST_F(ProgressFileTest, ReportsCompleteLines) {
  ProgressFile file(path_);
  EXPECT_FALSE(file.Read(start_).has_value());  // no file yet
  Append("step=1 loss=2\nstep=2 lo");
  auto progress = file.Read(start_);
  ASSERT_TRUE(progress.has_value());
  EXPECT_EQ(progress->step(), 1u);
  EXPECT_EQ(progress->loss(), 2);
  EXPECT_EQ(progress->phase(), "training");
  EXPECT_EQ(progress->first_step_time().seconds(), 1000);
  EXPECT_FALSE(file.Read(start_).has_value());
  Append("ss=1.5\nnot a line of ours\n");
  progress = file.Read(After(absl::Seconds(5)));
  ASSERT_TRUE(progress.has_value());
  EXPECT_EQ(progress->step(), 2u);
  EXPECT_EQ(progress->loss(), 1.5);
  EXPECT_EQ(progress->first_step_time().seconds(), 1000);
}

TEST_F(ProgressFileTest, KeepsTheFirstOfARunOfNonFiniteLosses) {
  ProgressFile file(path_);
  Append("step=1 loss=2\nstep=2 loss=nan\nstep=3 loss=inf\nstep=4\n{\"step\": 5, \"loss\": 1}\n");
  Append("{\"step\": 6, \"loss\": -Infinity}\n{\"step\": 7, \"loss\": 1}\n");
  const auto progress = file.Read(start_);
  ASSERT_EQ(progress->loss_anomalies_size(), 2);
  EXPECT_EQ(progress->loss_anomalies(0).step(), 2u);
  EXPECT_TRUE(std::isnan(progress->loss_anomalies(0).loss()));
  EXPECT_EQ(progress->loss_anomalies(1).step(), 6u);
  EXPECT_EQ(progress->loss_anomalies(1).loss(), -HUGE_VAL);
  for (int i = 0; i < 100; ++i) Append("loss=nan\nloss=1\n");
  EXPECT_EQ(file.Read(start_)->loss_anomalies_size(), limits::kLossAnomalies);
}

TEST_F(ProgressFileTest, EstimatesTimeLeft) {
  ProgressFile file(path_);
  Append("step=10 total_steps=100\n");
  EXPECT_FALSE(file.Read(start_)->has_time_left());
  Append("step=20\n");
  // 10 steps in 5 s, and 80 to go.
  EXPECT_EQ(FromProto(file.Read(After(absl::Seconds(5)))->time_left()), absl::Seconds(40));
  // The wall clock, which was set back, does not count.
  Append("step=30\n");
  const Time later{start_.steady + absl::Seconds(10), start_.wall - absl::Hours(1)};
  EXPECT_EQ(FromProto(file.Read(later)->time_left()), absl::Seconds(35));
}

TEST_F(ProgressFileTest, OmitsEstimateWithoutEnd) {
  ProgressFile file(path_);
  // Two of these lines once made a duration that ended the node's session.
  Append("step=1 total_steps=9223372036854775807\n");
  EXPECT_FALSE(file.Read(start_)->has_time_left());
  Append("step=2 total_steps=9223372036854775807\n");
  const auto progress = file.Read(After(absl::Seconds(5)));
  EXPECT_EQ(progress->step(), 2u);
  EXPECT_FALSE(progress->has_time_left());
  Append("total_steps=18446744073709551615 step=18446744073709551614\n");
  EXPECT_TRUE(file.Read(After(absl::Seconds(6)))->has_time_left());
}

TEST_F(ProgressFileTest, WarnsOnceAboutALineThatIsNotUnderstood) {
  ProgressFile file(path_);
  Append("step=1\n\nfoo bar\nand more\n");
  EXPECT_EQ(file.Read(start_)->step(), 1u);
  EXPECT_EQ(file.TakeWarning(),
            "MUSTER_PROGRESS: line 3 is not understood: \"foo bar\"; write key=value pairs or a "
            "JSON object per line");
  EXPECT_EQ(file.TakeWarning(), "");
  Append("once more\n");
  EXPECT_FALSE(file.Read(start_).has_value());
  EXPECT_EQ(file.TakeWarning(), "");
}

TEST_F(ProgressFileTest, RereadsTruncatedFile) {
  ProgressFile file(path_);
  Append("step=100 loss=1\nstep=101 loss=1\n");
  EXPECT_EQ(file.Read(start_)->step(), 101u);
  std::filesystem::remove(path_);
  Append("step=3\n");
  EXPECT_EQ(file.Read(start_)->step(), 3u);
}

TEST_F(ProgressFileTest, SkipsOverlongLinesAndLargeAmounts) {
  ProgressFile file(path_);
  Append("step=1\n" + std::string(10'000, 'x') + " step=2");
  EXPECT_EQ(file.Read(start_)->step(), 1u);
  EXPECT_EQ(file.TakeWarning(),
            "MUSTER_PROGRESS: line 2 is longer than 4096 bytes; write shorter lines");
  Append(" step=3\nstep=4\n");
  EXPECT_EQ(file.Read(start_)->step(), 4u);
  std::string flood;
  while (flood.size() < (2 << 20)) flood += "step=5 and a lot of other words\n";
  Append(flood + "step=6\n");
  EXPECT_EQ(file.Read(start_)->step(), 6u);
}

TEST_F(ProgressFileTest, DoesNotNumberLinesAfterAGap) {
  ProgressFile file(path_);
  std::string flood;
  while (flood.size() < (2 << 20)) flood += "step=5\n";
  Append(flood + "foo\n");
  EXPECT_EQ(file.Read(start_)->step(), 5u);
  EXPECT_EQ(file.TakeWarning().substr(0, 46), "MUSTER_PROGRESS: a line is not understood: \"fo");
}

TEST_F(ProgressFileTest, IgnoresPipesAndDevices) {
  ProgressFile file(path_);
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_FALSE(file.Read(start_).has_value());
  std::filesystem::remove(path_);
  ASSERT_EQ(symlink("/dev/zero", path_.c_str()), 0);
  EXPECT_FALSE(file.Read(start_).has_value());
}

}  // namespace

}  // namespace muster::agent
