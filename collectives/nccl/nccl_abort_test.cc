// However NCCL hangs, a rank that is told to stop is out within two seconds: twenty times each. The
// fake library ends the process if anybody calls it while it aborts, or afterwards.
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

namespace muster::collectives {
namespace {

constexpr int kRounds = 20;
constexpr absl::Duration kOutWithin = absl::Seconds(2);
const absl::Status kVerdict = absl::AbortedError("the generation is over");

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

  // A group of two whose rank 0 does `body`, while rank 1 stays until that is over.
  void RunTwo(int round, const std::function<absl::Status(Communicator&)>& body) {
    RunRanks(round, 2, /*levels_of=*/0, body);
  }

  // The same of `size` ranks, so many on each node of a hierarchy.
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

  // From the verdict until nothing is under way and the communicator is gone.
  static absl::Status ExpectOutSoon(Communicator& communicator,
                                    const std::vector<std::shared_ptr<Work>>& works) {
    const absl::Time start = absl::Now();
    communicator.Abort(kVerdict);
    const absl::Duration aborting = absl::Now() - start;
    for (const auto& work : works) {
      const absl::Status status = work->Wait();
      if (status != kVerdict) return absl::InternalError(status.ToString());
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

TEST_F(NcclAbortTest, ACollectiveWhosePeerNeverComes) {
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

TEST_F(NcclAbortTest, ACallThatDoesNotSettle) {
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

// All parts of the communicator are aborted, before the whole, whichever of them it hangs in.
TEST_F(NcclAbortTest, AHierarchyWhosePeersNeverCome) {
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

TEST_F(NcclAbortTest, ASplitWhosePeersNeverCome) {
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
        return kVerdict;
      };
      const absl::Status status = CreateNccl(options).status();
      if (status != kVerdict) return status;
      return absl::Now() - start < kOutWithin ? absl::OkStatus() : absl::InternalError("late");
    });
    for (const std::string& result : results) EXPECT_EQ(result, "") << "round " << round;
  }
}

// The collective waits in the stream for what will never be computed.
TEST_F(NcclAbortTest, AComputationThatHangs) {
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

// The verdict comes before there is a communicator to abort.
TEST_F(NcclAbortTest, AnInitWhosePeerNeverComes) {
  for (int round = 0; round < kRounds; ++round) {
    std::atomic<int> asked{0};
    absl::Time start;
    GroupOptions options = Options(round, 0, 2);
    options.cancelled = [&]() -> absl::Status {
      if (++asked < 20) return absl::OkStatus();
      if (asked == 20) start = absl::Now();
      return kVerdict;
    };
    EXPECT_EQ(CreateNccl(options).status(), kVerdict);
    EXPECT_LT(absl::Now() - start, kOutWithin);
  }
}

TEST_F(NcclAbortTest, AUniqueIdThatNeverComes) {
  std::atomic<bool> over{false};
  GroupOptions options = Options(0, 1, 2);
  options.cancelled = [&over] { return over.exchange(true) ? kVerdict : absl::OkStatus(); };
  EXPECT_EQ(CreateNccl(options).status(), kVerdict);
}

// Issuing, waiting and aborting from many threads at once: the fake knows who calls it.
TEST_F(NcclAbortTest, ThreadsAtWork) {
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
      (*communicator)->Abort(kVerdict);
      for (std::thread& thread : threads) thread.join();
      return absl::OkStatus();
    });
    for (const std::string& result : results) EXPECT_EQ(result, "");
  }
}

// In a process of its own, which ends with a thread inside the library.
TEST_F(NcclAbortTest, AnAbortThatHangsHoldsNobody) {
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
