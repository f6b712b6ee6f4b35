#include "worker/agent/environment.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::agent {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::Not;
using ::testing::StartsWith;

class EnvironmentTest : public ::testing::Test {
 protected:
  EnvironmentTest() {
    node_.node_name = "node-a";
    node_.worker_socket = "unix:/run/rank.sock";
    node_.cache_dir = "/cache";
    launch_.set_job_id("job-1");
    launch_.set_generation(2);
    launch_.set_world_size(6);
    launch_.set_node_rank(1);
    launch_.set_node_count(3);
    launch_.add_ranks()->set_rank(2);
    v1::RankPlacement& placement = *launch_.add_ranks();
    placement.set_rank(3);
    placement.set_local_rank(1);
    launch_.mutable_spec()->mutable_resources()->set_threads_per_rank(5);
  }

  std::vector<std::string> Variables() const {
    return RankVariables(node_, launch_, launch_.ranks(1), "secret", "/launch.pb");
  }

  NodeEnvironment node_;
  v1::Launch launch_;
};

TEST_F(EnvironmentTest, InheritsAllButTheWorkersOwnSettings) {
  const char* const worker[] = {"PATH=/bin", "MUSTER_COORDINATOR=c:1", "A=b=c", "EMPTY=", nullptr};
  const muster::agent::Variables expected = {{"PATH", "/bin"}, {"A", "b=c"}, {"EMPTY", ""}};
  EXPECT_EQ(InheritedVariables(worker), expected);
}

TEST_F(EnvironmentTest, PlacesTheRank) {
  launch_.mutable_spec()->add_command("true");
  EXPECT_THAT(Variables(),
              AllOf(Contains("RANK=3"), Contains("LOCAL_RANK=1"), Contains("WORLD_SIZE=6"),
                    Contains("LOCAL_WORLD_SIZE=2"), Contains("NODE_RANK=1"),
                    Contains("GROUP_RANK=1"), Contains("GROUP_WORLD_SIZE=3")));
  EXPECT_THAT(
      Variables(),
      AllOf(Contains("MUSTER_JOB_ID=job-1"), Contains("MUSTER_GENERATION=2"),
            Contains("MUSTER_RANK_TOKEN=secret"), Contains("MUSTER_NODE_NAME=node-a"),
            Contains("MUSTER_WORKER_SOCKET=unix:/run/rank.sock"),
            Contains("MUSTER_CACHE_DIR=/cache"), Each(Not(StartsWith("MUSTER_LAUNCH_FILE=")))));
}

TEST_F(EnvironmentTest, JobSetsItsVariablesButNotItsPlace) {
  launch_.mutable_spec()->add_command("true");
  auto& env = *launch_.mutable_spec()->mutable_env();
  env["MY"] = "value";
  env["RANK"] = "0";
  env["MUSTER_RANK_TOKEN"] = "forged";
  env["PYTHONUNBUFFERED"] = "0";
  EXPECT_THAT(Variables(),
              AllOf(Contains("MY=value"), Contains("RANK=3"), Contains("MUSTER_RANK_TOKEN=secret"),
                    Contains("PYTHONUNBUFFERED=0")));
}

TEST_F(EnvironmentTest, ThreadsOfACommandAreSetOnlyIfNobodyDid) {
  launch_.mutable_spec()->add_command("true");
  EXPECT_THAT(Variables(), Contains("OMP_NUM_THREADS=5"));
  node_.inherited["OMP_NUM_THREADS"] = "7";
  EXPECT_THAT(Variables(), Contains("OMP_NUM_THREADS=7"));
  (*launch_.mutable_spec()->mutable_env())["OMP_NUM_THREADS"] = "9";
  EXPECT_THAT(Variables(), Contains("OMP_NUM_THREADS=9"));
}

TEST_F(EnvironmentTest, TrainerGetsItsThreadsAndItsLaunch) {
  launch_.mutable_spec()->mutable_train();
  node_.inherited["OMP_NUM_THREADS"] = "7";
  EXPECT_THAT(Variables(),
              AllOf(Contains("OMP_NUM_THREADS=5"), Contains("MUSTER_LAUNCH_FILE=/launch.pb")));
}

}  // namespace
}  // namespace muster::agent
