#include "worker/agent/storage/retention.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace muster::agent {
namespace {

namespace fs = std::filesystem;

class RetentionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = "/tmp/muster-retention-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    jobs_ = pattern;
    retention_.age = absl::Hours(1);
    retention_.bytes = 1000;
  }
  void TearDown() override { fs::remove_all(jobs_); }

  // Creates a file of this size; it and its directories were last changed `age` ago.
  void Make(const std::string& name, absl::Duration age, size_t bytes = 10) {
    const fs::path path = fs::path(jobs_) / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << std::string(bytes, 'x');
    const timespec time = absl::ToTimespec(now_ - age);
    const timespec times[] = {time, time};
    for (fs::path at = path; at != jobs_; at = at.parent_path()) {
      utimensat(AT_FDCWD, at.c_str(), times, 0);
    }
  }
  bool Exists(const std::string& name) const { return fs::exists(fs::path(jobs_) / name); }
  SweepResult Run() { return Sweep(jobs_, retention_, live_, now_); }

  std::string jobs_;
  Retention retention_;
  std::set<std::pair<std::string, uint64_t>> live_;
  const absl::Time now_ = absl::Now();
};

TEST_F(RetentionTest, DeletesOldLogsAndKeepsNewOnes) {
  Make("a/logs/generation-1/rank-0000.stdout", absl::Hours(3));
  Make("a/logs/generation-1/rank-0000.stdout.times", absl::Hours(3));
  Make("a/logs/generation-2/rank-0000.stdout", absl::Hours(2));
  Make("a/logs/generation-10/rank-0000.stdout", absl::Minutes(1));
  const SweepResult swept = Run();
  EXPECT_EQ(swept.generations, 2);
  EXPECT_EQ(swept.log_bytes, 30u);
  EXPECT_EQ(swept.jobs, 0);
  EXPECT_FALSE(Exists("a/logs/generation-1"));
  EXPECT_FALSE(Exists("a/logs/generation-2"));
  EXPECT_TRUE(Exists("a/logs/generation-10/rank-0000.stdout"));
}

TEST_F(RetentionTest, KeepsLiveGenerations) {
  retention_.bytes = 0;
  Make("a/logs/generation-1/rank-0000.stdout", absl::Hours(3), 5000);
  Make("a/logs/generation-2/rank-0000.stdout", absl::Hours(3), 5000);
  Make("b/work/rank-0000/data", absl::Hours(3));
  live_ = {{"a", 2}, {"b", 1}};
  EXPECT_EQ(Run().generations, 1);
  EXPECT_FALSE(Exists("a/logs/generation-1"));
  EXPECT_TRUE(Exists("a/logs/generation-2/rank-0000.stdout"));
  EXPECT_TRUE(Exists("b/work/rank-0000/data"));
}

TEST_F(RetentionTest, DeletesOldestLogsBeyondTheSize) {
  Make("a/logs/generation-1/rank-0000.stdout", absl::Minutes(30), 600);
  Make("b/logs/generation-1/rank-0000.stdout", absl::Minutes(20), 600);
  Make("c/logs/generation-1/rank-0000.stderr", absl::Minutes(10), 400);
  EXPECT_EQ(Run().generations, 1);
  EXPECT_FALSE(Exists("a/logs/generation-1"));
  EXPECT_TRUE(Exists("b/logs/generation-1"));
  EXPECT_TRUE(Exists("c/logs/generation-1"));
  EXPECT_EQ(Run().generations, 0);
}

// The dropped beginning of a log is a hole.
TEST_F(RetentionTest, CountsDiskSpaceOfLogs) {
  Make("a/logs/generation-1/rank-0000.stdout", absl::Minutes(30), 600);
  ASSERT_EQ(truncate((jobs_ + "/a/logs/generation-1/rank-0000.stdout").c_str(), 0), 0);
  ASSERT_EQ(truncate((jobs_ + "/a/logs/generation-1/rank-0000.stdout").c_str(), 1 << 20), 0);
  EXPECT_EQ(Run().generations, 0);
}

TEST_F(RetentionTest, DeletesRestOfAJobByAgeOnly) {
  retention_.bytes = 0;
  Make("old/logs/generation-1/rank-0000.stdout", absl::Hours(2));
  Make("old/checkpoint/step-1/model", absl::Hours(2));
  Make("old/work/rank-0000/scratch", absl::Hours(2));
  Make("fresh/checkpoint/step-1/model", absl::Minutes(5));
  Make("fresh/logs/generation-1/rank-0000.stdout", absl::Minutes(5));
  Make("kept/generation-3/launch.pb", absl::Hours(2));
  const SweepResult swept = Run();
  EXPECT_EQ(swept.generations, 2);
  EXPECT_EQ(swept.jobs, 1);
  EXPECT_FALSE(Exists("old"));
  EXPECT_FALSE(Exists("fresh/logs/generation-1"));
  EXPECT_TRUE(Exists("fresh/checkpoint/step-1/model"));
  EXPECT_TRUE(Exists("kept/generation-3/launch.pb"));
}

TEST_F(RetentionTest, KeepsJobThatIsBeingLaunched) {
  fs::create_directories(jobs_ + "/a");
  EXPECT_EQ(Run().jobs, 0);
  EXPECT_TRUE(Exists("a"));
}

TEST_F(RetentionTest, LeavesUnknownFilesAlone) {
  Make("a/logs/notes/mine", absl::Hours(9));
  Make(".hidden/logs/generation-1/x", absl::Hours(9));
  fs::create_directories(jobs_ + "/b/logs");
  fs::create_symlink("/", jobs_ + "/b/logs/generation-1");
  live_ = {{"b", 2}};
  Run();
  EXPECT_TRUE(Exists("a/logs/notes/mine"));
  EXPECT_TRUE(Exists(".hidden/logs/generation-1/x"));
  EXPECT_TRUE(fs::exists("/bin"));
}

TEST(RetentionTextTest, FormatsDaysAndSize) {
  EXPECT_EQ(Retention().Text(), "7 days and 10GiB");
  EXPECT_EQ((Retention{absl::Minutes(90), 1000}.Text()), "1h30m and 1000");
}

}  // namespace
}  // namespace muster::agent
