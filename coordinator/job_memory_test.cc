#include "coordinator/job_memory.h"

#include <filesystem>
#include <fstream>

#include "gtest/gtest.h"

namespace muster {
namespace {

TEST(JobMemory, IsAQuarterWithinBounds) {
  EXPECT_EQ(DefaultJobMemory(0), uint64_t{256} << 20);
  EXPECT_EQ(DefaultJobMemory(uint64_t{4} << 30), uint64_t{1} << 30);
  EXPECT_EQ(DefaultJobMemory(uint64_t{1} << 40), uint64_t{8} << 30);
}

TEST(JobMemory, LimitsOfCgroupsCount) {
  const std::string folder = ::testing::TempDir() + "job_memory";
  std::filesystem::create_directories(folder + "/system.slice/muster.service");
  const std::string own = folder + "/own";
  std::ofstream(own) << "1:name=systemd:/other\n0::/system.slice/muster.service\n";
  const uint64_t machine = UsableMemory(own, folder);
  EXPECT_GT(machine, uint64_t{1} << 20);
  EXPECT_EQ(UsableMemory(folder + "/missing", folder), machine);

  std::ofstream(folder + "/system.slice/muster.service/memory.max") << "max\n";
  EXPECT_EQ(UsableMemory(own, folder), machine);
  std::ofstream(folder + "/system.slice/memory.max") << "1048576\n";
  EXPECT_EQ(UsableMemory(own, folder), 1048576u);
  std::ofstream(folder + "/system.slice/muster.service/memory.max") << "65536\n";
  EXPECT_EQ(UsableMemory(own, folder), 65536u);
}

}  // namespace
}  // namespace muster
