#include "trainer/rank/preflight.h"

#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "common/limits.h"
#include "common/time/proto_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::rank {
namespace {

using ::testing::ContainsRegex;
using ::testing::MatchesRegex;

// The generation's key-value store and a barrier, in memory.
class InMemoryControlPlane final : public ControlPlane {
 public:
  explicit InMemoryControlPlane(int ranks = 0) : ranks_(ranks) {}

  absl::Status Put(absl::string_view key, absl::string_view value) override {
    EXPECT_LE(key.size(), limits::kKeyBytes);
    EXPECT_LE(value.size(), limits::kValueBytes);
    absl::MutexLock lock(&mutex_);
    keys_.emplace(key, value);
    ++calls_;
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> Get(absl::string_view key, absl::Duration timeout) override {
    absl::MutexLock lock(&mutex_);
    ++calls_;
    const auto there = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return keys_.count(std::string(key)) != 0;
    };
    if (mutex_.AwaitWithTimeout(absl::Condition(&there), timeout)) {
      return keys_.at(std::string(key));
    }
    return absl::DeadlineExceededError(absl::StrCat("no key ", key));
  }
  absl::Status Barrier(absl::string_view group, absl::Duration timeout) override {
    EXPECT_EQ(group, "preflight");
    EXPECT_EQ(timeout, absl::Seconds(35));
    absl::MutexLock lock(&mutex_);
    ++arrived_;
    const auto all = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return arrived_ == ranks_; };
    mutex_.Await(absl::Condition(&all));
    return absl::OkStatus();
  }
  absl::StatusOr<v1::JoinResponse> Join(const v1::JoinInfo&, absl::Duration) override {
    return absl::UnimplementedError("");
  }
  absl::Status ReportConnected() override { return absl::UnimplementedError(""); }
  void ReportProgress(const v1::Progress&) override {}
  void ReportCheckpoint(const v1::CheckpointStatus&) override {}
  absl::Status ReportFailure(const v1::FailureReport&) override {
    return absl::UnimplementedError("");
  }
  absl::Status ReportSummary(const v1::TrainSummary&) override {
    return absl::UnimplementedError("");
  }
  void SetDirectiveHandler(std::function<void(const v1::Directive&)>) override {}

  int calls() const {
    absl::MutexLock lock(&mutex_);
    return calls_;
  }

 private:
  const int ranks_;
  mutable absl::Mutex mutex_;
  std::map<std::string, std::string> keys_ ABSL_GUARDED_BY(mutex_);
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;
  int arrived_ ABSL_GUARDED_BY(mutex_) = 0;
};

class PreflightTest : public ::testing::Test {
 protected:
  PreflightOptions Options(uint32_t node_rank, uint32_t node_count) const {
    PreflightOptions options;
    options.node_rank = node_rank;
    options.node_count = node_count;
    options.node_name = absl::StrCat("node-", node_rank);
    options.address = "127.0.0.1";
    options.timeout = absl::Seconds(60);
    return options;
  }
  // Runs CheckNodes of all nodes concurrently.
  std::vector<absl::Status> CheckAll(uint32_t node_count) {
    InMemoryControlPlane control;
    std::vector<absl::Status> statuses(node_count);
    std::vector<std::unique_ptr<ReachListener>> listeners(node_count);
    std::vector<std::thread> threads;
    for (uint32_t node = 0; node < node_count; ++node) {
      threads.emplace_back([&, node] {
        auto listener = CheckNodes(Options(node, node_count), &control);
        statuses[node] = listener.status();
        if (listener.ok()) listeners[node] = *std::move(listener);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return statuses;
  }

  InMemoryControlPlane control_;
};

TEST_F(PreflightTest, SucceedsWhenNodesReachEachOther) {
  // 131 nodes need more than one block.
  for (const uint32_t nodes : {2u, 5u, 131u}) {
    for (const absl::Status& status : CheckAll(nodes)) EXPECT_TRUE(status.ok()) << status;
  }
}

TEST_F(PreflightTest, LogsSuccessOfEachNode) {
  ::testing::internal::CaptureStderr();
  for (const absl::Status& status : CheckAll(2)) EXPECT_TRUE(status.ok()) << status;
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, ContainsRegex("network check passed in [^ ]*: node 1 of 2, to which the others "
                                 "connect\n"));
  EXPECT_THAT(log, ContainsRegex("network check passed in [^ ]*: node 2 of 2, which reached every "
                                 "node before it\n"));
}

TEST_F(PreflightTest, NamesNodesThatCannotReachEachOther) {
  const auto answers = ReachListener::Start("127.0.0.1", "word-0\n");
  ASSERT_TRUE(answers.ok()) << answers.status();
  uint16_t closed_port = 0;
  {
    const auto closed = ReachListener::Start("127.0.0.1", "word-1\n");
    ASSERT_TRUE(closed.ok()) << closed.status();
    closed_port = (*closed)->port();
  }
  ASSERT_TRUE(control_
                  .Put("preflight/block/0",
                       absl::StrCat("node-a 127.0.0.1 ", (*answers)->port(), " word-0\n",
                                    "node-b 127.0.0.1 ", closed_port, " word-1\n"))
                  .ok());
  const absl::Status status = CheckNodes(Options(2, 3), &control_).status();
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_EQ(status.message(), absl::StrCat("node node-2 cannot reach node node-b at 127.0.0.1:",
                                           closed_port, " (interface lo): Connection refused"));
}

TEST_F(PreflightTest, NamesNodeThatDoesNotPublishItsAddress) {
  PreflightOptions options = Options(0, 3);
  options.timeout = absl::Milliseconds(100);
  ASSERT_TRUE(control_.Put("preflight/node/1", "node-1 127.0.0.1 1 word\n").ok());
  const absl::Status status = CheckNodes(options, &control_).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status));
  EXPECT_EQ(status.message(), "node rank 2 did not publish its address within 100ms");
}

TEST_F(PreflightTest, RejectsMalformedAddress) {
  ASSERT_TRUE(control_.Put("preflight/block/0", "node-0 127.0.0.1 99999 word\n").ok());
  EXPECT_TRUE(absl::IsInternal(CheckNodes(Options(1, 2), &control_).status()));
}

TEST_F(PreflightTest, RejectsIncompleteBlock) {
  ASSERT_TRUE(control_.Put("preflight/block/0", "node-0 127.0.0.1 1 word\n").ok());
  EXPECT_EQ(CheckNodes(Options(2, 3), &control_).status().message(),
            "expected the addresses of 2 nodes, got 1");
}

TEST_F(PreflightTest, FirstRankOfEachNodeChecksAndAllRanksWait) {
  v1::World world;
  world.set_node_count(2);
  world.set_node_address("127.0.0.1");
  *world.mutable_failure_timeout() = ToProto(absl::Seconds(20));
  InMemoryControlPlane control(/*ranks=*/4);
  std::vector<std::thread> ranks;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    ranks.emplace_back([&control, world, rank]() mutable {
      world.set_node_rank(rank / 2);
      for (const uint32_t local : {0u, 1u}) world.add_ranks()->set_rank(rank / 2 * 2 + local);
      RankEnvironment environment;
      environment.identity.set_rank(rank);
      environment.node_name = absl::StrCat("node-", rank / 2);
      const absl::Status status = Preflight(world, environment, nullptr, &control);
      EXPECT_TRUE(status.ok()) << status;
    });
  }
  for (std::thread& rank : ranks) rank.join();
  // Each node puts its own key and gets the other's.
  EXPECT_EQ(control.calls(), 4);
}

TEST_F(PreflightTest, SkipsCheckForOneNode) {
  v1::World world;
  world.set_node_count(1);
  EXPECT_TRUE(Preflight(world, {}, nullptr, &control_).ok());
  EXPECT_EQ(control_.calls(), 0);
}

}  // namespace
}  // namespace muster::rank
