#include "worker/agent/rank/progress_line.h"

#include <cmath>
#include <string>

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

}  // namespace
}  // namespace muster::agent
