// Ranks are local processes, with a port that a launcher holds for them.
#include "process_group/process_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "collectives/peer_status.h"
#include "collectives/testing.h"
#include "common/network/held_port.h"
#include "common/status.h"

namespace muster {
namespace {

using collectives::PeerRankOf;
using collectives::RunRankProcesses;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

absl::Status Expect(bool condition, const std::string& what) {
  return condition ? absl::OkStatus() : absl::InternalError(absl::StrCat("expected: ", what));
}

absl::Status ExpectLost(const absl::Status& status, uint32_t rank) {
  return Expect(absl::IsUnavailable(status) && PeerRankOf(status) == rank,
                absl::StrCat("rank ", rank, " went away, not ", status.ToString()));
}

class ProcessGroupTest : public ::testing::Test {
 protected:
  ProcessGroupTest() : port_(*HeldPort::Hold(0)) {}

  ProcessGroupOptions Options(uint32_t rank, uint32_t world_size) {
    ProcessGroupOptions options;
    options.rank = rank;
    options.world_size = world_size;
    options.address = absl::StrCat("tcp://127.0.0.1:", port_->port());
    options.backend = backend_;
    options.connect_timeout = connect_timeout_;
    options.timeout = absl::Seconds(20);
    options.run = "test";
    if (!hosts_.empty()) options.host = hosts_[rank];
    return options;
  }

  std::vector<std::string> Run(uint32_t size,
                               const std::function<absl::Status(ProcessGroup&)>& body) {
    return RunRankProcesses(size, [&](uint32_t rank) -> absl::Status {
      ASSIGN_OR_RETURN(const auto group, ProcessGroup::Init(Options(rank, size)));
      return body(*group);
    });
  }

  const std::unique_ptr<HeldPort> port_;
  collectives::FileKeyStore keys_;  // communication between ranks outside the group
  std::string backend_ = "auto";
  std::vector<std::string> hosts_;
  absl::Duration connect_timeout_ = absl::Seconds(20);
};

template <typename T>
absl::Status SumsOf(ProcessGroup& group) {
  std::vector<T> data(1001, static_cast<T>(group.rank() + 1));
  RETURN_IF_ERROR(group.AllReduce(absl::MakeSpan(data)));
  const T sum = static_cast<T>(group.size() * (group.size() + 1) / 2);
  return Expect(data == std::vector<T>(1001, sum), "the sum");
}

TEST_F(ProcessGroupTest, AllReducesEveryType) {
  EXPECT_THAT(Run(3,
                  [](ProcessGroup& group) -> absl::Status {
                    RETURN_IF_ERROR(Expect(group.backend() == "shm", "shm"));
                    RETURN_IF_ERROR(SumsOf<float>(group));
                    RETURN_IF_ERROR(SumsOf<double>(group));
                    RETURN_IF_ERROR(SumsOf<int32_t>(group));
                    RETURN_IF_ERROR(SumsOf<int64_t>(group));
                    RETURN_IF_ERROR(SumsOf<uint8_t>(group));
                    // 1.0 and 0.5; three times each.
                    std::vector<Bfloat16> brain(7, Bfloat16{0x3f80});
                    RETURN_IF_ERROR(group.AllReduce(absl::MakeSpan(brain)));
                    RETURN_IF_ERROR(Expect(brain[6].bits == 0x4040, "3.0 in bfloat16"));
                    std::vector<Float16> half(7, Float16{0x3800});
                    RETURN_IF_ERROR(group.AllReduce(absl::MakeSpan(half)));
                    return Expect(half[6].bits == 0x3e00, "1.5 in float16");
                  }),
              Each(""));
}

TEST_F(ProcessGroupTest, RunsEveryOperation) {
  EXPECT_THAT(Run(3,
                  [](ProcessGroup& group) -> absl::Status {
                    const int32_t own = static_cast<int32_t>(group.rank());
                    const bool root = own == 1;
                    using Ints = std::vector<int32_t>;
                    const auto send = [](const Ints& data) { return absl::MakeConstSpan(data); };

                    Ints most = {own, -own};
                    RETURN_IF_ERROR(group.AllReduce(absl::MakeSpan(most), ReduceOp::kMax));
                    RETURN_IF_ERROR(Expect(most == Ints{2, 0}, "AllReduce"));
                    Ints part(1);
                    RETURN_IF_ERROR(group.ReduceScatter(send({own, own, 5}), absl::MakeSpan(part)));
                    RETURN_IF_ERROR(Expect(part[0] == (own == 2 ? 15 : 3), "ReduceScatter"));
                    Ints all(3);
                    RETURN_IF_ERROR(group.AllGather(send({own}), absl::MakeSpan(all)));
                    RETURN_IF_ERROR(Expect(all == Ints{0, 1, 2}, "AllGather"));
                    Ints received = {own};
                    RETURN_IF_ERROR(group.Broadcast(absl::MakeSpan(received), 1));
                    RETURN_IF_ERROR(Expect(received[0] == 1, "Broadcast"));
                    Ints sum(root ? 1 : 0);
                    RETURN_IF_ERROR(group.Reduce(send({own}), absl::MakeSpan(sum), 1));
                    RETURN_IF_ERROR(Expect(!root || sum[0] == 3, "Reduce"));
                    Ints gathered(root ? 3 : 0);
                    RETURN_IF_ERROR(group.Gather(send({own}), absl::MakeSpan(gathered), 1));
                    RETURN_IF_ERROR(Expect(!root || gathered == Ints{0, 1, 2}, "Gather"));
                    const Ints shares = root ? Ints{7, 8, 9} : Ints{};
                    RETURN_IF_ERROR(group.Scatter(send(shares), absl::MakeSpan(part), 1));
                    RETURN_IF_ERROR(Expect(part[0] == 7 + own, "Scatter"));
                    RETURN_IF_ERROR(group.AllToAll(send({own * 10, own * 10 + 1, own * 10 + 2}),
                                                   absl::MakeSpan(all)));
                    RETURN_IF_ERROR(Expect(all == Ints{own, 10 + own, 20 + own}, "AllToAll"));
                    const auto sent = group.Send(kAsync, send(received), (group.rank() + 1) % 3);
                    RETURN_IF_ERROR(group.Recv(absl::MakeSpan(part), (group.rank() + 2) % 3));
                    RETURN_IF_ERROR(sent->Wait());
                    RETURN_IF_ERROR(Expect(part[0] == 1, "Recv"));
                    return group.Barrier();
                  }),
              Each(""));
}

TEST_F(ProcessGroupTest, AsyncBarrierCompletesWhenAllArrive) {
  EXPECT_THAT(Run(2,
                  [this](ProcessGroup& group) -> absl::Status {
                    if (group.rank() == 1) {
                      RETURN_IF_ERROR(keys_.Get("waiting", absl::Seconds(20)).status());
                      return group.Barrier();
                    }
                    const std::shared_ptr<Work> work = group.Barrier(kAsync);
                    RETURN_IF_ERROR(Expect(!work->Done(), "waiting for rank 1"));
                    RETURN_IF_ERROR(keys_.Put("waiting", ""));
                    return work->Wait();
                  }),
              Each(""));
}

// The backend that auto selects for the ranks' hosts.
TEST_F(ProcessGroupTest, AutoSelectsBackendByHosts) {
  const auto found = [this](uint32_t size) {
    return Run(size, [](ProcessGroup& group) -> absl::Status {
      RETURN_IF_ERROR(SumsOf<float>(group));
      return absl::UnknownError(
          absl::StrCat(group.backend(), " ", group.local_rank(), "/", group.local_size()));
    });
  };
  hosts_ = {"a", "a", "b", "b"};
  EXPECT_THAT(found(4),
              ::testing::ElementsAre("UNKNOWN: hierarchical 0/2", "UNKNOWN: hierarchical 1/2",
                                     "UNKNOWN: hierarchical 0/2", "UNKNOWN: hierarchical 1/2"));
  hosts_ = {"a", "b", "a"};
  EXPECT_THAT(found(3), ::testing::ElementsAre("UNKNOWN: gloo 0/2", "UNKNOWN: gloo 0/1",
                                               "UNKNOWN: gloo 1/2"));
  hosts_.clear();
  EXPECT_THAT(found(1), ::testing::ElementsAre("UNKNOWN: single 0/1"));
}

TEST_F(ProcessGroupTest, InitializesFromEnvironment) {
  EXPECT_THAT(RunRankProcesses(2,
                               [&](uint32_t rank) -> absl::Status {
                                 setenv("RANK", absl::StrCat(rank).c_str(), 1);
                                 setenv("WORLD_SIZE", "2", 1);
                                 setenv("MASTER_ADDR", "localhost", 1);
                                 setenv("MASTER_PORT", absl::StrCat(port_->port()).c_str(), 1);
                                 ASSIGN_OR_RETURN(const auto group,
                                                  ProcessGroup::InitFromEnvironment());
                                 RETURN_IF_ERROR(Expect(group->rank() == rank, "the rank"));
                                 return SumsOf<float>(*group);
                               }),
              Each(""));
}

TEST_F(ProcessGroupTest, NamesInvalidEnvironmentVariable) {
  const auto status = [] { return ProcessGroup::InitFromEnvironment().status().ToString(); };
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) unsetenv(name);
  EXPECT_THAT(status(), StartsWith("INVALID_ARGUMENT: WORLD_SIZE is not set"));
  setenv("WORLD_SIZE", "2", 1);
  setenv("RANK", "2", 1);
  EXPECT_THAT(status(), HasSubstr("RANK is '2'; must be a number from 0 to 1"));
  setenv("RANK", "1", 1);
  EXPECT_THAT(status(), HasSubstr("MASTER_ADDR is not set"));
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", "http", 1);
  EXPECT_THAT(status(), HasSubstr("MASTER_PORT is 'http'; must be a number from 1 to 65535"));
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR"}) unsetenv(name);
  ProcessGroupOptions options;
  options.world_size = 2;
  options.address = "127.0.0.1:80";
  EXPECT_THAT(ProcessGroup::Init(options).status().ToString(),
              HasSubstr("must be tcp://HOST:PORT"));
}

TEST_F(ProcessGroupTest, NamesMissingRank) {
  connect_timeout_ = absl::Seconds(1);
  for (const uint32_t absent : {2u, 0u}) {
    const std::vector<std::string> results =
        RunRankProcesses(3, [&](uint32_t rank) -> absl::Status {
          if (rank == absent) return absl::OkStatus();
          return ProcessGroup::Init(Options(rank, 3)).status();
        });
    for (uint32_t rank = 0; rank < 3; ++rank) {
      if (rank == absent) continue;
      EXPECT_THAT(results[rank],
                  AllOf(StartsWith("DEADLINE_EXCEEDED"), HasSubstr(absl::StrCat("rank ", absent))));
    }
  }
}

// The victim is also detected by ranks that do not communicate with it.
TEST_F(ProcessGroupTest, KilledRankEndsOperationsOfOthers) {
  for (const uint32_t victim : {2u, 0u}) {
    for (const char* const backend : {"shm", "gloo"}) {
      SCOPED_TRACE(absl::StrCat(backend, ", rank ", victim));
      backend_ = backend;
      const absl::Time start = absl::Now();
      const std::vector<std::string> results = Run(3, [&](ProcessGroup& group) -> absl::Status {
        const auto key = [&](uint32_t rank) {
          return absl::StrCat(backend, "/", victim, "/", rank);
        };
        if (group.rank() == victim) {
          for (uint32_t rank = 0; rank < 3; ++rank) {
            if (rank == victim) continue;
            RETURN_IF_ERROR(keys_.Get(key(rank), absl::Seconds(20)).status());
          }
          raise(SIGKILL);
        }
        RETURN_IF_ERROR(keys_.Put(key(group.rank()), ""));
        std::vector<float> never(10);
        const uint32_t other = 3 - victim - group.rank();
        return ExpectLost(group.Recv(absl::MakeSpan(never), other), victim);
      });
      EXPECT_LT(absl::Now() - start, absl::Seconds(5));
      for (uint32_t rank = 0; rank < 3; ++rank) {
        EXPECT_EQ(results[rank], rank == victim ? "signal 9" : "") << "rank " << rank;
      }
    }
  }
}

TEST_F(ProcessGroupTest, RankZeroMayLeaveFirst) {
  const std::vector<std::string> results = RunRankProcesses(3, [&](uint32_t rank) -> absl::Status {
    ASSIGN_OR_RETURN(auto group, ProcessGroup::Init(Options(rank, 3)));
    if (rank == 0) {
      RETURN_IF_ERROR(group->Barrier());
      group.reset();
      return keys_.Put("left", "");
    }
    ASSIGN_OR_RETURN(const auto pair, group->NewGroup("pair", {2, 1}));
    RETURN_IF_ERROR(Expect(pair->rank() == 2 - rank, "the group's own rank order"));
    RETURN_IF_ERROR(group->Barrier());
    RETURN_IF_ERROR(keys_.Get("left", absl::Seconds(20)).status());
    std::vector<int64_t> data = {rank};
    RETURN_IF_ERROR(pair->AllReduce(absl::MakeSpan(data)));
    RETURN_IF_ERROR(Expect(data[0] == 3, "the sum"));
    const absl::Status late = group->NewGroup("late", {1, 2}).status();
    RETURN_IF_ERROR(Expect(absl::IsUnavailable(late) && absl::StrContains(late.message(), "rank 0"),
                           absl::StrCat("UNAVAILABLE from the key store, not ", late.ToString())));
    return pair->Barrier();
  });
  EXPECT_THAT(results, Each(""));
}

TEST_F(ProcessGroupTest, RejectsSpansOfWrongSize) {
  EXPECT_THAT(Run(2,
                  [](ProcessGroup& group) -> absl::Status {
                    const std::vector<float> send(3);
                    std::vector<float> recv(3);
                    const absl::Status status =
                        group.AllGather(absl::MakeConstSpan(send), absl::MakeSpan(recv));
                    RETURN_IF_ERROR(Expect(
                        absl::IsInvalidArgument(status) &&
                            absl::StrContains(status.message(), "sends 3 elements and receives 3"),
                        status.ToString()));
                    return Expect(group.status() == status, "a failed group");
                  }),
              Each(""));
}

TEST_F(ProcessGroupTest, RejectsRanksOfOtherRunOrWorldSize) {
  const std::vector<std::string> results = RunRankProcesses(4, [&](uint32_t i) -> absl::Status {
    ProcessGroupOptions options = Options(i == 0 ? 0 : 1, 2);
    // Rank 0 serves until rank 1 has joined, which waits until the others were rejected.
    if (i == 1) {
      RETURN_IF_ERROR(keys_.Get("refused 2", absl::Seconds(20)).status());
      RETURN_IF_ERROR(keys_.Get("refused 3", absl::Seconds(20)).status());
    }
    if (i < 2) return ProcessGroup::Init(options).status();
    if (i == 2) options.run = "another";
    if (i == 3) options.world_size = 3;
    const absl::Status status = ProcessGroup::Init(options).status();
    RETURN_IF_ERROR(keys_.Put(absl::StrCat("refused ", i), ""));
    return status;
  });
  EXPECT_EQ(results[0], "");
  EXPECT_EQ(results[1], "");
  EXPECT_THAT(results[2], StartsWith("FAILED_PRECONDITION: rank 1 belongs to another run"));
  EXPECT_EQ(results[3], "INVALID_ARGUMENT: rank 1 of 3 does not match the group's world size of 2");
}

}  // namespace
}  // namespace muster
