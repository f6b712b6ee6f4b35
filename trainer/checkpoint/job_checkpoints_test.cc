#include "trainer/checkpoint/job_checkpoints.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "common/sha256.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/data/testing.h"

namespace muster::train {
namespace {

using ::testing::HasSubstr;

TrainingIdentity Training(const std::string& seed) {
  return {.fields = {{"train.seed", seed}}, .digest = "digest of " + seed};
}

class JobCheckpointsTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const { return parent_.path() + "/" + name; }

  CheckpointDirectory Writer(const std::string& job, const std::string& path) const {
    auto directory = CheckpointDirectory::OpenForWriting({path, job, 1, 10});
    EXPECT_TRUE(directory.ok()) << directory.status();
    return *std::move(directory);
  }
  absl::Status Write(const CheckpointDirectory& directory, const std::string& job,
                     uint64_t step) const {
    Checkpoint checkpoint;
    checkpoint.state.step = step;
    checkpoint.state.job_id = job;
    checkpoint.state.training = Training("1").fields;
    return directory.Write(checkpoint).status();
  }
  void WriteAs(const std::string& job, const std::string& path, uint64_t step) const {
    ASSERT_TRUE(Write(Writer(job, path), job, step).ok());
  }

  JobCheckpointOptions Options(const std::string& job, const std::string& dir,
                               const std::string& resume_from = "") const {
    return {{dir, job, 2, 3}, resume_from, /*writes=*/true, Training("1"), /*cache=*/{}};
  }

  // Paths of all files and folders.
  std::vector<std::string> Tree() const {
    std::vector<std::string> paths;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(parent_.path())) {
      paths.push_back(entry.path());
    }
    std::sort(paths.begin(), paths.end());
    return paths;
  }

  data::TemporaryDirectory parent_;
};

TEST_F(JobCheckpointsTest, ResumesFromOwnCheckpointAndIgnoresResumeFrom) {
  WriteAs("other", Path("other"), 90);
  WriteAs("job", Path("own"), 20);
  const auto found = OpenJobCheckpoints(Options("job", Path("own"), Path("other")));
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->newest->state.step, 20u);
  EXPECT_EQ(found->own_newest->step, 20u);
  EXPECT_EQ(found->own_newest->name, "step-00000020.g2");
  EXPECT_EQ(found->source->path(), Path("own"));
}

TEST_F(JobCheckpointsTest, ContinuesFromAnotherDirectory) {
  const CheckpointDirectory running = Writer("other", Path("other"));
  ASSERT_TRUE(Write(running, "other", 60).ok());
  const auto found = OpenJobCheckpoints(Options("job", Path("own"), Path("other")));
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->newest->state.step, 60u);
  EXPECT_EQ(found->newest->state.job_id, "other");
  EXPECT_FALSE(found->own_newest.has_value());
  EXPECT_EQ(found->source->path(), Path("other"));
  EXPECT_EQ(found->own->path(), Path("own"));
  // The other job may still run.
  EXPECT_TRUE(Write(running, "other", 80).ok());
}

TEST_F(JobCheckpointsTest, RefusesDirectoryOfAnotherJobAndLeavesItAlone) {
  const CheckpointDirectory running = Writer("other", Path("shared"));
  ASSERT_TRUE(Write(running, "other", 60).ok());
  for (const std::string& resume_from : {std::string(), Path("elsewhere")}) {
    for (const bool writes : {true, false}) {
      JobCheckpointOptions options = Options("job", Path("shared"), resume_from);
      options.writes = writes;
      const std::vector<std::string> before = Tree();
      const absl::Status refused = OpenJobCheckpoints(options).status();
      EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_EQ(refused.message(), "checkpoint directory " + Path("shared") +
                                       " holds step 60 of job other, and this is job job; set "
                                       "checkpoint.resume_from: " +
                                       Path("shared") +
                                       " to continue from it, or choose another dir");
      EXPECT_EQ(Tree(), before);
    }
  }
  EXPECT_TRUE(Write(running, "other", 80).ok());
}

TEST_F(JobCheckpointsTest, AdoptsDirectoryThatResumeFromNames) {
  WriteAs("other", Path("shared"), 60);
  std::filesystem::create_directory_symlink(Path("shared"), Path("link"));
  for (const char* name : {"shared/", "./shared", "link", "shared"}) {
    const auto found = OpenJobCheckpoints(Options("job", Path("shared"), Path(name)));
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(found->newest->state.job_id, "other");
    EXPECT_FALSE(found->own_newest.has_value());
  }
  // In its next generation, the job finds its own checkpoint there.
  const JobCheckpointOptions adopting = Options("job", Path("shared"), Path("shared"));
  ASSERT_TRUE(Write(*OpenJobCheckpoints(adopting)->own, "job", 80).ok());
  EXPECT_EQ(OpenJobCheckpoints(adopting)->own_newest->name, "step-00000080.g2-job");
}

TEST_F(JobCheckpointsTest, TreatsCheckpointsWithoutJobAsAnothersUntilNamed) {
  WriteAs("", Path("old"), 10);
  EXPECT_THAT(std::string(OpenJobCheckpoints(Options("job", Path("old"))).status().message()),
              HasSubstr("holds step 10 of an unknown job, and this is job job"));
  EXPECT_EQ(OpenJobCheckpoints(Options("job", Path("old"), Path("old")))->newest->state.step, 10u);
}

TEST_F(JobCheckpointsTest, RejectsCheckpointsOfAnotherTraining) {
  WriteAs("other", Path("other"), 60);
  JobCheckpointOptions options = Options("job", Path("own"), Path("other"));
  options.training = Training("2");
  const absl::Status rejected = OpenJobCheckpoints(options).status();
  EXPECT_EQ(rejected.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      std::string(rejected.message()),
      HasSubstr(Path("other") +
                " holds step 60 of another training (job other): train.seed: 1, now 2; choose "));
}

// The files are written as the release before generations in names wrote them.
TEST_F(JobCheckpointsTest, ResumesFromCheckpointOfEarlierRelease) {
  const std::string folder = Path("own/step-00000010");
  std::filesystem::create_directories(folder);
  Manifest manifest;
  ASSERT_TRUE(WriteTensors(folder, kModelFile, {}, {}, manifest).ok());
  ASSERT_TRUE(WriteTensors(folder, kOptimizerFile, {}, {}, manifest).ok());
  const std::string state =
      "{\n  \"step\": 10,\n  \"epoch\": 0.5,\n  \"sampler\": {\n    \"seed\": 3,\n"
      "    \"epoch_samples\": 640\n  },\n  \"global_batch\": 64,\n  \"world_size\": 2,\n"
      "  \"job_id\": \"job\",\n  \"generation\": 1,\n"
      "  \"training_digest\": \"digest of 1\"\n}\n";
  data::WriteFile(folder + "/state.json", state);
  manifest[kStateFile] = {state.size(), Sha256Hex(state)};
  ASSERT_TRUE(WriteManifest(folder, manifest).ok());

  JobCheckpointOptions options = Options("job", Path("own"));
  options.training = Training("2");
  EXPECT_THAT(std::string(OpenJobCheckpoints(options).status().message()),
              HasSubstr("batch, precision, seed or augmentation differs"));
  options.training = Training("1");
  const auto found = OpenJobCheckpoints(options);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->own_newest->name, "step-00000010.g2");
  EXPECT_EQ(found->newest->state.epoch_samples, 640u);
}

TEST_F(JobCheckpointsTest, RefusalOfAnotherTrainingChangesNothing) {
  const CheckpointDirectory running = Writer("job", Path("own"));
  ASSERT_TRUE(Write(running, "job", 60).ok());
  ASSERT_TRUE(running.CreateUnfinished(70).ok());
  const std::vector<std::string> before = Tree();
  JobCheckpointOptions options = Options("job", Path("own"));
  options.training = Training("2");
  EXPECT_EQ(OpenJobCheckpoints(options).status().code(), absl::StatusCode::kFailedPrecondition);
  options = Options("next", Path("new"), Path("own"));
  options.training = Training("2");
  EXPECT_EQ(OpenJobCheckpoints(options).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Tree(), before);
  EXPECT_TRUE(Write(running, "job", 80).ok());
}

TEST_F(JobCheckpointsTest, ReadsOnlyResumeFromIfNoneAreWritten) {
  WriteAs("other", Path("other"), 60);
  EXPECT_FALSE(OpenJobCheckpoints(Options("job", ""))->newest.has_value());
  const auto found = OpenJobCheckpoints(Options("job", "", Path("other")));
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_FALSE(found->own.has_value());
  EXPECT_EQ(found->newest->state.step, 60u);
}

TEST_F(JobCheckpointsTest, FindsNothingInMissingDirectories) {
  const auto found = OpenJobCheckpoints(Options("job", Path("own"), Path("missing")));
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_FALSE(found->newest.has_value());
  EXPECT_FALSE(std::filesystem::exists(Path("missing")));
}

}  // namespace
}  // namespace muster::train
