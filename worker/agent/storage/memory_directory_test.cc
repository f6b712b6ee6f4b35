#include "worker/agent/storage/memory_directory.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "gtest/gtest.h"

namespace muster::agent {
namespace {

namespace fs = std::filesystem;

class MemoryDirectoryTest : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(parent_); }
  void TearDown() override { fs::remove_all(parent_); }

  std::unique_ptr<MemoryDirectory> Open(const std::string& data_directory) const {
    auto opened = MemoryDirectory::Open(parent_, data_directory);
    EXPECT_TRUE(opened.ok()) << opened.status();
    return opened.ok() ? *std::move(opened) : nullptr;
  }
  static void Leave(const std::string& directory, const std::string& job, bool long_ago) {
    fs::create_directories(directory + "/" + job);
    std::ofstream(directory + "/" + job + "/step-00000001.g1") << "state";
    if (!long_ago) return;
    const auto hour_ago = fs::file_time_type::clock::now() - std::chrono::hours(1);
    fs::last_write_time(directory + "/" + job, hour_ago);
  }
  static absl::Time TenMinutesAgo() { return absl::Now() - kKeepState; }

  const std::string parent_ = ::testing::TempDir() + "/memory";
};

TEST_F(MemoryDirectoryTest, DependsOnTheDataDirectory) {
  const std::string one = MemoryDirectoryPath("/dev/shm", "/var/lib/muster");
  EXPECT_EQ(one, MemoryDirectoryPath("/dev/shm", "/var/lib/../lib/muster"));
  EXPECT_NE(one, MemoryDirectoryPath("/dev/shm", "/var/lib/muster-2"));
  EXPECT_EQ(MemoryDirectoryOf(one, "job-1"), one + "/job-1");
  EXPECT_EQ(MemoryDirectoryOf("", "job-1"), "");
}

TEST_F(MemoryDirectoryTest, SweepKeepsLiveAndRecentJobs) {
  auto directory = Open("/data");
  const std::string path = directory->path();
  Leave(path, "live", true);
  Leave(path, "old", true);
  Leave(path, "recent", false);
  directory->Sweep({{"live", 3}}, TenMinutesAgo());
  EXPECT_TRUE(fs::exists(path + "/live/step-00000001.g1"));
  EXPECT_TRUE(fs::exists(path + "/recent/step-00000001.g1"));
  EXPECT_FALSE(fs::exists(path + "/old"));
  directory->Sweep({}, absl::InfiniteFuture());
  EXPECT_TRUE(fs::is_empty(path));
  directory.reset();
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(MemoryDirectoryTest, DiscardsTheStateOfOneJob) {
  const auto directory = Open("/data");
  Leave(directory->path(), "ended", false);
  Leave(directory->path(), "other", false);
  directory->Discard("ended");
  directory->Discard("unknown");
  directory->Discard("../muster-0123456789abcdef");
  EXPECT_FALSE(fs::exists(directory->path() + "/ended"));
  EXPECT_TRUE(fs::exists(directory->path() + "/other/step-00000001.g1"));
  directory->Discard("");
  EXPECT_TRUE(fs::exists(directory->path() + "/other/step-00000001.g1"));
}

// A worker that was started again finds what its ranks left before.
TEST_F(MemoryDirectoryTest, OutlivesItsWorker) {
  auto directory = Open("/data");
  Leave(directory->path(), "job", true);
  directory = nullptr;
  directory = Open("/data");
  EXPECT_TRUE(fs::exists(directory->path() + "/job/step-00000001.g1"));
  directory->Sweep({}, TenMinutesAgo());
  EXPECT_FALSE(fs::exists(directory->path() + "/job"));
}

TEST_F(MemoryDirectoryTest, SweepsAbandonedDirectories) {
  const auto own = Open("/data");
  auto running = Open("/running");
  Leave(own->path(), "job", true);
  Leave(running->path(), "job", true);
  const std::string gone = MemoryDirectoryPath(parent_, "/gone");
  const std::string restarting = MemoryDirectoryPath(parent_, "/restarting");
  Leave(gone, "job", true);
  Leave(restarting, "job", false);
  Leave(parent_ + "/muster-backup", "job", true);
  own->SweepAbandoned(TenMinutesAgo());
  EXPECT_TRUE(fs::exists(own->path() + "/job"));
  EXPECT_TRUE(fs::exists(running->path() + "/job"));
  EXPECT_FALSE(fs::exists(gone));
  EXPECT_TRUE(fs::exists(restarting + "/job"));
  EXPECT_TRUE(fs::exists(parent_ + "/muster-backup/job"));
  const std::string path = running->path();
  running.reset();
  own->SweepAbandoned(absl::InfiniteFuture());
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(MemoryDirectoryTest, CannotBeOpenedWithoutAParent) {
  EXPECT_TRUE(absl::IsNotFound(MemoryDirectory::Open(parent_ + "/none", "/data").status()));
}

}  // namespace
}  // namespace muster::agent
