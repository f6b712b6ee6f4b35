// Behaviour of a group when one of its ranks is killed, stopped, absent or inconsistent. Ranks are
// processes.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "collectives/communicator.h"
#include "collectives/factory.h"
#include "collectives/nccl/testing/fake_nccl_parts.h"
#include "collectives/peer_status.h"
#include "collectives/testing.h"
#include "common/status.h"

namespace muster::collectives {
namespace {

struct Backend {
  std::string name;
  std::vector<uint32_t> ranks_on_node;
};

void PrintTo(const Backend& backend, std::ostream* out) { *out << backend.name; }

absl::Status Expect(bool condition, const std::string& what) {
  return condition ? absl::OkStatus() : absl::InternalError(absl::StrCat("expected: ", what));
}

class FaultTest : public ::testing::TestWithParam<Backend> {
 protected:
  static uint32_t size() {
    const std::vector<uint32_t>& nodes = GetParam().ranks_on_node;
    return std::accumulate(nodes.begin(), nodes.end(), 0u);
  }
  // The last rank: neither the first rank nor the first of its node, if there are others.
  static uint32_t victim() { return size() - 1; }

  WorldOptions Options(uint32_t rank) {
    WorldOptions options;
    options.backend = GetParam().name;
    options.rank = rank;
    options.world_size = size();
    options.ranks_on_node = GetParam().ranks_on_node;
    options.store = &store_;
    options.interface_address = "127.0.0.1";
    options.connect_timeout = connect_timeout_;
    options.timeout = rank == 0 ? timeout_ : timeout_ + delay_;
    if (options.backend == "nccl_levels") {
      options.backend = "nccl";
      options.hierarchical = "on";
    }
    if (options.backend == "nccl") {
      nccl_ = FakeNcclParts();
      options.nccl = &nccl_;
    }
    return options;
  }

  std::vector<std::string> Run(const std::function<absl::Status(Communicator&)>& body) {
    return RunRankProcesses(size(), [&](uint32_t rank) -> absl::Status {
      ASSIGN_OR_RETURN(auto communicator, CreateWorldCommunicator(Options(rank)));
      return body(*communicator);
    });
  }

  static absl::Status Reduce(Communicator& communicator, std::vector<float>* data) {
    return communicator
        .AllReduce(data->data(), data->data(), data->size(), DataType::kFloat32, ReduceOp::kSum)
        ->Wait();
  }

  // The victim sends itself `signal` while an operation is in progress; the others continue until
  // they fail.
  std::vector<std::string> RunWithVictim(
      int signal, const std::function<absl::Status(Communicator&, absl::Status)>& check) {
    return Run([&](Communicator& communicator) -> absl::Status {
      std::vector<float> data(1 << 20, 1.0f);
      RETURN_IF_ERROR(Reduce(communicator, &data));
      if (communicator.rank() == victim()) {
        const auto work = communicator.AllReduce(data.data(), data.data(), data.size(),
                                                 DataType::kFloat32, ReduceOp::kSum);
        raise(signal);
        return absl::OkStatus();
      }
      absl::Status status;
      while (status.ok()) status = Reduce(communicator, &data);
      return check(communicator, status);
    });
  }

  void ExpectSurvivorsSucceed(const std::vector<std::string>& results) {
    for (uint32_t rank = 0; rank < size(); ++rank) {
      EXPECT_EQ(results[rank], rank == victim() ? "signal 9" : "") << "rank " << rank;
    }
  }

  void ExpectSurvivorsNameStoppedPeer() {
    ExpectSurvivorsSucceed(RunWithVictim(SIGSTOP, [](Communicator&, const absl::Status& status) {
      // Ranks that lose a peer which has timed out see a lost connection instead.
      RETURN_IF_ERROR(Expect(absl::IsDeadlineExceeded(status) || absl::IsUnavailable(status),
                             absl::StrCat("DEADLINE_EXCEEDED, not ", status.ToString())));
      return Expect(PeerRankOf(status) == victim() &&
                        absl::StrContains(status.message(), absl::StrCat("rank ", victim())),
                    absl::StrCat("rank ", victim(), " in: ", status.ToString()));
    }));
  }

  FileKeyStore store_;
  NcclParts nccl_;  // parts of one rank, in its process
  absl::Duration connect_timeout_ = absl::Seconds(20);
  absl::Duration timeout_ = absl::Seconds(20);
  // The other ranks notice a timeout this much later than rank 0, as if they waited for a core.
  absl::Duration delay_;
};

TEST_P(FaultTest, NamesKilledPeerImmediately) {
  const absl::Time start = absl::Now();
  ExpectSurvivorsSucceed(RunWithVictim(SIGKILL, [](Communicator&, const absl::Status& status) {
    RETURN_IF_ERROR(
        Expect(absl::IsUnavailable(status), absl::StrCat("UNAVAILABLE, not ", status.ToString())));
    return Expect(PeerRankOf(status) == victim(),
                  absl::StrCat("rank ", victim(), " in: ", status.ToString()));
  }));
  EXPECT_LT(absl::Now() - start, absl::Seconds(4));
}

TEST_P(FaultTest, NamesStoppedPeerAfterTimeout) {
  timeout_ = absl::Milliseconds(800);
  ExpectSurvivorsNameStoppedPeer();
}

TEST_P(FaultTest, AbortEndsWaitForStoppedPeer) {
  ExpectSurvivorsSucceed(Run([&](Communicator& communicator) -> absl::Status {
    std::vector<float> data(1 << 20, 1.0f);
    RETURN_IF_ERROR(Reduce(communicator, &data));
    if (communicator.rank() == victim()) raise(SIGSTOP);
    const auto work = communicator.AllReduce(data.data(), data.data(), data.size(),
                                             DataType::kFloat32, ReduceOp::kSum);
    // This key is never set: gives the operation time to sleep.
    store_.Get("never", absl::Milliseconds(200)).status().IgnoreError();
    RETURN_IF_ERROR(Expect(!work->Done(), "waiting for the stopped rank"));
    // Without this, a rank could lose an aborting peer before it waits.
    RETURN_IF_ERROR(store_.Put(absl::StrCat("waiting/", communicator.rank()), ""));
    for (uint32_t i = 0; i < size(); ++i) {
      if (i == victim()) continue;
      RETURN_IF_ERROR(store_.Get(absl::StrCat("waiting/", i), absl::Seconds(10)).status());
    }
    const absl::Time start = absl::Now();
    communicator.Abort(absl::AbortedError("the generation has ended"));
    RETURN_IF_ERROR(Expect(!work->Wait().ok(), "an error"));
    return Expect(absl::Now() - start < absl::Seconds(2), "returned within two seconds");
  }));
}

TEST_P(FaultTest, NamesRankThatDoesNotConnect) {
  connect_timeout_ = absl::Milliseconds(500);
  const std::vector<std::string> results =
      RunRankProcesses(size(), [&](uint32_t rank) -> absl::Status {
        if (rank == victim()) return absl::OkStatus();
        const auto communicator = CreateWorldCommunicator(Options(rank));
        // Other ranks may instead see the failure of a peer that gave up.
        return Expect(!communicator.ok(), "an error").ok() ? communicator.status()
                                                           : absl::OkStatus();
      });
  bool named = false;
  for (uint32_t rank = 0; rank < size(); ++rank) {
    if (rank == victim()) continue;
    EXPECT_NE(results[rank], "") << "rank " << rank;
    named = named || absl::StrContains(results[rank], absl::StrCat("rank ", victim()));
  }
  EXPECT_TRUE(named) << results[0];
}

TEST_P(FaultTest, LeavesNothingBehindWhenAllAreKilled) {
  const std::vector<std::string> results = Run([](Communicator& communicator) -> absl::Status {
    ASSIGN_OR_RETURN(const auto allocation, communicator.Allocate(1 << 20));
    RETURN_IF_ERROR(communicator.Barrier()->Wait());
    raise(SIGKILL);
    return absl::OkStatus();
  });
  for (const std::string& result : results) EXPECT_EQ(result, "signal 9");
  const auto id = store_.Get("unique-id/WORLD/0", absl::ZeroDuration());
  ASSERT_TRUE(id.ok());
  std::ostringstream sockets;
  sockets << std::ifstream("/proc/net/unix").rdbuf();
  EXPECT_FALSE(absl::StrContains(sockets.str(), *id));
}

Backend MakeBackend(const std::string& name, std::vector<uint32_t> ranks_on_node) {
  Backend backend;
  backend.name = name;
  backend.ranks_on_node = std::move(ranks_on_node);
  return backend;
}

std::string NameOf(const ::testing::TestParamInfo<Backend>& info) {
  std::string name = info.param.name;
  for (const uint32_t ranks : info.param.ranks_on_node) absl::StrAppend(&name, "_", ranks);
  return name;
}

INSTANTIATE_TEST_SUITE_P(
    Backends, FaultTest,
    ::testing::Values(MakeBackend("shm", {2}), MakeBackend("shm", {4}), MakeBackend("gloo", {2}),
                      MakeBackend("gloo", {4}), MakeBackend("gloo", {9}), MakeBackend("nccl", {2}),
                      MakeBackend("nccl", {4}), MakeBackend("nccl_levels", {2, 2}),
                      MakeBackend("hierarchical", {2, 2}), MakeBackend("hierarchical", {1, 2})),
    NameOf);

// Rank 0 waits for rank 1 or 2, which waits for the stopped rank 3.
class LateReportTest : public FaultTest {};

TEST_P(LateReportTest, NamesStoppedPeer) {
  timeout_ = absl::Milliseconds(800);
  delay_ = absl::Milliseconds(700);
  ExpectSurvivorsNameStoppedPeer();
}

INSTANTIATE_TEST_SUITE_P(Backends, LateReportTest,
                         ::testing::Values(MakeBackend("hierarchical", {2, 2})), NameOf);

// Without this check, ranks that call different operations would reduce garbage.
class ShmDisagreementTest : public ::testing::Test {};

TEST_F(ShmDisagreementTest, ReturnsErrorThatNamesBothCalls) {
  FileKeyStore store;
  const std::vector<std::string> results = RunRankProcesses(2, [&](uint32_t rank) -> absl::Status {
    WorldOptions options;
    options.rank = rank;
    options.world_size = 2;
    options.ranks_on_node = {2};
    options.store = &store;
    ASSIGN_OR_RETURN(auto communicator, CreateWorldCommunicator(options));
    std::vector<float> data(7);
    return rank == 0
               ? communicator
                     ->AllReduce(data.data(), data.data(), 7, DataType::kFloat32, ReduceOp::kSum)
                     ->Wait()
               : communicator->Broadcast(data.data(), 5, DataType::kFloat32, 0)->Wait();
  });
  // One rank may first see that the other has failed.
  const std::string all = results[0] + results[1];
  EXPECT_TRUE(absl::StrContains(all, "AllReduce of 7 float32 (sum)")) << all;
  EXPECT_TRUE(absl::StrContains(all, "Broadcast of 5 float32")) << all;
  EXPECT_NE(results[0], "");
  EXPECT_NE(results[1], "");
}

}  // namespace
}  // namespace muster::collectives
