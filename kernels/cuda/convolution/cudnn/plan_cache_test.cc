#include "kernels/cuda/convolution/cudnn/plan_cache.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "gtest/gtest.h"

namespace muster::kernels::cuda {
namespace {

namespace fs = std::filesystem;

class PlanCacheTest : public testing::Test {
 protected:
  PlanCacheTest()
      : folder_(fs::path(testing::TempDir()) / "plans" /
                testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(folder_);
  }
  static std::string Content(const std::string& path) {
    std::stringstream content;
    content << std::ifstream(path).rdbuf();
    return content.str();
  }
  const std::string folder_;
};

TEST_F(PlanCacheTest, StoresPlansForTheNextProcess) {
  PlanCache cache(folder_, "NVIDIA H200 CUDA 13000 cuDNN 91900");
  EXPECT_EQ(cache.path(), folder_ + "/NVIDIA-H200-CUDA-13000-cuDNN-91900.plans");
  EXPECT_EQ(cache.Find("forward"), std::nullopt);
  cache.Put("forward", "1:");
  cache.Put("data", "2:3=4");
  cache.Put("forward", "5:");
  const PlanCache next(folder_, "NVIDIA H200 CUDA 13000 cuDNN 91900");
  EXPECT_EQ(next.Find("forward"), "5:");
  EXPECT_EQ(next.Find("data"), "2:3=4");
  EXPECT_EQ(PlanCache(folder_, "NVIDIA H200 CUDA 13000 cuDNN 92000").Find("data"), std::nullopt);
  // No temporary files remain.
  int files = 0;
  for (const auto& entry : fs::directory_iterator(folder_)) files += entry.is_regular_file();
  EXPECT_EQ(files, 1);
}

TEST_F(PlanCacheTest, ForgetsPlansAfterThirtyDays) {
  const absl::Time now = absl::FromUnixSeconds(1'700'000'000);
  PlanCache(folder_, "gpu", now).Put("old", "1:");
  PlanCache(folder_, "gpu", now + absl::Hours(24)).Put("new", "2:");
  PlanCache later(folder_, "gpu", now + PlanCache::kKept);
  EXPECT_EQ(later.Find("old"), std::nullopt);
  EXPECT_EQ(later.Find("new"), "2:");
  // Writing the file drops them, and does not extend the time of others.
  later.Put("newest", "3:");
  EXPECT_EQ(Content(later.path()).find("old"), std::string::npos);
  EXPECT_EQ(PlanCache(folder_, "gpu", now + PlanCache::kKept + absl::Hours(24)).Find("new"),
            std::nullopt);
}

TEST_F(PlanCacheTest, MergesPlansOfProcessesThatWriteInTurn) {
  PlanCache one(folder_, "gpu"), other(folder_, "gpu");
  one.Put("a", "1:");
  other.Put("b", "2:");
  one.Put("c", "3:");
  const PlanCache next(folder_, "gpu");
  EXPECT_EQ(next.Find("a"), "1:");
  EXPECT_EQ(next.Find("b"), "2:");
  EXPECT_EQ(next.Find("c"), "3:");
}

TEST_F(PlanCacheTest, IgnoresInvalidLines) {
  PlanCache cache(folder_, "gpu");
  cache.Put("a", "1:");
  cache.Put("b", "2:");
  std::string content = Content(cache.path());
  const size_t at = content.find("1:");
  content[at] = '7';  // no longer matches the checksum
  std::ofstream(cache.path()) << "\x01\xff nonsense\n\t\t\n" << content << "half a li";
  PlanCache next(folder_, "gpu");
  EXPECT_EQ(next.Find("a"), std::nullopt);
  EXPECT_EQ(next.Find("b"), "2:");
  next.Put("a", "3:");
  EXPECT_EQ(PlanCache(folder_, "gpu").Find("a"), "3:");
  EXPECT_EQ(Content(next.path()).find("nonsense"), std::string::npos);
}

TEST_F(PlanCacheTest, KeepsPlansInMemoryIfTheFolderIsNotWritable) {
  std::ofstream(folder_) << "a file";
  PlanCache cache(folder_ + "/below", "gpu");
  cache.Put("a", "1:");
  EXPECT_EQ(cache.Find("a"), "1:");
  PlanCache in_memory("", "gpu");
  EXPECT_EQ(in_memory.path(), "");
  in_memory.Put("a", "1:");
  EXPECT_EQ(in_memory.Find("a"), "1:");
}

TEST(DefaultPlanFolderTest, ReadsTheEnvironment) {
  setenv("HOME", "/home/someone", 1);
  setenv("XDG_CACHE_HOME", "/scratch/cache", 1);
  EXPECT_EQ(DefaultPlanFolder(), "/scratch/cache/muster/cuda");
  unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(DefaultPlanFolder(), "/home/someone/.cache/muster/cuda");
  unsetenv("HOME");
  EXPECT_EQ(DefaultPlanFolder(), "");
}

}  // namespace
}  // namespace muster::kernels::cuda
