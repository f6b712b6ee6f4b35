#include "trainer/checkpoint/verifier.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/data/testing.h"

namespace muster::train {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class VerifierTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto directory = CheckpointDirectory::OpenForWriting({.path = path("checkpoints")});
    ASSERT_TRUE(directory.ok()) << directory.status();
    Checkpoint checkpoint;
    checkpoint.state.step = 7;
    // Two and a half MiB in all.
    checkpoint.model = {{"w", {1 << 19}, std::vector<float>(1 << 19)}};
    checkpoint.optimizer = {{"m", {1 << 17}, std::vector<float>(1 << 17)}};
    std::vector<uint64_t> pieces;
    const auto written =
        directory->Write(checkpoint, [&](uint64_t bytes) { pieces.push_back(bytes); });
    ASSERT_TRUE(written.ok()) << written.status();
    EXPECT_GT(pieces.size(), 10) << "progress is visible on a slow disk";
    step_ = directory->FolderPath(written->name);
  }
  std::string path(const std::string& name) const { return directory_.path() + "/" + name; }
  // Collects the reports of progress; the first one of a process that reads the files is 0.
  absl::Status Verify(uint64_t generation, const std::string& cache) {
    reports_.clear();
    const Verifier verifier({cache,
                             [this](uint64_t done, absl::string_view unit) {
                               reports_.push_back(absl::StrCat(done, " ", unit));
                             }},
                            "job", generation);
    return verifier.Verify(step_);
  }

  data::TemporaryDirectory directory_;
  std::string step_;
  std::vector<std::string> reports_;
};

TEST_F(VerifierTest, ReadsFilesOncePerGeneration) {
  EXPECT_TRUE(Verify(1, path("cache")).ok());
  EXPECT_EQ(reports_.front(), "0 MiB verified");
  EXPECT_EQ(reports_.back(), "2 MiB verified");
  EXPECT_TRUE(Verify(1, path("cache")).ok());
  EXPECT_THAT(reports_, IsEmpty());
  EXPECT_TRUE(Verify(2, path("cache")).ok());
  EXPECT_EQ(reports_.back(), "2 MiB verified");
}

TEST_F(VerifierTest, SharesTheResultOfDamagedCheckpoint) {
  std::fstream(step_ + "/model.safetensors", std::ios::in | std::ios::out | std::ios::binary)
      .seekp(1 << 20)
      .write("x", 1);
  const absl::Status damaged = Verify(1, path("cache"));
  EXPECT_EQ(damaged.code(), absl::StatusCode::kDataLoss) << damaged;
  EXPECT_EQ(Verify(1, path("cache")), damaged);
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(VerifierTest, ReadsChangedFilesAgain) {
  EXPECT_TRUE(Verify(1, path("cache")).ok());
  std::filesystem::resize_file(step_ + "/model.safetensors", 100);
  EXPECT_EQ(Verify(1, path("cache")).code(), absl::StatusCode::kDataLoss);
  std::filesystem::remove(step_ + "/manifest.json");
  EXPECT_EQ(Verify(1, path("cache")).code(), absl::StatusCode::kNotFound);
}

// For example one that is stopped.
TEST_F(VerifierTest, DoesNotWaitForProcessWithoutProgress) {
  EXPECT_TRUE(Verify(1, path("cache")).ok());
  std::vector<int> locks;
  for (const auto& entry : std::filesystem::directory_iterator(path("cache"))) {
    if (entry.path().extension() != ".lock") continue;
    locks.push_back(open(entry.path().c_str(), O_RDWR));
    ASSERT_EQ(flock(locks.back(), LOCK_EX), 0);
  }
  ASSERT_EQ(locks.size(), 1);
  data::Cache cache(path("cache"));
  cache.lock_timeout = absl::ZeroDuration();
  EXPECT_TRUE(Verifier(cache, "job", 2).Verify(step_).ok());
  close(locks[0]);
}

TEST_F(VerifierTest, NeedsNoCache) {
  for (const std::string& cache : {std::string(), step_ + "/state.json/cache"}) {
    EXPECT_TRUE(Verify(1, cache).ok());
    EXPECT_EQ(reports_.back(), "2 MiB verified");
  }
  EXPECT_TRUE(Verifier().Verify(step_).ok());
}

}  // namespace
}  // namespace muster::train
