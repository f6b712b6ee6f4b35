// Test fixture: an agent with real shims and processes, and a scripted coordinator.
#ifndef MUSTER_WORKER_AGENT_TESTING_AGENT_FIXTURE_H_
#define MUSTER_WORKER_AGENT_TESTING_AGENT_FIXTURE_H_

#include <sched.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/http/http_get.h"
#include "common/time/proto_time.h"
#include "gtest/gtest.h"
#include "worker/agent/agent.h"
#include "worker/agent/testing/scripted_coordinator.h"
#include "worker/shim/fields.h"
#include "worker/shim/process_tree.h"

namespace muster::agent {

inline constexpr char kJob[] = "job-1";
inline constexpr absl::Duration kPatience = absl::Seconds(20);

inline bool IsStarted(const v1::RankReport& report) { return report.phase() >= v1::STARTED; }
inline bool IsExited(const v1::RankReport& report) { return report.phase() == v1::EXITED; }

class AgentTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // Short, because it contains a unix socket.
    std::string pattern = "/tmp/muster-agent-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    cookie_ = absl::StrCat("AGENT_TEST=", directory_);
    coordinator_ = std::make_unique<ScriptedCoordinator>();
  }

  void TearDown() override {
    agent_.reset();
    coordinator_.reset();
    while (shim::KillByEnvironment(cookie_) > 0) sched_yield();
    // Shims whose ranks were killed may still be writing.
    std::error_code error;
    do {
      std::filesystem::remove_all(directory_, error);
    } while (error);
  }

  AgentOptions Options() const {
    AgentOptions options;
    options.coordinator = coordinator_->address();
    options.name = "node-a";
    options.data_dir = directory_ + "/data";
    options.devices.slots = 4;
    options.labels = {{"rack", "r1"}};
    options.security.token = token_;
    options.secrets_dir = secrets_dir_;
    options.shim_binary =
        std::filesystem::read_symlink("/proc/self/exe").parent_path() / "../muster-shim";
    options.rank_binary = "/no/such/muster-rank";
    options.store_binary =
        std::filesystem::read_symlink("/proc/self/exe").parent_path() / "../muster-c10d-store";
    return options;
  }

  void StartAgent() {
    auto agent = Agent::Start(Options(), [this](const absl::Status& status) {
      refusal_ = status;
      refused_.Notify();
    });
    ASSERT_TRUE(agent.ok()) << agent.status();
    agent_ = *std::move(agent);
  }

  void StartBoth() {
    StartAgent();
    ASSERT_TRUE(coordinator_->WaitForSessions(1));
  }

  // A launch of ranks 0, 1, … of a job that runs `script` in each.
  v1::CoordinatorMessage Launch(const std::string& script, int ranks = 1, uint64_t generation = 1) {
    v1::CoordinatorMessage message;
    v1::Launch& launch = *message.mutable_launch();
    launch.set_job_id(kJob);
    launch.set_generation(generation);
    launch.set_world_size(ranks);
    launch.set_node_count(1);
    v1::JobSpec& spec = *launch.mutable_spec();
    for (const char* word : {"/bin/sh", "-c"}) spec.add_command(word);
    spec.add_command(script);
    (*spec.mutable_env())["AGENT_TEST"] = directory_;
    *spec.mutable_failure_timeout() = ToProto(absl::Seconds(20));
    *spec.mutable_grace_period() = ToProto(absl::Seconds(20));
    for (int rank = 0; rank < ranks; ++rank) {
      v1::RankPlacement& placement = *launch.add_ranks();
      placement.set_rank(rank);
      placement.set_local_rank(rank);
      placement.add_slots(rank);
    }
    return message;
  }

  void SendStop(absl::Duration grace, uint64_t generation = 1) {
    v1::CoordinatorMessage message;
    v1::StopGeneration& stop = *message.mutable_stop();
    stop.set_job_id(kJob);
    stop.set_generation(generation);
    *stop.mutable_grace_period() = ToProto(grace);
    stop.set_reason("CancelledByUser");
    coordinator_->Send(message);
  }

  void SendOpenLog(uint64_t transfer, uint32_t rank, bool follow, uint64_t offset = 0,
                   uint64_t tail_lines = 0, absl::Time since = absl::InfinitePast()) {
    v1::CoordinatorMessage message;
    v1::OpenLog& open = *message.mutable_open_log();
    open.set_transfer(transfer);
    open.mutable_request()->set_job_id(kJob);
    open.mutable_request()->set_generation(1);
    open.mutable_request()->set_rank(rank);
    open.mutable_request()->set_stream(v1::STDOUT);
    open.mutable_request()->set_offset(offset);
    open.mutable_request()->set_tail_lines(tail_lines);
    open.mutable_request()->set_follow(follow);
    if (since != absl::InfinitePast()) *open.mutable_request()->mutable_since() = ToProto(since);
    coordinator_->Send(message);
  }

  v1::RankReport WaitForRank(uint32_t rank, bool (*predicate)(const v1::RankReport&),
                             uint64_t generation = 1) {
    v1::RankReport report;
    EXPECT_TRUE(coordinator_->WaitForRank(kJob, generation, rank, predicate, &report));
    return report;
  }

  std::string Path(const std::string& name) const { return absl::StrCat(directory_, "/", name); }
  std::string Read(const std::string& path) const {
    return shim::ReadFile(path).value_or("<none>");
  }
  // Opening a named pipe waits for its other end, so scripts and tests can wait for each other.
  void MakeFifo(const std::string& name) { ASSERT_EQ(mkfifo(Path(name).c_str(), 0600), 0); }
  void Unblock(const std::string& name) { std::ofstream(Path(name)) << "go\n"; }

  std::string Get(const std::string& path) {
    const auto response = http::Get(agent_->http_address(), path);
    return response.ok() ? response->body : response.status().ToString();
  }

  std::string directory_;
  std::string cookie_;
  std::string token_;        // token of the worker; empty: none
  std::string secrets_dir_;  // empty: none
  std::unique_ptr<ScriptedCoordinator> coordinator_;
  std::unique_ptr<Agent> agent_;
  absl::Notification refused_;
  absl::Status refusal_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_TESTING_AGENT_FIXTURE_H_
