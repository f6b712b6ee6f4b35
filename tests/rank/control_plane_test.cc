// Two ranks' control planes over the unix socket of a real agent, with the coordinator simulated by
// the test. The ranks' processes only sleep: the test acts for them, with their tokens.
#include "trainer/rank/control_plane.h"

#include <sched.h>
#include <stdlib.h>

#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "common/limits.h"
#include "common/time/proto_time.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/muster/v1/rank.grpc.pb.h"
#include "worker/agent/agent.h"
#include "worker/agent/testing/scripted_coordinator.h"
#include "worker/shim/fields.h"
#include "worker/shim/process_tree.h"
#include "worker/shim/protocol.h"

namespace muster::rank {
namespace {

using agent::Agent;
using agent::AgentOptions;
using agent::ScriptedCoordinator;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kJob[] = "job-1";
constexpr absl::Duration kPatience = absl::Seconds(20);

class ControlPlaneTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // Short, because unix socket paths are limited.
    std::string pattern = "/tmp/muster-rank-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    cookie_ = absl::StrCat("CONTROL_PLANE_TEST=", directory_);
    coordinator_ = std::make_unique<ScriptedCoordinator>();
    StartAgent();
    ASSERT_TRUE(coordinator_->WaitForSessions(1));
    coordinator_->Send(Launch());
    for (const uint32_t rank : {0, 1}) {
      ASSERT_TRUE(WaitForRank(
          rank, [](const v1::RankReport& report) { return report.phase() == v1::STARTED; }));
      control_.push_back(ConnectControlPlane(EnvironmentOf(rank)));
    }
  }

  void TearDown() override {
    control_.clear();
    agent_.reset();
    coordinator_.reset();
    while (shim::KillByEnvironment(cookie_) > 0) sched_yield();
    // Shims whose ranks were killed may still be writing.
    std::error_code error;
    do {
      std::filesystem::remove_all(directory_, error);
    } while (error);
  }

  void StartAgent() {
    AgentOptions options;
    options.coordinator = coordinator_->address();
    options.name = "node-a";
    options.data_dir = directory_;
    options.devices.slots = 2;
    options.shim_binary =
        std::filesystem::read_symlink("/proc/self/exe").parent_path() / "../../worker/muster-shim";
    options.rank_binary = "/no/such/muster-rank";
    auto agent = Agent::Start(options, [](const absl::Status&) {});
    ASSERT_TRUE(agent.ok()) << agent.status();
    agent_ = *std::move(agent);
  }

  void RestartAgent() {
    const int sessions = coordinator_->sessions();
    agent_.reset();
    StartAgent();
    ASSERT_TRUE(coordinator_->WaitForSessions(sessions + 1));
  }

  v1::CoordinatorMessage Launch() const {
    v1::CoordinatorMessage message;
    v1::Launch& launch = *message.mutable_launch();
    launch.set_job_id(kJob);
    launch.set_generation(1);
    launch.set_world_size(2);
    launch.set_node_count(1);
    launch.mutable_spec()->set_name("spec-name");
    for (const char* word : {"sleep", "600"}) launch.mutable_spec()->add_command(word);
    (*launch.mutable_spec()->mutable_env())["CONTROL_PLANE_TEST"] = directory_;
    *launch.mutable_spec()->mutable_failure_timeout() = ToProto(absl::Seconds(20));
    for (const uint32_t rank : {0, 1}) {
      v1::RankPlacement& placement = *launch.add_ranks();
      placement.set_rank(rank);
      placement.set_local_rank(rank);
      placement.add_slots(rank);
    }
    return message;
  }

  // Environment of the rank's process.
  RankEnvironment EnvironmentOf(uint32_t rank) const {
    RankEnvironment environment;
    environment.worker_socket = absl::StrCat("unix:", directory_, "/run/rank.sock");
    environment.identity.set_job_id(kJob);
    environment.identity.set_generation(1);
    environment.identity.set_rank(rank);
    const auto text = shim::ReadFile(
        absl::StrCat(directory_, "/jobs/job-1/generation-1/rank-000", rank, "/instructions"));
    const auto instructions = shim::DecodeInstructions(text.value_or(""));
    EXPECT_TRUE(instructions.has_value());
    for (const std::string& entry : instructions->environment) {
      absl::string_view value = entry;
      if (absl::ConsumePrefix(&value, "MUSTER_RANK_TOKEN=")) {
        environment.identity.set_token(std::string(value));
      }
    }
    return environment;
  }

  bool WaitForRank(uint32_t rank, const std::function<bool(const v1::RankReport&)>& predicate,
                   v1::RankReport* found = nullptr) const {
    return coordinator_->WaitForRank(kJob, 1, rank, predicate, found);
  }

  void SendWorld() {
    v1::CoordinatorMessage message;
    v1::World& world = *message.mutable_world();
    world.set_job_id(kJob);
    world.set_generation(1);
    world.set_world_size(2);
    world.set_master_address("127.0.0.1");
    *world.mutable_failure_timeout() = ToProto(absl::Seconds(20));
    coordinator_->Send(message);
  }

  void SendKey(const std::string& key, const std::string& value, absl::Status status = {}) {
    v1::CoordinatorMessage message;
    v1::KeyValue& answer = *message.mutable_key_value();
    answer.set_job_id(kJob);
    answer.set_generation(1);
    answer.set_key(key);
    answer.set_value(value);
    answer.set_code(status.raw_code());
    answer.set_message(std::string(status.message()));
    coordinator_->Send(message);
  }

  void SendRelease(const std::string& group, uint64_t sequence, absl::Status status = {}) {
    v1::CoordinatorMessage message;
    v1::ReleaseBarrier& release = *message.mutable_release_barrier();
    release.set_job_id(kJob);
    release.set_generation(1);
    release.mutable_barrier()->set_group(group);
    release.mutable_barrier()->set_sequence(sequence);
    release.set_code(status.raw_code());
    release.set_message(std::string(status.message()));
    coordinator_->Send(message);
  }

  void SendStop(bool abort) {
    v1::CoordinatorMessage message;
    v1::StopGeneration& stop = *message.mutable_stop();
    stop.set_job_id(kJob);
    stop.set_generation(1);
    *stop.mutable_grace_period() = ToProto(absl::Seconds(20));
    stop.set_reason("NodeLost");
    stop.set_message("node-b is gone");
    stop.set_abort(abort);
    coordinator_->Send(message);
  }

  // Number of received messages that satisfy `predicate`.
  int Count(const std::function<bool(const v1::WorkerMessage&)>& predicate) const {
    const std::vector<v1::WorkerMessage> messages = coordinator_->messages();
    return static_cast<int>(std::count_if(messages.begin(), messages.end(), predicate));
  }

  std::string directory_;
  std::string cookie_;
  std::unique_ptr<ScriptedCoordinator> coordinator_;
  std::unique_ptr<Agent> agent_;
  std::vector<std::unique_ptr<ControlPlane>> control_;
};

// Runs blocking calls of a rank on a separate thread.
class Async {
 public:
  explicit Async(std::function<void()> body) : thread_(std::move(body)) {}
  ~Async() { thread_.join(); }

 private:
  std::thread thread_;
};

bool IsArrival(const v1::WorkerMessage& message) { return message.has_arrive_barrier(); }

TEST_F(ControlPlaneTest, RanksJoinAndReceiveWorld) {
  absl::StatusOr<v1::JoinResponse> joined[2];
  {
    Async first([&] {
      v1::JoinInfo info;
      info.set_has_checkpoint(true);
      info.set_checkpoint_step(17);
      joined[0] = control_[0]->Join(info, kPatience);
    });
    Async second([&] { joined[1] = control_[1]->Join({}, kPatience); });
    v1::RankReport report;
    const auto has_joined = [](const v1::RankReport& r) { return r.phase() == v1::JOINED; };
    ASSERT_TRUE(WaitForRank(0, has_joined, &report));
    EXPECT_EQ(report.join().checkpoint_step(), 17u);
    EXPECT_EQ(report.pid(), getpid());
    ASSERT_TRUE(WaitForRank(1, has_joined));
    SendWorld();
  }
  for (const uint32_t rank : {0, 1}) {
    ASSERT_TRUE(joined[rank].ok()) << joined[rank].status();
    EXPECT_EQ(joined[rank]->world().world_size(), 2u);
    EXPECT_EQ(joined[rank]->world().master_address(), "127.0.0.1");
    EXPECT_EQ(joined[rank]->spec().name(), "spec-name");
    EXPECT_EQ(joined[rank]->local_rank(), rank);
  }
}

TEST_F(ControlPlaneTest, JoinTimeoutNamesMissingRanks) {
  const auto joined = control_[0]->Join({}, absl::Seconds(2));
  EXPECT_TRUE(absl::IsDeadlineExceeded(joined.status())) << joined.status();
  EXPECT_THAT(std::string(joined.status().message()), HasSubstr("ranks 1 of this node"));
}

TEST_F(ControlPlaneTest, RejectsWrongToken) {
  RankEnvironment environment = EnvironmentOf(0);
  environment.identity.set_token("wrong");
  EXPECT_TRUE(
      absl::IsUnauthenticated(ConnectControlPlane(environment)->Join({}, kPatience).status()));
  environment = EnvironmentOf(0);
  environment.identity.set_rank(1);
  EXPECT_TRUE(
      absl::IsUnauthenticated(ConnectControlPlane(environment)->Join({}, kPatience).status()));
  environment = EnvironmentOf(0);
  environment.identity.set_generation(2);
  EXPECT_TRUE(absl::IsAborted(ConnectControlPlane(environment)->Join({}, kPatience).status()));
}

TEST_F(ControlPlaneTest, KeyIsConfirmedByCoordinatorAndReadOncePerNode) {
  absl::Status put;
  absl::StatusOr<std::string> got;
  {
    Async writer([&] { put = control_[0]->Put("unique-id/WORLD/0", "abc"); });
    Async reader([&] { got = control_[1]->Get("unique-id/WORLD/0", kPatience); });
    v1::WorkerMessage message;
    ASSERT_TRUE(coordinator_->WaitFor([](const v1::WorkerMessage& m) { return m.has_put_key(); },
                                      &message));
    EXPECT_EQ(message.put_key().key(), "unique-id/WORLD/0");
    EXPECT_EQ(message.put_key().value(), "abc");
    ASSERT_TRUE(coordinator_->WaitFor([](const v1::WorkerMessage& m) { return m.has_get_key(); }));
    SendKey("unique-id/WORLD/0", "abc");
  }
  EXPECT_TRUE(put.ok()) << put;
  EXPECT_THAT(got.value_or(""), "abc");
  // Once the read of another key has arrived, everything sent before it has arrived, too.
  const auto gets_so_far = [this](const std::string& marker) {
    Async reader([&] { control_[1]->Get(marker, kPatience).IgnoreError(); });
    EXPECT_TRUE(coordinator_->WaitFor(
        [&](const v1::WorkerMessage& m) { return m.get_key().key() == marker; }));
    SendKey(marker, "");
    return Count(
        [](const v1::WorkerMessage& m) { return m.get_key().key() == "unique-id/WORLD/0"; });
  };
  const int gets = gets_so_far("marker/1");
  EXPECT_EQ(control_[0]->Get("unique-id/WORLD/0", kPatience).value_or(""), "abc");
  EXPECT_EQ(gets_so_far("marker/2"), gets);
  EXPECT_TRUE(control_[1]->Put("unique-id/WORLD/0", "abc").ok());
  EXPECT_TRUE(absl::IsAlreadyExists(control_[1]->Put("unique-id/WORLD/0", "other")));
  EXPECT_TRUE(absl::IsInvalidArgument(control_[1]->Put(std::string(257, 'k'), "v")));
  EXPECT_TRUE(absl::IsInvalidArgument(control_[1]->Put("k", std::string(65537, 'v'))));
}

TEST_F(ControlPlaneTest, PutFailsIfAnotherNodeWroteFirst) {
  absl::Status put;
  {
    Async writer([&] { put = control_[0]->Put("k", "mine"); });
    ASSERT_TRUE(coordinator_->WaitFor([](const v1::WorkerMessage& m) { return m.has_put_key(); }));
    SendKey("k", "", absl::AlreadyExistsError("key k holds another value"));
  }
  EXPECT_TRUE(absl::IsAlreadyExists(put)) << put;
}

TEST_F(ControlPlaneTest, BatchesArrivalsIntoOneMessage) {
  absl::Status passed[2];
  {
    Async first([&] { passed[0] = control_[0]->Barrier("world", kPatience); });
    Async second([&] { passed[1] = control_[1]->Barrier("world", kPatience); });
    v1::WorkerMessage message;
    ASSERT_TRUE(coordinator_->WaitFor(
        [](const v1::WorkerMessage& m) {
          return m.has_arrive_barrier() && m.arrive_barrier().ranks_size() == 2;
        },
        &message));
    EXPECT_EQ(message.arrive_barrier().barrier().group(), "world");
    EXPECT_EQ(message.arrive_barrier().barrier().sequence(), 1u);
    EXPECT_THAT(message.arrive_barrier().ranks(), ElementsAre(0, 1));
    SendRelease("world", 1);
  }
  EXPECT_TRUE(passed[0].ok()) << passed[0];
  EXPECT_TRUE(passed[1].ok()) << passed[1];
  // A passed barrier stays passed, and each group counts separately.
  absl::Status failed;
  {
    Async other([&] { failed = control_[0]->Barrier("other", kPatience); });
    v1::WorkerMessage message;
    ASSERT_TRUE(coordinator_->WaitFor(
        [](const v1::WorkerMessage& m) {
          return m.has_arrive_barrier() && m.arrive_barrier().barrier().group() == "other";
        },
        &message));
    // The peer is missing, so that the coordinator can report it.
    EXPECT_THAT(message.arrive_barrier().ranks(), ElementsAre(0));
    SendRelease("other", 1, absl::AbortedError("rank 1 is gone"));
  }
  EXPECT_TRUE(absl::IsAborted(failed)) << failed;
}

TEST_F(ControlPlaneTest, WaitsSurviveBrokenSession) {
  absl::Status passed;
  absl::Status put;
  {
    Async barrier([&] { passed = control_[0]->Barrier("world", kPatience); });
    Async writer([&] { put = control_[1]->Put("k", "v"); });
    ASSERT_TRUE(coordinator_->WaitFor(IsArrival));
    ASSERT_TRUE(coordinator_->WaitFor([](const v1::WorkerMessage& m) { return m.has_put_key(); }));
    const int arrivals = Count(IsArrival);
    coordinator_->BreakSession();
    ASSERT_TRUE(coordinator_->WaitForSessions(2));
    int seen_arrivals = 0;
    ASSERT_TRUE(coordinator_->WaitFor(
        [&](const v1::WorkerMessage& m) { return IsArrival(m) && ++seen_arrivals > arrivals; }));
    ASSERT_TRUE(
        coordinator_->WaitForCount([](const v1::WorkerMessage& m) { return m.has_put_key(); }, 2));
    SendRelease("world", 1);
    SendKey("k", "v");
  }
  EXPECT_TRUE(passed.ok()) << passed;
  EXPECT_TRUE(put.ok()) << put;
  coordinator_->BreakSession();
  ASSERT_TRUE(coordinator_->WaitForSessions(3));
  const v1::Hello hello = coordinator_->hello();
  ASSERT_EQ(hello.inventory_size(), 1);
  ASSERT_EQ(hello.inventory(0).passed_barriers_size(), 1);
  EXPECT_EQ(hello.inventory(0).passed_barriers(0).sequence(), 1u);
}

TEST_F(ControlPlaneTest, WaitsSurviveRestartedWorker) {
  absl::StatusOr<v1::JoinResponse> joined;
  {
    Async join([&] { joined = control_[0]->Join({}, kPatience); });
    ASSERT_TRUE(
        WaitForRank(0, [](const v1::RankReport& report) { return report.phase() == v1::JOINED; }));
    RestartAgent();
    EXPECT_EQ(coordinator_->hello().inventory(0).ranks(0).phase(), v1::JOINED);
    SendWorld();
  }
  ASSERT_TRUE(joined.ok()) << joined.status();
  // The world is stored on the node's disk, so a restarted worker responds by itself.
  RestartAgent();
  EXPECT_TRUE(control_[1]->Join({}, kPatience).ok());
}

// The coordinator keeps both in memory only, so a restarted one must receive them from a restarted
// worker as well.
TEST_F(ControlPlaneTest, RestartedWorkerReportsPassedBarriersAndRepeatsPuts) {
  absl::Status passed;
  absl::Status put;
  {
    Async barrier([&] { passed = control_[0]->Barrier("world", kPatience); });
    Async writer([&] { put = control_[1]->Put("k", "v"); });
    ASSERT_TRUE(coordinator_->WaitFor(IsArrival));
    ASSERT_TRUE(coordinator_->WaitFor([](const v1::WorkerMessage& m) { return m.has_put_key(); }));
    SendRelease("world", 1);
    SendKey("k", "v");
  }
  ASSERT_TRUE(passed.ok()) << passed;
  ASSERT_TRUE(put.ok()) << put;
  RestartAgent();
  const v1::Hello hello = coordinator_->hello();
  ASSERT_EQ(hello.inventory_size(), 1);
  ASSERT_EQ(hello.inventory(0).passed_barriers_size(), 1);
  EXPECT_EQ(hello.inventory(0).passed_barriers(0).group(), "world");
  EXPECT_EQ(hello.inventory(0).passed_barriers(0).sequence(), 1u);
  EXPECT_TRUE(coordinator_->WaitForCount(
      [](const v1::WorkerMessage& m) { return m.put_key().value() == "v"; }, 2));
}

TEST_F(ControlPlaneTest, AbortReachesRankAndEndsWaits) {
  absl::Mutex mutex;
  std::vector<v1::Directive> directives;
  for (const auto& control : control_) {
    control->SetDirectiveHandler([&](const v1::Directive& directive) {
      absl::MutexLock lock(&mutex);
      directives.push_back(directive);
    });
  }
  absl::Status passed;
  {
    Async barrier([&] { passed = control_[0]->Barrier("world", kPatience); });
    ASSERT_TRUE(coordinator_->WaitFor(IsArrival));
    SendStop(true);
  }
  EXPECT_TRUE(absl::IsAborted(passed)) << passed;
  EXPECT_THAT(std::string(passed.message()), HasSubstr("node-b is gone"));
  const auto both = [&] { return directives.size() == 2; };
  absl::MutexLock lock(&mutex);
  ASSERT_TRUE(mutex.AwaitWithTimeout(absl::Condition(&both), kPatience));
  EXPECT_EQ(directives[0].kind(), v1::Directive::ABORT);
  EXPECT_EQ(directives[0].reason(), "NodeLost");
}

// A rank that waits for others repeats its progress; a stopped rank cannot.
TEST_F(ControlPlaneTest, RepeatsUnchangedProgress) {
  v1::Progress progress;
  progress.set_phase("training");
  progress.set_step(5);
  control_[0]->ReportProgress(progress);
  int said = 0;
  EXPECT_TRUE(coordinator_->WaitFor([&said](const v1::WorkerMessage& message) {
    for (const v1::GenerationReport& report : message.heartbeat().progress()) {
      for (const v1::RankReport& rank : report.ranks()) {
        said += rank.rank() == 0 && rank.progress().step() == 5;
      }
    }
    return said >= 3;
  }));
}

TEST_F(ControlPlaneTest, ReportsReachCoordinator) {
  EXPECT_TRUE(control_[0]->ReportConnected().ok());
  ASSERT_TRUE(
      WaitForRank(0, [](const v1::RankReport& report) { return report.phase() == v1::CONNECTED; }));

  for (uint64_t step = 1; step <= 1000; ++step) {
    v1::Progress progress;
    progress.set_phase("training");
    progress.set_step(step);
    control_[0]->ReportProgress(progress);
  }
  EXPECT_TRUE(WaitForRank(0, [](const v1::RankReport& r) { return r.progress().step() == 1000; }));

  v1::CheckpointStatus checkpoint;
  checkpoint.set_dir("/c");
  for (const uint64_t step : {500, 1000}) {
    checkpoint.set_step(step);
    control_[0]->ReportCheckpoint(checkpoint);
    EXPECT_TRUE(WaitForRank(0, [step](const v1::RankReport& r) {
      return r.checkpoint().dir() == "/c" && r.checkpoint().step() == step;
    }));
  }

  v1::FailureReport failure;
  failure.set_message("no such file");
  failure.set_not_retryable(true);
  EXPECT_TRUE(control_[1]->ReportFailure(failure).ok());
  EXPECT_TRUE(WaitForRank(
      1, [](const v1::RankReport& r) { return r.failure().message() == "no such file"; }));
}

// The coordinator ends the session of a node that sends oversized reports, so the worker must
// reject them.
TEST_F(ControlPlaneTest, WorkerTruncatesOversizedReports) {
  const int sessions = coordinator_->sessions();
  v1::TrainSummary summary;
  summary.set_weights_digest(std::string(limits::kLabelBytes + 1, 'x'));
  EXPECT_TRUE(control_[0]->ReportSummary(summary).ok());
  ASSERT_TRUE(WaitForRank(0, [](const v1::RankReport& report) {
    return report.summary().weights_digest().size() == limits::kLabelBytes &&
           report.warnings_size() == 1;
  }));
  EXPECT_TRUE(control_[0]->ReportConnected().ok());
  ASSERT_TRUE(
      WaitForRank(0, [](const v1::RankReport& report) { return report.phase() == v1::CONNECTED; }));
  EXPECT_EQ(coordinator_->sessions(), sessions);
}

TEST_F(ControlPlaneTest, SummaryIsPersistedBeforeAcknowledgement) {
  v1::TrainSummary summary;
  summary.set_steps(123);
  summary.set_test_accuracy(0.91);
  ASSERT_TRUE(control_[0]->ReportSummary(summary).ok());
  RestartAgent();
  EXPECT_EQ(coordinator_->hello().inventory(0).ranks(0).summary().steps(), 123u);
}

TEST_F(ControlPlaneTest, EndedGenerationReturnsAborted) {
  SendStop(false);
  for (const uint32_t rank : {0, 1}) {
    ASSERT_TRUE(WaitForRank(rank, [](const v1::RankReport& r) { return r.phase() == v1::EXITED; }));
  }
  EXPECT_TRUE(absl::IsAborted(control_[0]->Barrier("world", kPatience)));
  EXPECT_TRUE(absl::IsAborted(control_[0]->ReportConnected()));
  EXPECT_TRUE(absl::IsAborted(control_[0]->Get("k", kPatience).status()));
}

// A watch that has ended is deleted on a gRPC thread, which must not access the worker any more.
TEST_F(ControlPlaneTest, ThousandsOfWatchesEndImmediately) {
  constexpr int kThreads = 4;
  constexpr int kWatches = 2000;
  v1::WatchRequest request;
  *request.mutable_identity() = EnvironmentOf(0).identity;
  request.mutable_identity()->set_token("wrong");
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([this, &request] {
      const auto stub = v1::RankService::NewStub(
          grpc::CreateChannel(EnvironmentOf(0).worker_socket, grpc::InsecureChannelCredentials()));
      for (int watch = 0; watch < kWatches; ++watch) {
        grpc::ClientContext context;
        context.set_wait_for_ready(true);
        v1::Directive directive;
        const auto reader = stub->Watch(&context, request);
        while (reader->Read(&directive)) {
        }
        ASSERT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAUTHENTICATED);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(RankEnvironmentTest, NamesMissingOrMalformedVariable) {
  for (const char* name : {"MUSTER_WORKER_SOCKET", "MUSTER_NODE_NAME", "MUSTER_CACHE_DIR",
                           "MUSTER_CHECKPOINT_DIR", "MUSTER_JOB_ID", "MUSTER_RANK_TOKEN"}) {
    setenv(name, "text", 1);
  }
  setenv("MUSTER_GENERATION", "3", 1);
  unsetenv("RANK");
  EXPECT_THAT(std::string(ReadRankEnvironment().status().message()), HasSubstr("RANK"));
  setenv("RANK", "x", 1);
  EXPECT_THAT(std::string(ReadRankEnvironment().status().message()), HasSubstr("RANK=x"));
  setenv("RANK", "5", 1);
  const auto environment = ReadRankEnvironment();
  ASSERT_TRUE(environment.ok()) << environment.status();
  EXPECT_EQ(environment->identity.rank(), 5u);
  EXPECT_EQ(environment->identity.generation(), 3u);
  EXPECT_EQ(environment->worker_socket, "text");
}

}  // namespace
}  // namespace muster::rank
