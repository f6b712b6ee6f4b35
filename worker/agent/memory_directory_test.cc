#include "worker/agent/memory_directory.h"

#include <filesystem>
#include <fstream>

#include "gtest/gtest.h"

namespace muster::agent {
namespace {

namespace fs = std::filesystem;

TEST(MemoryDirectoryTest, DependsOnTheDataDirectory) {
  const std::string one = MemoryDirectory("/dev/shm", "/var/lib/muster");
  EXPECT_EQ(one, MemoryDirectory("/dev/shm", "/var/lib/../lib/muster"));
  EXPECT_NE(one, MemoryDirectory("/dev/shm", "/var/lib/muster-2"));
  EXPECT_EQ(MemoryDirectoryOf(one, "job-1"), one + "/job-1");
}

TEST(MemoryDirectoryTest, IsEmptyWithoutAParent) {
  EXPECT_EQ(MemoryDirectory("", "/var/lib/muster"), "");
  EXPECT_EQ(MemoryDirectoryOf("", "job-1"), "");
}

TEST(MemoryDirectoryTest, SweepKeepsLiveAndRecentJobs) {
  const fs::path directory = fs::path(::testing::TempDir()) / "memory";
  for (const char* const job : {"live", "old", "recent"}) {
    fs::create_directories(directory / job);
    std::ofstream(directory / job / "step-00000001.g1") << "state";
  }
  const auto hour_ago = fs::file_time_type::clock::now() - std::chrono::hours(1);
  fs::last_write_time(directory / "old", hour_ago);
  fs::last_write_time(directory / "live", hour_ago);
  SweepMemoryDirectory(directory, {{"live", 3}}, absl::Now() - absl::Minutes(10));
  EXPECT_TRUE(fs::exists(directory / "live" / "step-00000001.g1"));
  EXPECT_TRUE(fs::exists(directory / "recent" / "step-00000001.g1"));
  EXPECT_FALSE(fs::exists(directory / "old"));
  SweepMemoryDirectory(directory, {}, absl::InfiniteFuture());
  EXPECT_FALSE(fs::exists(directory));
}

}  // namespace
}  // namespace muster::agent
