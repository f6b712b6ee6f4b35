#include "trainer/checkpoint/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/data/testing.h"

namespace muster::train {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Checkpoint AtStep(uint64_t step) {
  Checkpoint checkpoint;
  checkpoint.state.step = step;
  checkpoint.state.epoch = 0.5;
  checkpoint.state.seed = 3;
  checkpoint.state.job_id = "job";
  checkpoint.state.training_digest = "digest";
  checkpoint.model = {{"w", {1}, std::vector<float>{static_cast<float>(step)}}};
  checkpoint.optimizer = {{"w.momentum", {1}, std::vector<float>{-static_cast<float>(step)}}};
  checkpoint.average = {{"w", {1}, std::vector<float>{static_cast<float>(step) / 2}}};
  return checkpoint;
}

class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointOptions Options(uint64_t generation = 1, uint32_t keep = 3) const {
    return {.path = path_, .job_id = "job", .generation = generation, .keep = keep};
  }
  CheckpointDirectory Writer(uint64_t generation = 1, uint32_t keep = 3) const {
    auto directory = CheckpointDirectory::OpenForWriting(Options(generation, keep));
    EXPECT_TRUE(directory.ok()) << directory.status();
    return *std::move(directory);
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(path_)) {
      names.push_back(entry.path().filename());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  uint64_t NewestValid() const {
    const auto state = CheckpointDirectory::OpenForReading(Options())->FindNewestValid();
    return state.has_value() ? state->step : 0;
  }

  data::TemporaryDirectory parent_;
  const std::string path_ = parent_.path() + "/made/on/demand";
};

TEST_F(CheckpointTest, FindsWrittenCheckpoint) {
  const CheckpointDirectory directory = Writer();
  ASSERT_TRUE(directory.Write(AtStep(7)).ok());
  const auto state = directory.FindNewestValid();
  ASSERT_TRUE(state.has_value());
  EXPECT_EQ(state->step, 7);
  EXPECT_EQ(state->epoch, 0.5);
  EXPECT_EQ(state->seed, 3);
  EXPECT_EQ(state->job_id, "job");
  EXPECT_EQ(state->training_digest, "digest");
  EXPECT_THAT(*SafetensorsFile::Open(directory.ModelPath(7))->ReadFloats("w", {1}),
              ElementsAre(7.0f));
  EXPECT_THAT(*SafetensorsFile::Open(directory.OptimizerPath(7))->ReadFloats("w.momentum", {1}),
              ElementsAre(-7.0f));
  EXPECT_THAT(*SafetensorsFile::Open(*directory.AveragePath(7))->ReadFloats("w", {1}),
              ElementsAre(3.5f));
  EXPECT_THAT(Names(), ElementsAre("GENERATION", "step-00000007"));
}

TEST_F(CheckpointTest, KeepsNewestCheckpoints) {
  const CheckpointDirectory directory = Writer(1, /*keep=*/2);
  for (const uint64_t step : {9, 10, 100, 99999999}) {
    ASSERT_TRUE(directory.Write(AtStep(step)).ok());
  }
  EXPECT_THAT(Names(), ElementsAre("GENERATION", "step-00000100", "step-99999999"));
  ASSERT_TRUE(directory.Write(AtStep(100000000)).ok());
  EXPECT_EQ(NewestValid(), 100000000);
}

TEST_F(CheckpointTest, SkipsDamagedCheckpoints) {
  const CheckpointDirectory directory = Writer();
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "ema.safetensors",
                           "state.json", "manifest.json"}) {
    ASSERT_TRUE(directory.Write(AtStep(10)).ok());
    ASSERT_TRUE(directory.Write(AtStep(20)).ok());
    ASSERT_EQ(NewestValid(), 20);
    const std::string newest = path_ + "/step-00000020/" + file;
    std::string bytes;
    {
      std::ifstream in(newest, std::ios::binary);
      bytes.assign(std::istreambuf_iterator<char>(in), {});
    }
    data::WriteFile(newest, bytes.substr(0, bytes.size() - 3));
    EXPECT_EQ(NewestValid(), 10) << file << " truncated";
    std::string flipped = bytes;
    flipped[flipped.size() / 2] ^= 4;
    data::WriteFile(newest, flipped);
    EXPECT_EQ(NewestValid(), 10) << file << " with a flipped bit";
    fs::remove(newest);
    EXPECT_EQ(NewestValid(), 10) << file << " missing";
    // Training resumes from step 10 and reaches step 20 again.
    ASSERT_TRUE(directory.Write(AtStep(20)).ok());
    EXPECT_EQ(NewestValid(), 20);
  }
}

TEST_F(CheckpointTest, StoresAverageOnlyIfGiven) {
  const CheckpointDirectory directory = Writer();
  Checkpoint checkpoint = AtStep(7);
  checkpoint.average.clear();
  ASSERT_TRUE(directory.Write(checkpoint).ok());
  EXPECT_EQ(NewestValid(), 7);
  EXPECT_FALSE(directory.AveragePath(7).has_value());
}

TEST_F(CheckpointTest, StoresLossScaleOnlyIfGiven) {
  const CheckpointDirectory directory = Writer();
  Checkpoint checkpoint = AtStep(7);
  ASSERT_TRUE(directory.Write(checkpoint).ok());
  EXPECT_FALSE(directory.Verify(7)->loss_scale.has_value());
  checkpoint.state.step = 8;
  checkpoint.state.loss_scale = LossScaleState{
      .scale = 0x1p-3, .clean_steps = 1999, .skipped_steps = 1ull << 40, .overflows_in_row = 2};
  ASSERT_TRUE(directory.Write(checkpoint).ok());
  const auto state = directory.Verify(8);
  ASSERT_TRUE(state.ok() && state->loss_scale.has_value()) << state.status();
  EXPECT_EQ(state->loss_scale->scale, 0x1p-3);
  EXPECT_EQ(state->loss_scale->clean_steps, 1999u);
  EXPECT_EQ(state->loss_scale->skipped_steps, 1ull << 40);
  EXPECT_EQ(state->loss_scale->overflows_in_row, 2u);
}

TEST_F(CheckpointTest, RejectsManifestWithPathsOutsideDirectory) {
  const CheckpointDirectory directory = Writer();
  ASSERT_TRUE(directory.Write(AtStep(7)).ok());
  const std::string path = path_ + "/step-00000007/manifest.json";
  std::ifstream in(path);
  std::string manifest(std::istreambuf_iterator<char>(in), {});
  ASSERT_TRUE(directory.Verify(7).ok());
  const std::string name = "\"ema.safetensors\"";
  manifest.replace(manifest.find(name), name.size(), "\"../step-00000007/ema.safetensors\"");
  data::WriteFile(path, manifest);
  EXPECT_EQ(directory.Verify(7).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(CheckpointTest, KeepsValidCheckpointsBeforeDamagedLaterStep) {
  const CheckpointDirectory directory = Writer(1, /*keep=*/1);
  ASSERT_TRUE(directory.Write(AtStep(30)).ok());
  fs::remove(path_ + "/step-00000030/state.json");
  ASSERT_TRUE(directory.Write(AtStep(20)).ok());
  EXPECT_THAT(Names(), ElementsAre("GENERATION", "step-00000020"));
}

TEST_F(CheckpointTest, RejectsWriterOfStaleGeneration) {
  const CheckpointDirectory old_writer = Writer(1);
  ASSERT_TRUE(old_writer.Write(AtStep(10)).ok());
  // A rank of the next generation looks for a checkpoint, which fences off the old generation.
  ASSERT_EQ(CheckpointDirectory::OpenForReading(Options(2))->FindNewestValid()->step, 10);
  EXPECT_EQ(old_writer.Write(AtStep(20)).code(), absl::StatusCode::kAborted);
  EXPECT_THAT(Names(), ElementsAre("GENERATION", "step-00000010"));
  EXPECT_EQ(CheckpointDirectory::OpenForWriting(Options(1)).status().code(),
            absl::StatusCode::kAborted);
}

TEST_F(CheckpointTest, RemovesLeftoversOfKilledWriter) {
  Writer(1);
  fs::create_directory(path_ + "/.unfinished-1-20");
  data::WriteFile(path_ + "/.unfinished-1-20/model.safetensors", "half");
  EXPECT_EQ(NewestValid(), 0);
  Writer(2);
  EXPECT_THAT(Names(), ElementsAre("GENERATION"));
}

TEST_F(CheckpointTest, KeepsUnknownFiles) {
  const CheckpointDirectory directory = Writer(1, /*keep=*/1);
  fs::create_directory(path_ + "/step-final");
  data::WriteFile(path_ + "/notes.txt", "mine");
  ASSERT_TRUE(directory.Write(AtStep(1)).ok());
  ASSERT_TRUE(directory.Write(AtStep(2)).ok());
  EXPECT_THAT(Names(), ElementsAre("GENERATION", "notes.txt", "step-00000002", "step-final"));
}

TEST_F(CheckpointTest, ReaderDoesNotCreateDirectory) {
  EXPECT_FALSE(CheckpointDirectory::OpenForReading(Options())->FindNewestValid().has_value());
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(CheckpointTest, CreatesParentsOnlyIfAsked) {
  CheckpointOptions options = Options();
  options.create_parents = false;
  const absl::Status status = CheckpointDirectory::OpenForWriting(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(path_ + ", whose parent must exist on every node: "));
  fs::create_directories(fs::path(path_).parent_path());
  EXPECT_TRUE(CheckpointDirectory::OpenForWriting(options).ok());
}

TEST_F(CheckpointTest, NamesDirectoryThatCannotBeCreated) {
  data::WriteFile(parent_.path() + "/made", "a file is in the way");
  const absl::Status status = CheckpointDirectory::OpenForWriting(Options()).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr(path_));
}

}  // namespace
}  // namespace muster::train
