#include "worker/agent/storage/sweeper.h"

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"

namespace muster::agent {
namespace {

namespace fs = std::filesystem;

class SweeperTest : public ::testing::Test {
 protected:
  SweeperTest() {
    // The path of a unix socket below it is limited.
    char pattern[] = "/tmp/muster-sweeper-XXXXXX";
    root_ = mkdtemp(pattern);
    fs::create_directories(root_ + "/memory");
    data_ = *DataDirectory::Open(root_ + "/data", /*has_job_users=*/false);
    auto memory = *MemoryDirectory::Open(root_ + "/memory", data_->path());
    for (const char* job : {"job-1", "job-2"}) {
      fs::create_directories(data_->Job(job));
      fs::create_directories(MemoryOf(memory->path(), job));
    }
    sweeper_ = std::make_unique<Sweeper>(*data_, std::move(memory), Retention());
  }
  ~SweeperTest() override {
    sweeper_.reset();
    data_.reset();
    fs::remove_all(root_);
  }

  static std::string MemoryOf(const std::string& directory, const std::string& job) {
    return MemoryDirectoryOf(directory, job);
  }
  bool HasMemory(const std::string& job) const {
    return fs::exists(MemoryOf(sweeper_->memory_path(), job));
  }

  std::string root_;
  std::unique_ptr<DataDirectory> data_;
  std::unique_ptr<Sweeper> sweeper_;
};

TEST_F(SweeperTest, DeletesFilesAndMemoryOfOneJob) {
  sweeper_->DeleteFiles("job-1");
  sweeper_->DiscardMemory("job-1");
  sweeper_->Drain();
  EXPECT_FALSE(fs::exists(data_->Job("job-1")));
  EXPECT_TRUE(fs::exists(data_->Job("job-2")));
  EXPECT_FALSE(HasMemory("job-1"));
  EXPECT_TRUE(HasMemory("job-2"));
}

TEST_F(SweeperTest, SweepsOnceInEachInterval) {
  int sweeps = 0;
  const auto held = [&sweeps] {
    ++sweeps;
    return Sweeper::Held();
  };
  const SteadyTime now = Now().steady;
  sweeper_->SweepIfDue(now, held);
  sweeper_->SweepIfDue(now + absl::Minutes(9), held);
  EXPECT_EQ(sweeps, 1);
  sweeper_->SweepIfDue(now + absl::Minutes(11), held);
  EXPECT_EQ(sweeps, 2);
}

TEST_F(SweeperTest, KeepsRecentMemoryForLaterWorkerOnly) {
  sweeper_->Stop();
  sweeper_->SweepMemory({}, /*hands_over=*/true);
  EXPECT_TRUE(HasMemory("job-1"));
  sweeper_->SweepMemory({{"job-1", 1}}, /*hands_over=*/false);
  EXPECT_TRUE(HasMemory("job-1"));
  EXPECT_FALSE(HasMemory("job-2"));
}

}  // namespace
}  // namespace muster::agent
