#include "worker/agent/rank/progress_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "common/proto_time.h"
#include "gtest/gtest.h"

namespace muster::agent {
namespace {

TEST(ProgressLineTest, AppliesKnownKeysAndIgnoresOthers) {
  v1::Progress progress;
  EXPECT_TRUE(ApplyProgressLine(
      "step=12 loss=0.5 epoch=1.25 total_steps=40 images_per_second=99.5 phase=warm-up "
      "test_accuracy=0.9 learning_rate=1e-3 samples=4096 mood=good",
      progress));
  EXPECT_EQ(progress.step(), 12u);
  EXPECT_EQ(progress.loss(), 0.5);
  EXPECT_EQ(progress.epoch(), 1.25);
  EXPECT_EQ(progress.total_steps(), 40u);
  EXPECT_EQ(progress.images_per_second(), 99.5);
  EXPECT_EQ(progress.phase(), "warm-up");
  EXPECT_EQ(progress.test_accuracy(), 0.9);
  EXPECT_EQ(progress.learning_rate(), 1e-3);
  EXPECT_EQ(progress.samples(), 4096u);
  EXPECT_TRUE(ApplyProgressLine("loss=0.25", progress));
  EXPECT_EQ(progress.step(), 12u);
  EXPECT_EQ(progress.loss(), 0.25);
}

TEST(ProgressLineTest, IgnoresInvalidLines) {
  v1::Progress progress;
  progress.set_step(3);
  for (const char* line : {"", "step", "step=", "step=-1", "step=1.5", "step=99999999999999999999",
                           "loss=", "loss=low", "=", "==", "phase=", "\xff\xfe\x80"}) {
    EXPECT_FALSE(ApplyProgressLine(line, progress)) << line;
  }
  EXPECT_EQ(progress.step(), 3u);
  EXPECT_TRUE(ApplyProgressLine("phase=a\xff", progress));
  EXPECT_EQ(progress.phase(), "a?");
  EXPECT_TRUE(ApplyProgressLine("phase=" + std::string(1000, 'x'), progress));
  EXPECT_LE(progress.phase().size(), 64u);
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
  const absl::Time start_ = absl::FromUnixSeconds(1000);
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
  progress = file.Read(start_ + absl::Seconds(5));
  ASSERT_TRUE(progress.has_value());
  EXPECT_EQ(progress->step(), 2u);
  EXPECT_EQ(progress->loss(), 1.5);
  EXPECT_EQ(progress->first_step_time().seconds(), 1000);
}

TEST_F(ProgressFileTest, EstimatesTimeLeft) {
  ProgressFile file(path_);
  Append("step=10 total_steps=100\n");
  EXPECT_FALSE(file.Read(start_)->has_time_left());
  Append("step=20\n");
  // 10 steps in 5 s, and 80 to go.
  EXPECT_EQ(FromProto(file.Read(start_ + absl::Seconds(5))->time_left()), absl::Seconds(40));
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
  Append(" step=3\nstep=4\n");
  EXPECT_EQ(file.Read(start_)->step(), 4u);
  std::string flood;
  while (flood.size() < (2 << 20)) flood += "step=5 and a lot of other words\n";
  Append(flood + "step=6\n");
  EXPECT_EQ(file.Read(start_)->step(), 6u);
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
