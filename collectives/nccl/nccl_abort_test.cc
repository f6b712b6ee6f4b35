// Wherever NCCL hangs, an aborted rank returns within two seconds; each case runs twenty times. The
// fake library ends the process if a thread calls it during or after an abort.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "collectives/communicator.h"
#include "collectives/nccl/nccl.h"
#include "collectives/nccl/testing/fake_nccl_parts.h"
#include "collectives/testing.h"
#include "common/status.h"
#include "glog/logging.h"

namespace muster::collectives {
namespace {

constexpr int kRounds = 20;
constexpr absl::Duration kOutWithin = absl::Seconds(2);
const absl::Status kAbortReason = absl::AbortedError("the generation has ended");

class NcclAbortTest : public ::testing::Test {
 protected:
  GroupOptions Options(int round, uint32_t rank, uint32_t size) {
    GroupOptions options;
    options.name = "WORLD";
    options.id =
        absl::StrCat(::testing::UnitTest::GetInstance()->current_test_info()->name(), "-", round);
    options.rank = rank;
    options.size = size;
    for (uint32_t i = 0; i < size; ++i) options.members.push_back(i);
    options.store = &store_;
    options.nccl = &parts_;
    return options;
  }

  // Runs a group of two whose rank 0 runs `body` while rank 1 waits for it.
  void RunTwo(int round, const std::function<absl::Status(Communicator&)>& body) {
    RunRanks(round, 2, /*levels_of=*/0, body);
  }

  // Like RunTwo with `size` ranks, `levels_of` per node of a hierarchy.
  void RunRanks(int round, uint32_t size, uint32_t levels_of,
                const std::function<absl::Status(Communicator&)>& body) {
    std::atomic<bool> out{false};
    const auto results = RunRankThreads(size, [&](uint32_t rank) -> absl::Status {
      GroupOptions options = Options(round, rank, size);
      options.levels_of = levels_of;
      auto communicator = CreateNccl(options);
      RETURN_IF_ERROR(communicator.status());
      if (rank == 0) {
        absl::Status status = body(**communicator);
        communicator->reset();
        out = true;
        out.notify_all();
        return status;
      }
      out.wait(false);
      return absl::OkStatus();
    });
    for (const std::string& result : results) EXPECT_EQ(result, "") << "round " << round;
  }

  // Measures the time from the abort until all operations have ended and the communicator is
  // destroyed.
  static absl::Status ExpectOutSoon(Communicator& communicator,
                                    const std::vector<std::shared_ptr<Work>>& works) {
    const absl::Time start = absl::Now();
    communicator.Abort(kAbortReason);
    const absl::Duration aborting = absl::Now() - start;
    for (const auto& work : works) {
      const absl::Status status = work->Wait();
      if (status != kAbortReason) return absl::InternalError(status.ToString());
    }
    const absl::Duration took = absl::Now() - start;
    if (aborting > absl::Milliseconds(500)) return absl::InternalError("Abort blocked");
    return took < kOutWithin ? absl::OkStatus() : absl::InternalError(absl::FormatDuration(took));
  }

  FakeNcclRules rules_;
  FileKeyStore store_;
  NcclParts parts_ = FakeNcclParts();
  float data_[4] = {};
};

TEST_F(NcclAbortTest, EndsCollectiveWhosePeerNeverArrives) {
  for (int round = 0; round < kRounds; ++round) {
    RunTwo(round, [&](Communicator& c) {
      const std::vector<std::shared_ptr<Work>> works = {
          c.AllReduce(data_, data_, 4, DataType::kFloat32, ReduceOp::kSum),
          c.Recv(data_, 1, DataType::kFloat32, 1), c.Barrier()};
      EXPECT_FALSE(works[0]->Done() || works[1]->Done() || works[2]->Done());
      return ExpectOutSoon(c, works);
    });
  }
}

TEST_F(NcclAbortTest, EndsCallThatDoesNotSettle) {
  for (int round = 0; round < kRounds; ++round) {
    rules_.Become({});
    RunTwo(round, [&](Communicator& c) {
      rules_.Become({"slow ncclBroadcast 0"});
      const std::vector<std::shared_ptr<Work>> works = {
          c.Broadcast(data_, 4, DataType::kFloat32, 0), c.Barrier()};
      EXPECT_FALSE(works[0]->Done());
      return ExpectOutSoon(c, works);
    });
  }
}

// All split communicators are aborted, before their parent, whichever of them hangs.
TEST_F(NcclAbortTest, EndsHierarchyWhosePeersNeverArrive) {
  std::vector<float> data(64);
  const auto out_soon = [&data](Communicator& c) {
    const std::vector<std::shared_ptr<Work>> works = {
        c.AllReduce(data.data(), data.data(), data.size(), DataType::kFloat32, ReduceOp::kSum),
        c.Barrier()};
    EXPECT_FALSE(works[0]->Done() || works[1]->Done());
    return ExpectOutSoon(c, works);
  };
  for (int round = 0; round < kRounds; ++round) {
    rules_.Become({});
    RunRanks(round, 4, /*levels_of=*/2, out_soon);
  }
  int round = kRounds;
  for (const char* rule : {"slow ncclReduceScatter 0", "slow ncclAllReduce 0",
                           "slow ncclAllGather 0", "hang ncclReduceScatter 0"}) {
    rules_.Become({});
    RunRanks(round++, 4, /*levels_of=*/2, [&](Communicator& c) {
      rules_.Become({rule});
      return out_soon(c);
    });
  }
}

TEST_F(NcclAbortTest, EndsSplitWhosePeersNeverArrive) {
  for (int round = 0; round < kRounds; ++round) {
    rules_.Become({"slow ncclCommSplit 1"});
    const auto results = RunRankThreads(2, [&](uint32_t rank) -> absl::Status {
      std::atomic<int> asked{0};
      absl::Time start;
      GroupOptions options = Options(round, rank, 2);
      options.levels_of = 1;
      options.cancelled = [&]() -> absl::Status {
        if (++asked < 40) return absl::OkStatus();
        if (asked == 40) start = absl::Now();
        return kAbortReason;
      };
      const absl::Status status = CreateNccl(options).status();
      if (status != kAbortReason) return status;
      return absl::Now() - start < kOutWithin ? absl::OkStatus() : absl::InternalError("late");
    });
    for (const std::string& result : results) EXPECT_EQ(result, "") << "round " << round;
  }
}

// The collective waits in the stream for a computation that never completes.
TEST_F(NcclAbortTest, EndsWaitForHangingComputation) {
  HostCompute compute;
  parts_ = FakeNcclParts(&compute);
  for (int round = 0; round < kRounds; ++round) {
    auto communicator = CreateNccl(Options(round, 0, 1));
    ASSERT_TRUE(communicator.ok()) << communicator.status();
    ++compute.given;
    const auto work =
        (*communicator)->AllReduce(data_, data_, 4, DataType::kFloat32, ReduceOp::kSum);
    EXPECT_EQ(ExpectOutSoon(**communicator, {work}), absl::OkStatus());
    communicator->reset();
    ++compute.done;
  }
}

// Leaving NCCL is judged by its own log lines, because the process may end later.
TEST_F(NcclAbortTest, LogsEachPhaseOfLeaving) {
  class Lines final : public google::LogSink {
   public:
    Lines() { google::AddLogSink(this); }
    ~Lines() override { google::RemoveLogSink(this); }
    void send(google::LogSeverity, const char*, const char*, int, const struct tm*,
              const char* message, size_t length) override {
      lines.emplace_back(message, length);
    }
    std::vector<std::string> lines;
  } log;
  {
    auto communicator = CreateNccl(Options(0, 0, 1));
    ASSERT_TRUE(communicator.ok()) << communicator.status();
    rules_.Become({"hang ncclAllReduce"});
    const auto work =
        (*communicator)->AllReduce(data_, data_, 4, DataType::kFloat32, ReduceOp::kSum);
    EXPECT_EQ(ExpectOutSoon(**communicator, {work}), absl::OkStatus());
  }
  EXPECT_THAT(log.lines, ::testing::IsSupersetOf(
                             {::testing::StartsWith("WORLD: leaving NCCL: the generation"),
                              ::testing::StartsWith("WORLD: leaving NCCL: abort begun after "),
                              ::testing::StartsWith("WORLD: leaving NCCL: abort done after "),
                              ::testing::StartsWith("WORLD: leaving NCCL: kernels ended after ")}));
  // An orderly end logs nothing.
  log.lines.clear();
  rules_.Become({});
  ASSERT_TRUE(CreateNccl(Options(1, 0, 1)).ok());
  EXPECT_THAT(log.lines, ::testing::Not(::testing::Contains(::testing::HasSubstr("leaving"))));
}

// The abort arrives before there is a communicator to abort.
TEST_F(NcclAbortTest, EndsInitWhosePeerNeverArrives) {
  for (int round = 0; round < kRounds; ++round) {
    std::atomic<int> asked{0};
    absl::Time start;
    GroupOptions options = Options(round, 0, 2);
    options.cancelled = [&]() -> absl::Status {
      if (++asked < 20) return absl::OkStatus();
      if (asked == 20) start = absl::Now();
      return kAbortReason;
    };
    EXPECT_EQ(CreateNccl(options).status(), kAbortReason);
    EXPECT_LT(absl::Now() - start, kOutWithin);
  }
}

TEST_F(NcclAbortTest, EndsWaitForMissingUniqueId) {
  std::atomic<bool> over{false};
  GroupOptions options = Options(0, 1, 2);
  options.cancelled = [&over] { return over.exchange(true) ? kAbortReason : absl::OkStatus(); };
  EXPECT_EQ(CreateNccl(options).status(), kAbortReason);
}

// Many threads issue, wait and abort concurrently; the fake detects concurrent calls.
TEST_F(NcclAbortTest, AbortsDuringConcurrentCalls) {
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<std::string> results = RunRankThreads(2, [&](uint32_t rank) -> absl::Status {
      auto communicator = CreateNccl(Options(round, rank, 2));
      RETURN_IF_ERROR(communicator.status());
      std::atomic<int> reduced{0};
      std::vector<std::thread> threads;
      for (int i = 0; i < 3; ++i) {
        threads.emplace_back([&] {
          float value = 1;
          while ((*communicator)
                     ->AllReduce(&value, &value, 1, DataType::kFloat32, ReduceOp::kMax)
                     ->Wait()
                     .ok()) {
            ++reduced;
            reduced.notify_all();
          }
          reduced = 1000;
          reduced.notify_all();
        });
      }
      for (int seen = 0; (seen = reduced.load()) < 10;) reduced.wait(seen);
      (*communicator)->Abort(kAbortReason);
      for (std::thread& thread : threads) thread.join();
      return absl::OkStatus();
    });
    for (const std::string& result : results) EXPECT_EQ(result, "");
  }
}

// In a separate process, which ends with a thread inside the library.
TEST_F(NcclAbortTest, ReturnsWhenNcclAbortHangs) {
  const std::vector<std::string> results = RunRankProcesses(1, [&](uint32_t) -> absl::Status {
    ASSIGN_OR_RETURN(auto communicator, CreateNccl(Options(0, 0, 1)));
    rules_.Become({"hang ncclAllReduce", "abort_ms 60000"});
    const auto work = communicator->AllReduce(data_, data_, 4, DataType::kFloat32, ReduceOp::kSum);
    const absl::Time start = absl::Now();
    RETURN_IF_ERROR(ExpectOutSoon(*communicator, {work}));
    communicator.reset();
    return absl::Now() - start < kOutWithin ? absl::OkStatus()
                                            : absl::InternalError("the destructor hangs");
  });
  EXPECT_EQ(results[0], "");
}

}  // namespace
}  // namespace muster::collectives
