#include <string>
#include <vector>

#include "coordinator/core/jobs/job_submission.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

const Actor kBob{"bob", false};

Job JobOf(const std::string& owner, const std::string& dir, bool shared = false) {
  Job job;
  job.status.set_job_id("run");
  job.status.set_owner(owner);
  job.status.set_shared(shared);
  job.status.mutable_checkpoint()->set_dir(dir);
  return job;
}

absl::Status CheckAgainst(const v1::JobSpec& spec, const std::vector<Job>& jobs) {
  CheckpointPaths paths;
  paths.Add(spec);
  for (const Job& job : jobs) paths.Meet(job, kBob);
  return paths.Check();
}

v1::JobSpec Resume(const std::string& path) {
  v1::JobSpec spec;
  spec.mutable_train()->mutable_checkpoint()->set_resume_from(path);
  return spec;
}

TEST(CheckpointPaths, RefusesEveryFieldThatNamesAnothersCheckpoints) {
  std::vector<v1::JobSpec> specs = {Resume("/c/run")};
  specs.emplace_back().mutable_train()->mutable_checkpoint()->set_dir("/c/run");
  specs.emplace_back().mutable_train()->set_init_from("/c/run/step-00000010.g1");
  specs.emplace_back().mutable_train()->set_init_from("/c/run/step-00000010.g1/model.safetensors");
  specs.emplace_back().set_checkpoint_dir("/c/run");
  std::vector<Job> jobs = {JobOf("alice", "/c/run"), JobOf("alice", "")};
  for (const v1::JobSpec& spec : specs) {
    EXPECT_TRUE(CheckAgainst(spec, {JobOf("bob", "/c/run")}).ok()) << spec.DebugString();
    EXPECT_TRUE(CheckAgainst(spec, {JobOf("alice", "/c/other")}).ok()) << spec.DebugString();
    EXPECT_TRUE(absl::IsPermissionDenied(CheckAgainst(spec, {JobOf("alice", "/c/run")})))
        << spec.DebugString();
  }
  EXPECT_EQ(CheckAgainst(specs[0], jobs).message(),
            "train.checkpoint.resume_from: /c/run has the checkpoints of job run of alice; ask an "
            "administrator to share them: muster admin share run");
}

TEST(CheckpointPaths, KnowsOtherSpellings) {
  for (const char* path : {"/c/run/", "//c//run", "/c/./run", "/c/x/../run", "/c/{node}",
                           "/c/r{node}n", "/c/run/step-00000010.g1"}) {
    EXPECT_FALSE(CheckAgainst(Resume(path), {JobOf("alice", "/c/run")}).ok()) << path;
  }
  EXPECT_FALSE(CheckAgainst(Resume("/c/n1/run"), {JobOf("alice", "/c/{node}/run/")}).ok());
  // A directory above, which anybody may name, and one with a similar name are others.
  for (const char* path : {"/c", "/c/run2", "/c/ru", "/c/run/x", "/{node}"}) {
    EXPECT_TRUE(CheckAgainst(Resume(path), {JobOf("alice", "/c/run")}).ok()) << path;
  }
}

TEST(CheckpointPaths, SharedJobsAreRead) {
  const std::vector<Job> shared = {JobOf("alice", "/c/run", /*shared=*/true)};
  EXPECT_TRUE(CheckAgainst(Resume("/c/run"), shared).ok());
  v1::JobSpec writes = Resume("/c/run");
  writes.mutable_train()->mutable_checkpoint()->set_dir("/c/run");
  EXPECT_EQ(CheckAgainst(writes, shared).message(),
            "train.checkpoint.dir: /c/run has the checkpoints of job run of alice; use another "
            "directory");
}

TEST(CheckpointPaths, OwnJobOpensDirectoryOfSeveralJobs) {
  const Job of_alice = JobOf("alice", "/c/run");
  const Job of_bob = JobOf("bob", "/c/run");
  EXPECT_TRUE(CheckAgainst(Resume("/c/run"), {of_alice, of_bob}).ok());
  EXPECT_TRUE(CheckAgainst(Resume("/c/run"), {of_bob, of_alice}).ok());
}

}  // namespace
}  // namespace muster::core
