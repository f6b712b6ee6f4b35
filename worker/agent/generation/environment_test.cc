#include "worker/agent/generation/environment.h"

#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::agent {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAreArray;

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
    rank_.token = "secret";
    rank_.launch_file = "/launch.pb";
    rank_.master = {"10.0.0.1", 4711};
    rank_.error_file = "/rank/error.json";
    rank_.progress_file = "/rank/progress";
    rank_.checkpoint.set_dir("/checkpoint");
  }

  std::vector<std::string> Variables() const {
    return RankVariables(node_, launch_, launch_.ranks(1), rank_);
  }

  NodeEnvironment node_;
  v1::Launch launch_;
  muster::agent::RankEnvironment rank_;
};

TEST_F(EnvironmentTest, InheritsListedVariables) {
  const char* const worker[] = {"PATH=/bin",
                                "PATHS=/bin",
                                "LC_TIME=C",
                                "LC=C",
                                "NCCL_DEBUG=a=b",
                                "AWS_CA_BUNDLE=/ca",
                                "PIP_INDEX_URL=u",
                                "MUSTER_COORDINATOR=c:1",
                                "MUSTER_CUDA_LIBRARY_PATH=/a:/b",
                                nullptr};
  const muster::agent::Variables expected = {{"PATH", "/bin"},
                                             {"LC_TIME", "C"},
                                             {"NCCL_DEBUG", "a=b"},
                                             {"MUSTER_CUDA_LIBRARY_PATH", "/a:/b"}};
  EXPECT_EQ(InheritedVariables(worker, Inherit::kDefault), expected);
}

TEST_F(EnvironmentTest, InheritsAllButTheWorkersSettings) {
  const char* const worker[] = {"PATH=/bin", "MUSTER_COORDINATOR=c:1",         "A=b=c",
                                "EMPTY=",    "MUSTER_CUDA_LIBRARY_PATH=/a:/b", "OLDPWD=/",
                                nullptr};
  const muster::agent::Variables expected = {
      {"PATH", "/bin"}, {"A", "b=c"}, {"EMPTY", ""}, {"MUSTER_CUDA_LIBRARY_PATH", "/a:/b"}};
  EXPECT_EQ(InheritedVariables(worker, Inherit::kAll), expected);
}

TEST_F(EnvironmentTest, SetsPwdToTheWorkingDirectory) {
  launch_.mutable_spec()->add_command("true");
  node_.inherited["PWD"] = "/worker";
  rank_.workdir = "/srv/job";
  EXPECT_THAT(Variables(), AllOf(Contains("PWD=/srv/job"), Not(Contains("PWD=/worker"))));
}

TEST_F(EnvironmentTest, SetsPlacementVariables) {
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

TEST_F(EnvironmentTest, SetsTorchrunVariablesForCommands) {
  v1::JobSpec& spec = *launch_.mutable_spec();
  spec.add_command("true");
  spec.mutable_restart()->set_max(4);
  spec.mutable_grace_period()->set_seconds(2);
  spec.mutable_grace_period()->set_nanos(500'000'000);
  spec.set_stop_signal("SIGUSR1");
  launch_.set_restarts(3);
  EXPECT_THAT(
      Variables(),
      IsSupersetOf({"ROLE_NAME=default", "ROLE_RANK=3", "ROLE_WORLD_SIZE=6", "MASTER_ADDR=10.0.0.1",
                    "MASTER_PORT=4711", "TORCHELASTIC_RUN_ID=job-1", "TORCHELASTIC_RESTART_COUNT=3",
                    "TORCHELASTIC_MAX_RESTARTS=4", "TORCHELASTIC_ERROR_FILE=/rank/error.json",
                    "TORCHELASTIC_USE_AGENT_STORE=False", "MUSTER_CHECKPOINT_DIR=/checkpoint",
                    "MUSTER_CHECKPOINT_SHARED=0", "MUSTER_PROGRESS=/rank/progress",
                    "MUSTER_STOP_SIGNAL=SIGUSR1", "MUSTER_GRACE_SECONDS=2.5"}));
  // A spec of an earlier version has none.
  spec.clear_stop_signal();
  EXPECT_THAT(Variables(), Contains("MUSTER_STOP_SIGNAL=SIGTERM"));
}

TEST_F(EnvironmentTest, SetsSharedCheckpointDirectory) {
  launch_.mutable_spec()->add_command("true");
  rank_.checkpoint.set_shared(true);
  EXPECT_THAT(Variables(),
              IsSupersetOf({"MUSTER_CHECKPOINT_DIR=/checkpoint", "MUSTER_CHECKPOINT_SHARED=1"}));
}

TEST_F(EnvironmentTest, SetsNetworkInterfaceUnlessTheJobDoes) {
  launch_.mutable_spec()->add_command("true");
  EXPECT_THAT(Variables(), Each(Not(StartsWith("GLOO_SOCKET_IFNAME="))));
  node_.interface = "eth1";
  EXPECT_THAT(Variables(), IsSupersetOf({"GLOO_SOCKET_IFNAME=eth1", "NCCL_SOCKET_IFNAME=eth1"}));
  node_.inherited["NCCL_SOCKET_IFNAME"] = "ib0";
  (*launch_.mutable_spec()->mutable_env())["GLOO_SOCKET_IFNAME"] = "ib1";
  EXPECT_THAT(Variables(), IsSupersetOf({"GLOO_SOCKET_IFNAME=ib1", "NCCL_SOCKET_IFNAME=ib0"}));
}

TEST_F(EnvironmentTest, RankSeesOnlyTheDevicesOfItsSlots) {
  launch_.mutable_spec()->add_command("true");
  node_.inherited["CUDA_VISIBLE_DEVICES"] = "0,1";
  EXPECT_THAT(Variables(), Contains("CUDA_VISIBLE_DEVICES="));
  for (const char* uuid : {"", "GPU-a", "GPU-b", "GPU-c"}) {
    node_.slots.emplace_back();
    node_.slots.back().set_uuid(uuid);
  }
  for (const uint32_t slot : {1, 3, 0, 99}) launch_.mutable_ranks(1)->add_slots(slot);
  EXPECT_THAT(Variables(), Contains("CUDA_VISIBLE_DEVICES=GPU-a,GPU-c"));
}

TEST_F(EnvironmentTest, JobCannotOverridePlacement) {
  launch_.mutable_spec()->add_command("true");
  auto& env = *launch_.mutable_spec()->mutable_env();
  env["MY"] = "value";
  env["RANK"] = "0";
  env["MUSTER_RANK_TOKEN"] = "forged";
  env["PYTHONUNBUFFERED"] = "0";
  EXPECT_THAT(Variables(),
              AllOf(Contains("MY=value"), Contains("RANK=3"), Contains("MUSTER_RANK_TOKEN=secret"),
                    Contains("PYTHONUNBUFFERED=0"), Contains("PYTHONFAULTHANDLER=1")));
}

TEST_F(EnvironmentTest, TellsTasksOfArraysApart) {
  launch_.mutable_spec()->add_command("true");
  EXPECT_THAT(Variables(), Each(Not(StartsWith("MUSTER_ARRAY_"))));
  launch_.set_array_id("sweep-x7k2q");
  launch_.set_array_index(0);
  launch_.set_array_count(12);
  EXPECT_THAT(Variables(), IsSupersetOf({"MUSTER_ARRAY_ID=sweep-x7k2q", "MUSTER_ARRAY_INDEX=0",
                                         "MUSTER_ARRAY_COUNT=12"}));
}

TEST_F(EnvironmentTest, SetsTheVariablesOfTheTable) {
  launch_.mutable_spec()->add_command("true");
  launch_.set_array_count(1);
  launch_.mutable_spec()->mutable_resources()->set_share_device(true);
  node_.interface = "eth1";
  std::vector<std::string> names;
  for (const CommandVariable& variable : kCommandVariables) names.push_back(variable.name);
  std::vector<std::string> set;
  for (const std::string& entry : Variables()) set.push_back(entry.substr(0, entry.find('=')));
  EXPECT_THAT(set, UnorderedElementsAreArray(names));

  for (const std::string& name : names) (*launch_.mutable_spec()->mutable_env())[name] = "job's";
  const std::vector<std::string> variables = Variables();
  for (const CommandVariable& variable : kCommandVariables) {
    const std::string overridden = absl::StrCat(variable.name, "=job's");
    EXPECT_EQ(absl::c_linear_search(variables, overridden), variable.is_default) << variable.name;
  }
}

TEST_F(EnvironmentTest, AnnouncesHostedStore) {
  launch_.mutable_spec()->add_command("true");
  EXPECT_THAT(Variables(),
              IsSupersetOf({"MUSTER_HOSTED_STORE=0", "TORCHELASTIC_USE_AGENT_STORE=False"}));
  (*launch_.mutable_spec()->mutable_env())["MUSTER_HOSTED_STORE"] = "1";
  EXPECT_THAT(Variables(),
              IsSupersetOf({"MUSTER_HOSTED_STORE=1", "TORCHELASTIC_USE_AGENT_STORE=True"}));
}

TEST_F(EnvironmentTest, SetsThreadsOfACommandIfUnset) {
  launch_.mutable_spec()->add_command("true");
  EXPECT_THAT(Variables(), Contains("OMP_NUM_THREADS=5"));
  node_.inherited["OMP_NUM_THREADS"] = "7";
  EXPECT_THAT(Variables(), Contains("OMP_NUM_THREADS=7"));
  (*launch_.mutable_spec()->mutable_env())["OMP_NUM_THREADS"] = "9";
  EXPECT_THAT(Variables(), Contains("OMP_NUM_THREADS=9"));
}

TEST_F(EnvironmentTest, SetsThreadsAndFilesForTrainer) {
  launch_.mutable_spec()->mutable_train();
  node_.inherited["OMP_NUM_THREADS"] = "7";
  EXPECT_THAT(Variables(), IsSupersetOf({"OMP_NUM_THREADS=5", "MUSTER_LAUNCH_FILE=/launch.pb",
                                         "MUSTER_CHECKPOINT_DIR=/checkpoint"}));
}

TEST_F(EnvironmentTest, SetsNcclHostIdForRanksThatShareAGpu) {
  launch_.mutable_spec()->add_command("true");
  EXPECT_THAT(Variables(), Each(Not(StartsWith("NCCL_HOSTID="))));
  launch_.mutable_spec()->mutable_resources()->set_share_device(true);
  EXPECT_THAT(Variables(), Contains("NCCL_HOSTID=muster-job-1-2-3"));
  (*launch_.mutable_spec()->mutable_env())["NCCL_HOSTID"] = "mine";
  EXPECT_THAT(Variables(), Contains("NCCL_HOSTID=mine"));
}

TEST_F(EnvironmentTest, SetsDriverVersionForTrainerOnAGpu) {
  launch_.mutable_spec()->mutable_train();
  node_.slots.resize(2);
  node_.slots[1].mutable_device()->set_driver_version("580.65.06");
  launch_.mutable_ranks(1)->add_slots(0);
  EXPECT_THAT(Variables(), Each(Not(StartsWith("MUSTER_DRIVER_VERSION="))));
  launch_.mutable_ranks(1)->set_slots(0, 1);
  EXPECT_THAT(Variables(), Contains("MUSTER_DRIVER_VERSION=580.65.06"));
}

}  // namespace
}  // namespace muster::agent
