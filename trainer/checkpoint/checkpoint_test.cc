#include "trainer/checkpoint/checkpoint.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/sha256.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/data/testing.h"
#include "trainer/exit_code.h"

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
  checkpoint.state.training = {{"train.seed", "3"}};
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
  // Looks for a checkpoint as a rank of the generation does.
  std::string Find(uint64_t generation) const {
    const auto found = CheckpointDirectory::OpenForReading(Options(generation)).FindNewestValid();
    if (!found.ok()) return std::string(found.status().message());
    return found->has_value() ? (*found)->name : "none";
  }
  std::string Find() const { return Find(1); }
  void Publish(uint64_t generation, uint64_t step) const {
    const auto written = Writer(generation).Write(AtStep(step));
    ASSERT_TRUE(written.ok()) << written.status();
  }

  data::TemporaryDirectory parent_;
  const std::string path_ = parent_.path() + "/made/on/demand";
};

TEST_F(CheckpointTest, FindsWrittenCheckpoint) {
  const CheckpointDirectory directory = Writer();
  const auto written = directory.Write(AtStep(7));
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(written->name, "step-00000007.g1");
  EXPECT_EQ(written->step, 7);
  const auto found = directory.FindNewestValid();
  ASSERT_TRUE(found.ok() && found->has_value()) << found.status();
  EXPECT_EQ((*found)->name, written->name);
  const CheckpointState& state = (*found)->state;
  EXPECT_EQ(state.step, 7);
  EXPECT_EQ(state.epoch, 0.5);
  EXPECT_EQ(state.seed, 3);
  EXPECT_EQ(state.job_id, "job");
  EXPECT_THAT(state.training, ElementsAre(::testing::Pair("train.seed", "3")));
  EXPECT_THAT(*SafetensorsFile::Open(directory.ModelPath(written->name))->ReadFloats("w", {1}),
              ElementsAre(7.0f));
  EXPECT_THAT(
      *SafetensorsFile::Open(directory.OptimizerPath(written->name))->ReadFloats("w.momentum", {1}),
      ElementsAre(-7.0f));
  EXPECT_THAT(*SafetensorsFile::Open(*directory.AveragePath(written->name))->ReadFloats("w", {1}),
              ElementsAre(3.5f));
  EXPECT_THAT(Names(), ElementsAre("step-00000007.g1"));
}

TEST_F(CheckpointTest, KeepsNewestCheckpoints) {
  const CheckpointDirectory directory = Writer(1, /*keep=*/2);
  for (const uint64_t step : {9, 10, 100, 99999999}) {
    ASSERT_TRUE(directory.Write(AtStep(step)).ok());
  }
  EXPECT_THAT(Names(), ElementsAre("step-00000100.g1", "step-99999999.g1"));
  ASSERT_TRUE(directory.Write(AtStep(100000000)).ok());
  EXPECT_EQ(Find(), "step-100000000.g1");
}

TEST_F(CheckpointTest, SkipsDamagedCheckpoints) {
  uint64_t generation = 0;
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "ema.safetensors",
                           "state.json", "manifest.json"}) {
    fs::remove_all(path_);
    Publish(++generation, 10);
    Publish(generation, 20);
    const std::string before = FormatFolderName({10, generation});
    ASSERT_EQ(Find(generation), FormatFolderName({20, generation}));
    const std::string newest = path_ + "/" + FormatFolderName({20, generation}) + "/" + file;
    std::string bytes;
    {
      std::ifstream in(newest, std::ios::binary);
      bytes.assign(std::istreambuf_iterator<char>(in), {});
    }
    data::WriteFile(newest, bytes.substr(0, bytes.size() - 3));
    EXPECT_EQ(Find(generation), before) << file << " truncated";
    std::string flipped = bytes;
    flipped[flipped.size() / 2] ^= 4;
    data::WriteFile(newest, flipped);
    EXPECT_EQ(Find(generation), before) << file << " with a flipped bit";
    fs::remove(newest);
    EXPECT_EQ(Find(generation), before) << file << " missing";
    // The next generation resumes from step 10 and reaches step 20 again.
    ++generation;
    EXPECT_EQ(Find(generation), FormatFolderName({10, generation}));
    Publish(generation, 20);
    EXPECT_EQ(Find(generation), FormatFolderName({20, generation}));
  }
}

TEST_F(CheckpointTest, StoresAverageOnlyIfGiven) {
  const CheckpointDirectory directory = Writer();
  Checkpoint checkpoint = AtStep(7);
  checkpoint.average.clear();
  ASSERT_TRUE(directory.Write(checkpoint).ok());
  EXPECT_EQ(Find(), "step-00000007.g1");
  EXPECT_FALSE(directory.AveragePath("step-00000007.g1").has_value());
}

TEST_F(CheckpointTest, StoresLossScaleOnlyIfGiven) {
  const CheckpointDirectory directory = Writer();
  Checkpoint checkpoint = AtStep(7);
  ASSERT_TRUE(directory.Write(checkpoint).ok());
  EXPECT_FALSE(directory.Verify("step-00000007.g1")->loss_scale.has_value());
  checkpoint.state.step = 8;
  checkpoint.state.loss_scale = LossScaleState{
      .scale = 0x1p-3, .clean_steps = 1999, .skipped_steps = 1ull << 40, .overflows_in_row = 2};
  ASSERT_TRUE(directory.Write(checkpoint).ok());
  const auto state = directory.Verify("step-00000008.g1");
  ASSERT_TRUE(state.ok() && state->loss_scale.has_value()) << state.status();
  EXPECT_EQ(state->loss_scale->scale, 0x1p-3);
  EXPECT_EQ(state->loss_scale->clean_steps, 1999u);
  EXPECT_EQ(state->loss_scale->skipped_steps, 1ull << 40);
  EXPECT_EQ(state->loss_scale->overflows_in_row, 2u);
}

TEST_F(CheckpointTest, KeepsBestCheckpoint) {
  CheckpointOptions options = Options(1, /*keep=*/1);
  options.keep_best = "test_loss";
  const auto directory = CheckpointDirectory::OpenForWriting(options);
  ASSERT_TRUE(directory.ok()) << directory.status();
  EXPECT_FALSE(directory->FindBest()->has_value());
  for (const uint64_t step : {1, 2, 3, 4}) {
    Checkpoint checkpoint = AtStep(step);
    if (step < 4) checkpoint.state.test_loss = step == 2 ? 0.25 : 0.5;
    if (step < 4) checkpoint.state.test_accuracy = 1;
    ASSERT_TRUE(directory->Write(checkpoint).ok());
  }
  EXPECT_THAT(Names(), ElementsAre("step-00000002.g1", "step-00000004.g1"));
  const auto best = directory->FindBest();
  ASSERT_TRUE(best.ok() && best->has_value()) << best.status();
  EXPECT_EQ((*best)->name, "step-00000002.g1");
  EXPECT_EQ((*best)->step, 2);
  EXPECT_EQ(directory->Verify("step-00000002.g1")->test_loss, 0.25);
  EXPECT_EQ(directory->Verify("step-00000002.g1")->test_accuracy, 1);
  EXPECT_FALSE(directory->Verify("step-00000004.g1")->test_loss.has_value());
}

TEST_F(CheckpointTest, RejectsManifestWithPathsOutsideDirectory) {
  const CheckpointDirectory directory = Writer();
  ASSERT_TRUE(directory.Write(AtStep(7)).ok());
  const std::string path = path_ + "/step-00000007.g1/manifest.json";
  std::ifstream in(path);
  std::string manifest(std::istreambuf_iterator<char>(in), {});
  ASSERT_TRUE(directory.Verify("step-00000007.g1").ok());
  const std::string name = "\"ema.safetensors\"";
  manifest.replace(manifest.find(name), name.size(), "\"../step-00000007.g1/ema.safetensors\"");
  data::WriteFile(path, manifest);
  EXPECT_EQ(directory.Verify("step-00000007.g1").status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(CheckpointTest, RejectsManifestThatListsAnIndexInPlaceOfTheState) {
  Publish(1, 7);
  const std::string path = path_ + "/step-00000007.g1/manifest.json";
  std::string manifest = data::ReadFile(path);
  manifest.replace(manifest.find("state.json"), 10, "state.json.index.json");
  data::WriteFile(path, manifest);
  EXPECT_TRUE(absl::IsDataLoss(ReadState(path_ + "/step-00000007.g1").status()));
  EXPECT_EQ(Find(), "none");
}

TEST_F(CheckpointTest, IgnoresNumbersThatAreNoCounts) {
  const std::string folder = parent_.path();
  for (const char* const number : {"1e300", "-1", "0.5"}) {
    const std::string state = absl::StrCat(R"({"step": 3, "world_size": )", number,
                                           R"(, "loss_scale": {"clean_steps": )", number, "}}");
    data::WriteFile(folder + "/" + kStateFile, state);
    const Manifest manifest = {
        {kModelFile, {}}, {kOptimizerFile, {}}, {kStateFile, {state.size(), Sha256Hex(state)}}};
    ASSERT_TRUE(WriteManifest(folder, manifest).ok());
    const auto read = ReadState(folder);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->step, 3u);
    EXPECT_EQ(read->world_size, 0u) << number;
    EXPECT_EQ(read->loss_scale->clean_steps, 0u) << number;
  }
}

TEST_F(CheckpointTest, KeepsValidCheckpointsBeforeDamagedLaterStep) {
  Publish(1, 20);
  Publish(1, 30);
  fs::remove(path_ + "/step-00000030.g1/model.safetensors");
  ASSERT_TRUE(Writer(2, /*keep=*/2).Write(AtStep(25)).ok());
  EXPECT_THAT(Names(), ElementsAre("step-00000020.g1", "step-00000025.g2"));
}

TEST_F(CheckpointTest, ClaimsWhatItResumesFrom) {
  Publish(1, 10);
  Publish(1, 20);
  EXPECT_EQ(Find(2), "step-00000020.g2");
  EXPECT_EQ(Find(2), "step-00000020.g2");  // another rank
  EXPECT_THAT(Names(), ElementsAre("step-00000010.g1", "step-00000020.g2"));
}

TEST_F(CheckpointTest, OlderGenerationNeitherRemovesNorReplaces) {
  const CheckpointDirectory old_writer = Writer(1, /*keep=*/1);
  ASSERT_TRUE(old_writer.Write(AtStep(10)).ok());
  ASSERT_EQ(Find(2), "step-00000010.g2");
  for (const uint64_t step : {10, 20}) {
    EXPECT_EQ(old_writer.Write(AtStep(step)).status().code(), absl::StatusCode::kAborted);
  }
  EXPECT_THAT(Names(), ElementsAre("step-00000010.g2"));
  EXPECT_EQ(Find(1),
            path_ + " now belongs to generation 2 of the job; generation 1 must not use it");
  EXPECT_EQ(CheckpointDirectory::OpenForWriting(Options(1)).status().code(),
            absl::StatusCode::kAborted);
}

// Its training had begun before the newer generation looked for a checkpoint.
TEST_F(CheckpointTest, OlderGenerationStopsAfterPublishing) {
  const CheckpointDirectory old_writer = Writer(1, /*keep=*/1);
  ASSERT_TRUE(old_writer.Write(AtStep(10)).ok());
  const auto unfinished = old_writer.CreateUnfinished(20);
  ASSERT_TRUE(unfinished.ok()) << unfinished.status();
  fs::copy(path_ + "/step-00000010.g1", *unfinished);
  ASSERT_EQ(Find(2), "step-00000010.g2");
  EXPECT_EQ(old_writer.Publish(20).status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(Find(3), "step-00000010.g3");
}

TEST_F(CheckpointTest, ReadsAndClaimsCheckpointsOfEarlierReleases) {
  Publish(1, 10);
  Publish(1, 20);
  fs::rename(path_ + "/step-00000010.g1", path_ + "/step-00000010");
  fs::rename(path_ + "/step-00000020.g1", path_ + "/step-00000020");
  data::WriteFile(path_ + "/GENERATION", "job 7");
  EXPECT_EQ(Find(2), "step-00000020.g2");
  ASSERT_TRUE(Writer(2, /*keep=*/1).Write(AtStep(30)).ok());
  EXPECT_THAT(Names(), ElementsAre("GENERATION", "step-00000030.g2"));
}

TEST_F(CheckpointTest, LeavesOtherJobsCheckpointsAlone) {
  CheckpointOptions other = Options();
  other.job_id = "other";
  const auto theirs = CheckpointDirectory::OpenForWriting(other);
  Checkpoint checkpoint = AtStep(10);
  checkpoint.state.job_id = "other";
  ASSERT_TRUE(theirs->Write(checkpoint).ok());
  const CheckpointDirectory directory = Writer(1, /*keep=*/1);
  EXPECT_EQ(Find(1), "step-00000010.g1");  // not claimed
  const auto written = directory.Write(AtStep(10));
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(written->name, "step-00000010.g1-job");
  EXPECT_EQ(Find(1), "step-00000010.g1-job");
  EXPECT_EQ(Find(2), "step-00000010.g2");
  ASSERT_TRUE(Writer(2, /*keep=*/1).Write(AtStep(20)).ok());
  EXPECT_THAT(Names(), ElementsAre("step-00000010.g1", "step-00000020.g2"));
  EXPECT_TRUE(theirs->Verify("step-00000010.g1").ok());
}

TEST_F(CheckpointTest, ReadOnlyDirectoryIsNotChanged) {
  Publish(1, 10);
  const auto found = CheckpointDirectory::OpenReadOnly(path_).FindNewestValid();
  ASSERT_TRUE(found.ok() && found->has_value()) << found.status();
  EXPECT_EQ((*found)->name, "step-00000010.g1");
  EXPECT_THAT(Names(), ElementsAre("step-00000010.g1"));
}

TEST_F(CheckpointTest, RefusalChangesNothing) {
  Publish(1, 10);
  const auto refused =
      CheckpointDirectory::OpenForReading(Options(2)).FindNewestValid({}, [](const auto& state) {
        return absl::FailedPreconditionError(state.job_id);
      });
  EXPECT_EQ(refused.status(), absl::FailedPreconditionError("job"));
  EXPECT_THAT(Names(), ElementsAre("step-00000010.g1"));
}

TEST_F(CheckpointTest, DeletesLeftoversOfKilledWriter) {
  Writer(1);
  for (const char* name :
       {".unfinished-step-00000020.g1-job", ".removed-step-00000010.g1-job",
        ".unfinished-step-00000020.g3-job", ".unfinished-step-00000020.g1-other"}) {
    fs::create_directory(path_ + "/" + name);
    data::WriteFile(path_ + "/" + name + "/model.safetensors", "half");
  }
  EXPECT_EQ(Find(), "none");
  Writer(2);
  EXPECT_THAT(Names(), ElementsAre(".unfinished-step-00000020.g1-other",
                                   ".unfinished-step-00000020.g3-job"));
}

TEST_F(CheckpointTest, KeepsUnknownFiles) {
  const CheckpointDirectory directory = Writer(1, /*keep=*/1);
  fs::create_directory(path_ + "/step-final");
  fs::create_directory(path_ + "/step-00000000.g1");  // no state
  data::WriteFile(path_ + "/notes.txt", "mine");
  ASSERT_TRUE(directory.Write(AtStep(1)).ok());
  ASSERT_TRUE(directory.Write(AtStep(2)).ok());
  EXPECT_THAT(Names(),
              ElementsAre("notes.txt", "step-00000000.g1", "step-00000002.g1", "step-final"));
}

TEST_F(CheckpointTest, RefusesValuesThatAreNotFinite) {
  const CheckpointDirectory directory = Writer(1, /*keep=*/1);
  ASSERT_TRUE(directory.Write(AtStep(6)).ok());
  for (auto tensors : {&Checkpoint::model, &Checkpoint::optimizer, &Checkpoint::average}) {
    Checkpoint checkpoint = AtStep(7);
    (checkpoint.*tensors)[0].values = std::vector<float>{std::nanf("")};
    EXPECT_EQ(ExitCodeOf(directory.Write(checkpoint).status()), kExitDiverged);
    EXPECT_THAT(Names(), ElementsAre("step-00000006.g1"));
  }
}

TEST_F(CheckpointTest, DiscardsWhatItCannotWrite) {
  const CheckpointDirectory directory = Writer();
  Checkpoint checkpoint = AtStep(7);
  checkpoint.model.push_back(checkpoint.model[0]);  // the same name twice
  EXPECT_EQ(directory.Write(checkpoint).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Names(), ElementsAre());
}

TEST_F(CheckpointTest, ReaderDoesNotCreateDirectory) {
  EXPECT_EQ(Find(), "none");
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
