// The directory of a job's checkpoints: one that all nodes share, or one on each node.
#include "coordinator/core/testing/harness.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using testing::FindSent;
using testing::Harness;
using testing::MakeCommandSpec;
using testing::MakeSpec;
using Message = v1::CoordinatorMessage;

Options WithSharedDirectory() {
  Options options = Harness::DefaultOptions();
  options.checkpoint_dir = "/shared";
  return options;
}

// The checkpoint directory in the Launch of a job that starts at once on the node.
std::string LaunchedDir(Harness& cluster, const std::string& node, const v1::JobSpec& spec) {
  const Effects effects = cluster.Step(SubmitJob{RequestId(1000), JobId("job"), spec, ""});
  const Message* const launch = FindSent(effects, cluster.session(node), Message::kLaunch);
  EXPECT_NE(launch, nullptr);
  return launch == nullptr ? "" : launch->launch().checkpoint_dir();
}

TEST(Checkpoints, AreLocalByDefault) {
  Harness cluster;
  cluster.Join("a");
  EXPECT_EQ(LaunchedDir(cluster, "a", MakeCommandSpec(1)), "");
  EXPECT_FALSE(cluster.Get("job").has_checkpoint());
}

TEST(Checkpoints, EachJobHasFolderInSharedDirectory) {
  Harness cluster(WithSharedDirectory());
  cluster.Join("a");
  EXPECT_EQ(LaunchedDir(cluster, "a", MakeCommandSpec(1)), "/shared/job");
  EXPECT_EQ(cluster.Get("job").checkpoint().dir(), "/shared/job");
  EXPECT_TRUE(cluster.Get("job").checkpoint().shared());
}

TEST(Checkpoints, SpecOverridesSharedDirectory) {
  Harness cluster(WithSharedDirectory());
  cluster.Join("a");
  v1::JobSpec spec = MakeCommandSpec(1);
  spec.set_checkpoint_dir("/elsewhere/run-1");
  EXPECT_EQ(LaunchedDir(cluster, "a", spec), "/elsewhere/run-1");
  EXPECT_TRUE(cluster.Get("job").checkpoint().shared());
}

TEST(Checkpoints, TrainJobsUseSharedDirectoryUnlessTheyNameOne) {
  Harness cluster(WithSharedDirectory());
  cluster.Join("a");
  EXPECT_EQ(LaunchedDir(cluster, "a", MakeSpec(1)), "/shared/job");
  Harness other(WithSharedDirectory());
  other.Join("a");
  v1::JobSpec spec = MakeSpec(1);
  spec.mutable_train()->mutable_checkpoint()->set_dir("/own");
  EXPECT_EQ(LaunchedDir(other, "a", spec), "");
}

// Otherwise, the next generation would not find the checkpoints of the one before.
TEST(Checkpoints, DirectoryOfJobOutlivesChangeOfOption) {
  Harness cluster;
  cluster.Join("a");
  v1::JobSpec spec = MakeCommandSpec(1);
  spec.set_checkpoint_dir("/elsewhere/run-1");
  const std::string job = cluster.Submit(spec);
  cluster.Restart();
  const Effects effects = cluster.Join("a");
  const Message* const launch = FindSent(effects, cluster.session("a"), Message::kLaunch);
  ASSERT_NE(launch, nullptr);
  EXPECT_EQ(launch->launch().checkpoint_dir(), "/elsewhere/run-1");
}

TEST(Checkpoints, DirectoryReportedByRankZeroIsRecordedOnce) {
  Harness cluster;
  cluster.Join("a", 2);
  const std::string job = cluster.Submit(MakeCommandSpec(1, 2));
  v1::RankReport report = Harness::MakeReport(0, v1::STARTED);
  report.mutable_checkpoint()->set_dir("/data/jobs/job1/checkpoint");
  report.mutable_checkpoint()->set_node("a");
  cluster.Report("a", job, report);
  EXPECT_EQ(cluster.Get(job).checkpoint().dir(), "/data/jobs/job1/checkpoint");
  EXPECT_EQ(cluster.Get(job).checkpoint().node(), "a");
  EXPECT_TRUE(cluster.Report("a", job, report).writes.empty()) << "nothing has changed";
  report.set_rank(1);
  report.mutable_checkpoint()->set_dir("/other");
  cluster.Report("a", job, report);
  EXPECT_EQ(cluster.Get(job).checkpoint().dir(), "/data/jobs/job1/checkpoint");
}

}  // namespace
}  // namespace muster::core
