#include "trainer/checkpoint/job_checkpoints.h"

#include <filesystem>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/data/testing.h"

namespace muster::train {
namespace {

using ::testing::HasSubstr;

constexpr char kDigest[] = "digest";

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
    checkpoint.state.training_digest = kDigest;
    return directory.Write(checkpoint);
  }
  void WriteAs(const std::string& job, const std::string& path, uint64_t step) const {
    ASSERT_TRUE(Write(Writer(job, path), job, step).ok());
  }

  JobCheckpointOptions Options(const std::string& job, const std::string& dir,
                               const std::string& resume_from = "") const {
    return {{dir, job, 2, 3}, resume_from, /*writes=*/true, kDigest};
  }

  data::TemporaryDirectory parent_;
};

TEST_F(JobCheckpointsTest, ResumesFromOwnCheckpointAndIgnoresResumeFrom) {
  WriteAs("other", Path("other"), 90);
  WriteAs("job", Path("own"), 20);
  const auto found = OpenJobCheckpoints(Options("job", Path("own"), Path("other")));
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->newest->step, 20u);
  EXPECT_EQ(found->own_step, 20u);
  EXPECT_EQ(found->source->path(), Path("own"));
}

TEST_F(JobCheckpointsTest, ContinuesFromAnotherDirectory) {
  const CheckpointDirectory running = Writer("other", Path("other"));
  ASSERT_TRUE(Write(running, "other", 60).ok());
  const auto found = OpenJobCheckpoints(Options("job", Path("own"), Path("other")));
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->newest->step, 60u);
  EXPECT_EQ(found->newest->job_id, "other");
  EXPECT_EQ(found->own_step, 0u);
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
      const absl::Status refused = OpenJobCheckpoints(options).status();
      EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_EQ(refused.message(), "checkpoint directory " + Path("shared") +
                                       " holds step 60 of job other, and this is job job; set "
                                       "checkpoint.resume_from: " +
                                       Path("shared") +
                                       " to continue from it, or choose another dir");
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
    EXPECT_EQ(found->newest->job_id, "other");
    EXPECT_EQ(found->own_step, 0u);
  }
  // In its next generation, the job finds its own checkpoint there.
  const JobCheckpointOptions adopting = Options("job", Path("shared"), Path("shared"));
  ASSERT_TRUE(Write(*OpenJobCheckpoints(adopting)->own, "job", 80).ok());
  EXPECT_EQ(OpenJobCheckpoints(adopting)->own_step, 80u);
}

TEST_F(JobCheckpointsTest, TreatsCheckpointsWithoutJobAsAnothersUntilNamed) {
  WriteAs("", Path("old"), 10);
  EXPECT_THAT(std::string(OpenJobCheckpoints(Options("job", Path("old"))).status().message()),
              HasSubstr("holds step 10 of an unknown job, and this is job job"));
  EXPECT_EQ(OpenJobCheckpoints(Options("job", Path("old"), Path("old")))->newest->step, 10u);
}

TEST_F(JobCheckpointsTest, RejectsCheckpointsOfAnotherTraining) {
  WriteAs("other", Path("other"), 60);
  JobCheckpointOptions options = Options("job", Path("own"), Path("other"));
  options.training_digest = "different";
  const absl::Status rejected = OpenJobCheckpoints(options).status();
  EXPECT_EQ(rejected.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(rejected.message()),
              HasSubstr(Path("other") + " holds step 60 of another training (job other)"));
}

TEST_F(JobCheckpointsTest, ReadsOnlyResumeFromIfNoneAreWritten) {
  WriteAs("other", Path("other"), 60);
  EXPECT_FALSE(OpenJobCheckpoints(Options("job", ""))->newest.has_value());
  const auto found = OpenJobCheckpoints(Options("job", "", Path("other")));
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_FALSE(found->own.has_value());
  EXPECT_EQ(found->newest->step, 60u);
}

TEST_F(JobCheckpointsTest, FindsNothingInMissingDirectories) {
  const auto found = OpenJobCheckpoints(Options("job", Path("own"), Path("missing")));
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_FALSE(found->newest.has_value());
  EXPECT_FALSE(std::filesystem::exists(Path("missing")));
}

}  // namespace
}  // namespace muster::train
