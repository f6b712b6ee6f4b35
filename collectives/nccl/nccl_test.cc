// The nccl backend beyond the contract of all backends, with the fake library.
#include "collectives/nccl/nccl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "collectives/communicator.h"
#include "collectives/nccl/testing/fake_nccl_parts.h"
#include "collectives/peer_status.h"
#include "collectives/testing.h"
#include "common/status.h"

namespace muster::collectives {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

absl::Status Expect(bool condition, const std::string& what) {
  return condition ? absl::OkStatus() : absl::InternalError(absl::StrCat("expected: ", what));
}

absl::Status Reduce(Communicator& communicator, std::vector<float>* data) {
  return communicator
      .AllReduce(data->data(), data->data(), data->size(), DataType::kFloat32, ReduceOp::kSum)
      ->Wait();
}

class NcclTest : public ::testing::Test {
 protected:
  GroupOptions Options(uint32_t rank, uint32_t size) {
    GroupOptions options;
    options.name = "WORLD";
    options.id = "id-of-the-group";
    options.rank = rank;
    options.size = size;
    for (uint32_t i = 0; i < size; ++i) options.members.push_back(10 + i);
    options.store = &store_;
    options.nccl = &parts_;
    options.timeout = timeout_;
    return options;
  }

  std::vector<std::string> Run(uint32_t size,
                               const std::function<absl::Status(Communicator&)>& body) {
    return RunRankThreads(size, [&](uint32_t rank) -> absl::Status {
      ASSIGN_OR_RETURN(auto communicator, CreateNccl(Options(rank, size)));
      return body(*communicator);
    });
  }

  FakeNcclRules rules_;
  FileKeyStore store_;
  NcclParts parts_ = FakeNcclParts();
  absl::Duration timeout_ = absl::Seconds(20);
};

TEST_F(NcclTest, SumsOverRanks) {
  EXPECT_THAT(Run(3,
                  [](Communicator& c) {
                    std::vector<float> data = {1.0f + c.rank(), 10};
                    RETURN_IF_ERROR(Reduce(c, &data));
                    return Expect(data[0] == 6 && data[1] == 30, "sums");
                  }),
              Each(""));
  EXPECT_TRUE(store_.Get("nccl/id-of-the-group/unique-ids", absl::ZeroDuration()).ok());
  EXPECT_FALSE(store_.Get("nccl/id-of-the-group/unique-id/1", absl::ZeroDuration()).ok());
}

TEST_F(NcclTest, ManyRanksUseSeveralIds) {
  std::vector<std::string> results = Run(300, [](Communicator& c) {
    std::vector<float> data = {1};
    RETURN_IF_ERROR(Reduce(c, &data));
    return Expect(data[0] == 300, "a sum of 300");
  });
  // Keep the failures only, so that a mismatch prints them.
  results.erase(std::remove(results.begin(), results.end(), ""), results.end());
  EXPECT_THAT(results, testing::IsEmpty());
  const auto all = store_.Get("nccl/id-of-the-group/unique-ids", absl::ZeroDuration());
  const auto second = store_.Get("nccl/id-of-the-group/unique-id/1", absl::ZeroDuration());
  ASSERT_TRUE(all.ok() && second.ok());
  ASSERT_EQ(all->size(), 2 * sizeof(NcclUniqueId));
  EXPECT_EQ(all->substr(sizeof(NcclUniqueId)), *second);
  EXPECT_NE(all->substr(0, sizeof(NcclUniqueId)), *second);
}

TEST_F(NcclTest, WorksWithOlderLibrary) {
  parts_ = FakeNcclParts(nullptr, "libfake_nccl_2.18.so");
  EXPECT_THAT(Run(2, [](Communicator& c) { return c.Barrier()->Wait(); }), Each(""));
}

TEST_F(NcclTest, RejectsInvalidUniqueId) {
  ASSERT_TRUE(store_.Put("nccl/id-of-the-group/unique-ids", "beef").ok());
  EXPECT_TRUE(absl::IsDataLoss(CreateNccl(Options(1, 2)).status()));
}

TEST_F(NcclTest, NamesMissingRoot) {
  GroupOptions options = Options(1, 2);
  options.connect_timeout = absl::Milliseconds(100);
  const absl::Status status = CreateNccl(options).status();
  EXPECT_EQ(status.ToString().substr(0, 67),
            "DEADLINE_EXCEEDED: WORLD: timed out after 100ms waiting for rank 10");
  EXPECT_EQ(PeerRankOf(status), 10u);
}

// Root 0 is present and waits for another root like all ranks: every rank names that root.
TEST_F(NcclTest, NamesMissingSecondRoot) {
  for (const uint32_t rank : {0u, 7u}) {
    GroupOptions options = Options(rank, 300);
    options.connect_timeout = absl::Milliseconds(100);
    EXPECT_EQ(PeerRankOf(CreateNccl(options).status()), 160u) << "rank " << rank;
  }
  ASSERT_TRUE(store_.Put("nccl/id-of-the-group/unique-id/1", std::string(128, 'i')).ok());
  GroupOptions options = Options(7, 300);
  options.connect_timeout = absl::Milliseconds(100);
  EXPECT_EQ(PeerRankOf(CreateNccl(options).status()), 10u);
}

TEST_F(NcclTest, ReportsDuplicateGpuWithNcclMessage) {
  rules_.Become({"bus_id 1b000"});
  EXPECT_THAT(Run(2, [](Communicator&) { return absl::OkStatus(); }),
              Each(AllOf(HasSubstr("FAILED_PRECONDITION: WORLD: NCCL: ncclCommInitRank"),
                         HasSubstr("Duplicate GPU detected : rank "))));
}

TEST_F(NcclTest, AllowsSharedGpuOnDifferentHosts) {
  rules_.Become({"bus_id 1b000"});
  EXPECT_THAT(RunRankProcesses(2,
                               [&](uint32_t rank) -> absl::Status {
                                 setenv("NCCL_HOSTID", absl::StrCat("rank-", rank).c_str(), 1);
                                 ASSIGN_OR_RETURN(auto c, CreateNccl(Options(rank, 2)));
                                 return c->Barrier()->Wait();
                               }),
              Each(""));
}

TEST_F(NcclTest, FailedCallFailsCommunicator) {
  rules_.Become({"fail ncclReduceScatter 5 1"});
  const auto results = Run(2, [](Communicator& c) -> absl::Status {
    std::vector<float> data(4);
    absl::Status status = c.ReduceScatter(data.data(), data.data() + 2 * c.rank(), 2,
                                          DataType::kFloat32, ReduceOp::kSum)
                              ->Wait();
    RETURN_IF_ERROR(Expect(c.Barrier()->Wait() == status, "the same status from later operations"));
    return status;
  });
  EXPECT_EQ(results[1],
            "FAILED_PRECONDITION: WORLD: NCCL: ReduceScatter of 2 float32 (sum): invalid usage");
  // Rank 1 has reported its failure, so it is not taken for lost.
  EXPECT_THAT(results[0], AllOf(HasSubstr("UNAVAILABLE"), ::testing::Not(HasSubstr("no report"))));
}

// With levels the sum is hierarchical; arrays too small to be divided among a node's ranks are
// reduced flat.
TEST_F(NcclTest, HierarchyReducesWithinNodeFirst) {
  rules_.Become({"fail ncclReduceScatter 3"});
  const auto results = RunRankThreads(4, [&](uint32_t rank) -> absl::Status {
    GroupOptions options = Options(rank, 4);
    options.levels_of = 2;
    ASSIGN_OR_RETURN(auto c, CreateNccl(options));
    std::vector<float> few = {1, 2, 3};
    RETURN_IF_ERROR(Reduce(*c, &few));
    RETURN_IF_ERROR(Expect(few == std::vector<float>({4, 8, 12}), "sums"));
    RETURN_IF_ERROR(c->Barrier()->Wait());
    std::vector<float> many(64, 1);
    return Reduce(*c, &many);
  });
  EXPECT_THAT(results, Each(HasSubstr("NCCL: AllReduce of 64 float32 (sum): internal error")));
}

TEST_F(NcclTest, RejectsLevelsThatDoNotDivideRanks) {
  GroupOptions options = Options(0, 3);
  options.levels_of = 2;
  EXPECT_TRUE(absl::IsInvalidArgument(CreateNccl(options).status()));
}

TEST_F(NcclTest, AsynchronousErrorEndsPendingOperations) {
  const auto results = Run(1, [&](Communicator& c) -> absl::Status {
    rules_.Become({"hang ncclAllReduce"});
    std::vector<float> data(1);
    const auto work = c.AllReduce(data.data(), data.data(), 1, DataType::kFloat32, ReduceOp::kSum);
    // This key is never set: gives the call time to settle.
    store_.Get("never", absl::Milliseconds(100)).status().IgnoreError();
    rules_.Become({"hang ncclAllReduce", "async 1"});
    return work->Wait();
  });
  EXPECT_EQ(results[0], "INTERNAL: WORLD: NCCL: asynchronous error: unhandled cuda error");
}

// No operation is in flight: the next one finds that the communicator has failed.
TEST_F(NcclTest, IdleCommunicatorDetectsAsynchronousError) {
  const auto results = Run(1, [&](Communicator& c) -> absl::Status {
    rules_.Become({"async 3", "fail ncclBroadcast 1"});
    // This key is never set: gives the thread time to poll.
    store_.Get("never", absl::Milliseconds(400)).status().IgnoreError();
    float value = 0;
    return c.Broadcast(&value, 1, DataType::kFloat32, 0)->Wait();
  });
  EXPECT_EQ(results[0], "INTERNAL: WORLD: NCCL: asynchronous error: internal error");
}

TEST_F(NcclTest, TimeoutNamesOperationAndMissingRank) {
  timeout_ = absl::Milliseconds(200);
  const auto results = Run(3, [&](Communicator& c) -> absl::Status {
    std::vector<float> data(7);
    if (c.rank() != 1) return Reduce(c, &data);
    // This key is never set: waits longer than the other ranks.
    store_.Get("never", absl::Seconds(2)).status().IgnoreError();
    return absl::OkStatus();
  });
  for (const uint32_t rank : {0, 2}) {
    EXPECT_THAT(results[rank],
                AllOf(HasSubstr("no report from rank 11"), HasSubstr(kPeerRankPayload)));
  }
  EXPECT_THAT(results[0] + results[2],
              HasSubstr("DEADLINE_EXCEEDED: WORLD: NCCL: AllReduce of 7 float32 (sum) made no "
                        "progress within 200ms"));
}

TEST_F(NcclTest, StartsAfterPrecedingComputation) {
  HostCompute compute;
  parts_ = FakeNcclParts(&compute);
  const auto results = Run(1, [&](Communicator& c) -> absl::Status {
    std::vector<float> data = {0};
    float result = 0;
    ++compute.given;
    const auto work = c.AllReduce(data.data(), &result, 1, DataType::kFloat32, ReduceOp::kSum);
    // This key is never set: gives the operation time to start too early.
    store_.Get("never", absl::Milliseconds(50)).status().IgnoreError();
    RETURN_IF_ERROR(Expect(!work->Done(), "waiting for the computation"));
    data[0] = 5;
    ++compute.done;
    RETURN_IF_ERROR(work->Wait());
    return Expect(result == 5, "the computed value");
  });
  EXPECT_EQ(results[0], "");
}

// A Send that is never waited for is still performed, and a collective does not wait for it.
TEST_F(NcclTest, SendsStartWhenWorkIsDropped) {
  EXPECT_THAT(Run(2,
                  [](Communicator& c) -> absl::Status {
                    int32_t value = 41 + static_cast<int32_t>(c.rank());
                    if (c.rank() == 1) {
                      RETURN_IF_ERROR(c.Barrier()->Wait());
                      RETURN_IF_ERROR(c.Recv(&value, 1, DataType::kInt32, 0)->Wait());
                      RETURN_IF_ERROR(c.Barrier()->Wait());
                      return Expect(value == 41, "the value sent");
                    }
                    auto send = c.Send(&value, 1, DataType::kInt32, 1);
                    RETURN_IF_ERROR(c.Barrier()->Wait());
                    send.reset();
                    return c.Barrier()->Wait();
                  }),
              ::testing::ElementsAre("", ""));
}

// NVIDIA's library, as far as it can be tested without a GPU.
TEST_F(NcclTest, InstalledLibraryReportsMissingGpu) {
  if (std::filesystem::exists("/dev/nvidiactl")) GTEST_SKIP() << "there may be a GPU";
  auto library = OpenNcclLibrary();
  if (absl::IsNotFound(library.status())) GTEST_SKIP() << library.status().message();
  ASSERT_TRUE(library.ok()) << library.status();
  parts_.library = *std::move(library);
  const absl::Status status = CreateNccl(Options(0, 1)).status();
  EXPECT_TRUE(absl::IsInternal(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("cuda"));
}

// The tests rely on the fake library to detect misuse.
TEST(FakeNcclDeathTest, DetectsMisuse) {
  const NcclParts parts = FakeNcclParts();
  NcclUniqueId id = {};
  NcclConfig config = {};
  config.size = sizeof(config);
  config.magic = NCCL_CONFIG_MAGIC;
  config.version = kNcclOldestVersion;
  ASSERT_EQ(parts.library->make_unique_id(&id), kNcclSuccess);
  NcclComm comm = nullptr;
  ASSERT_EQ(parts.library->init_rank(&comm, 1, id, 0, &config), kNcclInProgress);
  NcclResult state = kNcclSuccess;
  EXPECT_DEATH(parts.library->finalize(comm), "before ncclCommInitRankConfig has settled");
  do {
    ASSERT_EQ(parts.library->async_error(comm, &state), kNcclSuccess);
  } while (state == kNcclInProgress);
  ASSERT_EQ(state, kNcclSuccess);
  EXPECT_DEATH(
      {
        NcclComm again = nullptr;
        parts.library->init_rank(&again, 1, id, 0, &config);
        for (int i = 0; i < 10; ++i) parts.library->async_error(again, &state);
      },
      "was used before");
  ASSERT_EQ(parts.library->abort(comm), kNcclSuccess);
  EXPECT_DEATH(parts.library->async_error(comm, &state), "of a destroyed communicator");
  config.blocking = 1;
  EXPECT_DEATH(parts.library->init_rank(&comm, 1, id, 0, &config), "a blocking communicator");
}

}  // namespace
}  // namespace muster::collectives
