#include "trainer/checkpoint/memory_checkpoint.h"

#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/data/testing.h"

namespace muster::train {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

class MemoryCheckpointTest : public ::testing::Test {
 protected:
  std::vector<StateArray> Arrays() {
    return {{"parameters", parameters_.data(), parameters_.size() * sizeof(float)},
            {"buffers", nullptr, 0},
            {"optimizer.momentum", momentum_.data(), momentum_.size() * sizeof(float)}};
  }
  bool Write(uint64_t step, uint64_t generation) {
    const auto written =
        checkpoints_.Write({.step = step, .generation = generation, .layout = "l"}, Arrays());
    EXPECT_TRUE(written.ok()) << written.status();
    return written.ok() && *written;
  }
  std::optional<MemoryCheckpoint> Newest(uint64_t before_generation) const {
    const std::vector<MemoryCheckpoint> found = checkpoints_.Find(before_generation, "l");
    return found.empty() ? std::nullopt : std::optional(found.front());
  }
  std::vector<std::string> Files() const {
    std::vector<std::string> files;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(path_, error)) {
      files.push_back(entry.path().filename().string());
    }
    return files;
  }

  data::TemporaryDirectory directory_;
  const std::string path_ = directory_.path() + "/job-1";
  const MemoryCheckpoints checkpoints_{path_};
  std::vector<float> parameters_ = {1, 2, 3};
  std::vector<float> momentum_ = {4, 5, 6};
};

TEST_F(MemoryCheckpointTest, ReadsWhatWasWritten) {
  MemoryCheckpoint checkpoint{.step = 7, .generation = 2, .layout = "l"};
  checkpoint.loss_scale =
      LossScaleState{.scale = 65536, .clean_steps = 3, .skipped_steps = 2, .overflows_in_row = 1};
  ASSERT_TRUE(*checkpoints_.Write(checkpoint, Arrays()));
  const auto found = Newest(3);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->step, 7u);
  EXPECT_EQ(found->generation, 2u);
  ASSERT_TRUE(found->loss_scale.has_value());
  EXPECT_EQ(found->loss_scale->scale, 65536);
  EXPECT_EQ(found->loss_scale->clean_steps, 3u);
  EXPECT_EQ(found->loss_scale->skipped_steps, 2u);
  EXPECT_EQ(found->loss_scale->overflows_in_row, 1u);
  parameters_ = momentum_ = {0, 0, 0};
  ASSERT_TRUE(checkpoints_.Read(*found, Arrays()).ok());
  EXPECT_THAT(parameters_, ElementsAre(1, 2, 3));
  EXPECT_THAT(momentum_, ElementsAre(4, 5, 6));
}

TEST_F(MemoryCheckpointTest, FindsTheNewestOfEarlierGenerations) {
  EXPECT_FALSE(Newest(9).has_value());
  Write(90, 1);
  Write(20, 2);
  Write(21, 2);
  EXPECT_EQ(Newest(3)->step, 21u);
  EXPECT_EQ(Newest(2)->step, 90u);
  EXPECT_FALSE(Newest(1).has_value());
  EXPECT_TRUE(checkpoints_.Find(3, "of another program").empty());
}

TEST_F(MemoryCheckpointTest, OneRankWritesAStep) {
  EXPECT_TRUE(Write(5, 1));
  EXPECT_FALSE(Write(5, 1));
  EXPECT_TRUE(Write(6, 1));
  // A rank that is still writing, or was killed while it wrote.
  std::ofstream(path_ + "/.unfinished-step-00000007.g1") << "state";
  EXPECT_FALSE(Write(7, 1));
  EXPECT_EQ(Newest(2)->step, 6u);
}

TEST_F(MemoryCheckpointTest, KeepsThePartsOfAStateApart) {
  MemoryCheckpoint part{.step = 5, .generation = 1, .part = 0, .parts = 2, .layout = "l"};
  EXPECT_TRUE(*checkpoints_.Write(part, Arrays()));
  EXPECT_FALSE(*checkpoints_.Write(part, Arrays()));
  part.part = 1;
  parameters_ = {7, 8};
  EXPECT_TRUE(*checkpoints_.Write(part, Arrays()));
  Write(4, 1);
  const std::vector<MemoryCheckpoint> found = checkpoints_.Find(2, "l");
  ASSERT_EQ(found.size(), 3);
  EXPECT_EQ(found[0].part, 0u);
  EXPECT_EQ(found[1].part, 1u);
  EXPECT_EQ(found[1].parts, 2u);
  EXPECT_EQ(found[2].parts, 1u);
  const auto contents = checkpoints_.ReadContents(found[1]);
  ASSERT_TRUE(contents.ok()) << contents.status();
  EXPECT_EQ(contents->at("parameters").size(), 2 * sizeof(float));
  EXPECT_TRUE(contents->at("buffers").empty());
  parameters_ = {0, 0};
  ASSERT_TRUE(checkpoints_.Read(found[1], Arrays()).ok());
  EXPECT_THAT(parameters_, ElementsAre(7, 8));
  checkpoints_.RemoveBefore(2);
  EXPECT_TRUE(Files().empty());
}

TEST_F(MemoryCheckpointTest, RemovesOnlyWhatEarlierGenerationsWrote) {
  Write(5, 1);
  Write(6, 3);
  std::ofstream(path_ + "/.unfinished-step-00000004.g1") << "state";
  checkpoints_.RemoveBefore(3);
  EXPECT_THAT(Files(), UnorderedElementsAre("step-00000006.g3"));
}

TEST_F(MemoryCheckpointTest, RejectsOtherArrays) {
  Write(5, 1);
  const MemoryCheckpoint found = *Newest(2);
  std::vector<StateArray> arrays = Arrays();
  arrays[0].bytes = 8;
  EXPECT_TRUE(absl::IsDataLoss(checkpoints_.Read(found, arrays)));
  arrays = Arrays();
  arrays.pop_back();
  EXPECT_TRUE(absl::IsDataLoss(checkpoints_.Read(found, arrays)));
  EXPECT_THAT(parameters_, ElementsAre(1, 2, 3));
}

TEST_F(MemoryCheckpointTest, SkipsDamagedFiles) {
  Write(5, 1);
  Write(6, 1);
  fs::resize_file(path_ + "/step-00000006.g1", 10);
  std::ofstream(path_ + "/step-00000007.g1") << "\xff\xff\xff\xff\xff\xff\xff\xff{}";
  EXPECT_EQ(Newest(2)->step, 5u);
  fs::resize_file(path_ + "/step-00000005.g1", fs::file_size(path_ + "/step-00000005.g1") - 1);
  const MemoryCheckpoint damaged{.step = 5, .generation = 1, .layout = "l"};
  EXPECT_TRUE(absl::IsDataLoss(checkpoints_.Read(damaged, Arrays())));
  EXPECT_TRUE(absl::IsDataLoss(checkpoints_.ReadContents(damaged).status()));
}

// As on a file system in memory that is full: the write fails, instead of a signal for an access to
// a mapped page. What was written before stays.
TEST_F(MemoryCheckpointTest, LeavesNothingIfThereIsNoSpace) {
  Write(4, 1);
  parameters_.assign(100'000, 1);
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small = {.rlim_cur = 64 << 10, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto written = checkpoints_.Write({.step = 5, .generation = 1, .layout = "l"}, Arrays());
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_FALSE(written.ok());
  EXPECT_THAT(Files(), ElementsAre("step-00000004.g1"));
  EXPECT_TRUE(Write(5, 1));
}

TEST_F(MemoryCheckpointTest, LeavesNothingIfWritingFails) {
  // Writing to a null pointer's address fails with EFAULT.
  const std::vector<StateArray> arrays = {{"parameters", nullptr, 4000}};
  EXPECT_FALSE(checkpoints_.Write({.step = 5, .generation = 1, .layout = "l"}, arrays).ok());
  EXPECT_TRUE(Files().empty());
}

}  // namespace
}  // namespace muster::train
