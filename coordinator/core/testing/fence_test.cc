// The ranks of a command job on a silent node are lost only when they have ended for certain.
#include "coordinator/core/nodes/fence.h"

#include <functional>

#include "absl/strings/str_cat.h"
#include "common/time/proto_time.h"
#include "coordinator/core/reasons.h"
#include "coordinator/core/testing/harness.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using ::testing::Contains;
using testing::CountSent;
using ::testing::ElementsAre;
using testing::FindSent;
using testing::Harness;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MakeCommandSpec;
using testing::MakeSpec;
using ::testing::Not;
using Message = v1::CoordinatorMessage;

constexpr absl::Duration kLease = absl::Seconds(30);

Options MakeOptions() {
  Options options = Harness::DefaultOptions();
  options.job_lease = kLease;
  options.incarnation = Incarnation(1000);
  return options;
}

class FenceTest : public ::testing::Test {
 protected:
  Effects Join(const std::string& node, uint64_t set = 0) {
    v1::Hello hello = cluster_.MakeHello(node, 1);
    hello.set_keeps_bans(true);
    hello.set_fence_set(set);
    return Note(cluster_.Open(hello));
  }
  // Nodes that have stored the newest fence set.
  void JoinAll(const std::vector<std::string>& nodes) {
    for (const std::string& node : nodes) Join(node);
    for (const std::string& node : nodes) KeepSet(node);
  }
  Effects Note(Effects effects) {
    for (const Send& send : effects.sends) {
      if (send.message.has_fence_set()) set_ = send.message.fence_set();
      if (send.message.has_bans()) bans_ = send.message.bans();
    }
    return effects;
  }
  void KeepSet(const std::string& node) {
    v1::WorkerMessage message;
    message.set_fence_set_kept(set_.id());
    cluster_.SendMessage(node, message);
  }
  // A command job on node "a", the first free one.
  std::string RunOnA(const std::function<void(v1::JobSpec&)>& change = [](v1::JobSpec&) {}) {
    v1::JobSpec spec = MakeCommandSpec(1);
    change(spec);
    const std::string job = cluster_.Submit(std::move(spec));
    cluster_.BringUp(job);
    EXPECT_EQ(cluster_.Get(job).ranks(0).node(), "a");
    return job;
  }
  void Pass(absl::Duration by, const std::vector<std::string>& alive) {
    Note(cluster_.Run(by, alive));
  }
  void KeepBans(const std::string& node, absl::Duration voucher_left = absl::ZeroDuration()) {
    v1::WorkerMessage message;
    v1::BansKept& kept = *message.mutable_bans_kept();
    kept.set_round(bans_.round());
    *kept.mutable_bans() = bans_.bans();
    for (v1::Ban& ban : *kept.mutable_bans()) *ban.mutable_voucher_left() = ToProto(voucher_left);
    Note(cluster_.SendMessage(node, message));
  }
  uint64_t GenerationOf(const std::string& job) { return cluster_.Get(job).generation(); }
  std::string WaitOf(const std::string& job) { return cluster_.Get(job).ShortDebugString(); }

  Harness cluster_{MakeOptions()};
  v1::FenceSet set_;
  v1::Bans bans_;
};

TEST_F(FenceTest, SetHasTheNodesThatKeepBans) {
  Join("a");
  Join("b");
  cluster_.Join("old", 1);
  EXPECT_THAT(set_.nodes(), ElementsAre("a", "b"));
  const uint64_t id = set_.id();
  EXPECT_EQ(CountSent(Join("c", id), cluster_.session("a"), Message::kFenceSet), 1);
  EXPECT_THAT(set_.nodes(), ElementsAre("a", "b", "c"));
  EXPECT_NE(set_.id(), id);
}

TEST_F(FenceTest, SilentNodeStaysMemberUntilItIsLost) {
  JoinAll({"a", "b", "c"});
  cluster_.CloseStream("c");
  Pass(absl::Seconds(1), {"a", "b"});
  EXPECT_THAT(set_.nodes(), ElementsAre("a", "b", "c"));
  Pass(kLease, {"a", "b"});
  EXPECT_THAT(set_.nodes(), ElementsAre("a", "b"));
}

TEST_F(FenceTest, RanksAreLostOnceHalfHasBannedThem) {
  JoinAll({"a", "b", "c"});
  const std::string job = RunOnA();
  Pass(kLease + absl::Seconds(5), {"b", "c"});
  EXPECT_EQ(cluster_.State(job), v1::RUNNING);
  EXPECT_THAT(cluster_.EventTypes(job), Contains(events::kNodeSilent));
  ASSERT_EQ(bans_.bans_size(), 1);
  EXPECT_EQ(bans_.bans(0).node_name(), "a");
  EXPECT_EQ(FromProto(bans_.bans(0).lease()), kLease);
  KeepBans("b");
  EXPECT_EQ(GenerationOf(job), 1u) << "one of three is less than half";
  EXPECT_THAT(WaitOf(job), HasSubstr("the end of its ranks on a"));
  EXPECT_THAT(WaitOf(job), HasSubstr("node: \"c\" reason: \"has not banned them\""));
  EXPECT_THAT(WaitOf(job), HasSubstr("muster node lost a --confirm"));
  KeepBans("c");
  EXPECT_EQ(GenerationOf(job), 2u);
  EXPECT_EQ(cluster_.Get(job).first_failure().reason(), reasons::kNodeLost);
  EXPECT_EQ(cluster_.StateOf("a"), v1::LOST);
  EXPECT_EQ(cluster_.Get(job).restarts_used(), 0u);
}

TEST_F(FenceTest, VouchersAreWaitedFor) {
  JoinAll({"a", "b"});
  const std::string job = RunOnA();
  Pass(kLease + absl::Seconds(5), {"b"});
  KeepBans("b", absl::Seconds(20));
  Pass(absl::Seconds(19), {"b"});
  EXPECT_EQ(GenerationOf(job), 1u);
  EXPECT_THAT(WaitOf(job), HasSubstr("node: \"b\" reason: \"its voucher has not ended\""));
  Pass(absl::Seconds(2), {"b"});
  EXPECT_EQ(GenerationOf(job), 2u);
}

TEST_F(FenceTest, VoucherIsNotLongerThanTheLease) {
  JoinAll({"a", "b"});
  const std::string job = RunOnA();
  Pass(kLease + absl::Seconds(5), {"b"});
  KeepBans("b", absl::Hours(10000));
  Pass(kLease + absl::Seconds(1), {"b"});
  EXPECT_EQ(GenerationOf(job), 2u);
}

TEST_F(FenceTest, NodeThatMayUseOlderSetNeedsBansOfHalfOfIt) {
  JoinAll({"a", "b", "c", "d"});
  const std::string job = RunOnA();
  cluster_.CloseStream("a");
  for (const std::string node : {"e", "f", "g", "h"}) Join(node);
  for (const std::string node : {"b", "c", "d", "e", "f", "g", "h"}) KeepSet(node);
  const std::vector<std::string> others = {"b", "c", "d", "e", "f", "g", "h"};
  Pass(kLease + absl::Seconds(5), others);
  for (const std::string node : {"e", "f", "g", "h"}) KeepBans(node);
  EXPECT_EQ(GenerationOf(job), 1u) << "a may use the set of a, b, c and d";
  KeepBans("b");
  EXPECT_EQ(GenerationOf(job), 1u);
  KeepBans("c");
  EXPECT_EQ(GenerationOf(job), 2u);
}

TEST_F(FenceTest, OlderSetsSurviveTheCoordinator) {
  JoinAll({"a", "b", "c", "d"});
  const std::string job = RunOnA();
  cluster_.CloseStream("a");
  for (const std::string node : {"e", "f", "g", "h"}) Join(node);
  cluster_.Restart();
  for (const std::string node : {"e", "f", "g", "h"}) Join(node, set_.id());
  Pass(kLease + absl::Seconds(5), {"e", "f", "g", "h"});
  for (const std::string node : {"e", "f", "g", "h"}) KeepBans(node);
  EXPECT_EQ(GenerationOf(job), 1u);
}

TEST_F(FenceTest, ReturningNodeLiftsTheBans) {
  JoinAll({"a", "b", "c"});
  const std::string job = RunOnA();
  Pass(kLease + absl::Seconds(5), {"b", "c"});
  KeepBans("b");
  const v1::Bans first = bans_;
  v1::Hello hello = cluster_.MakeHello("a", 1);
  hello.set_keeps_bans(true);
  hello.set_fence_set(set_.id());
  *hello.add_inventory() = cluster_.MakeInventory(job, {Harness::MakeReport(0, v1::STARTED)});
  Note(cluster_.Open(hello));
  EXPECT_THAT(bans_.bans(), IsEmpty());
  EXPECT_EQ(cluster_.State(job), v1::RUNNING);
  Pass(kLease + absl::Seconds(5), {"b", "c"});
  const v1::Bans second = bans_;
  ASSERT_EQ(second.bans_size(), 1);
  bans_ = first;
  KeepBans("b");
  KeepBans("c");
  EXPECT_EQ(GenerationOf(job), 1u) << "answers to the bans that were lifted";
  bans_ = second;
  KeepBans("b");
  KeepBans("c");
  EXPECT_EQ(GenerationOf(job), 2u);
}

TEST_F(FenceTest, WorkerThatLostItsPromisesBansAgain) {
  JoinAll({"a", "b", "c"});
  const std::string job = RunOnA();
  Pass(kLease + absl::Seconds(5), {"b", "c"});
  KeepBans("b");
  const Effects opened = Join("b");
  ASSERT_NE(FindSent(opened, cluster_.session("b"), Message::kBans), nullptr);
  KeepBans("c");
  EXPECT_EQ(GenerationOf(job), 1u);
  KeepBans("b");
  EXPECT_EQ(GenerationOf(job), 2u);
}

// The rendezvous must not be blamed, nor use up a restart.
TEST_F(FenceTest, RendezvousDoesNotTimeOutWhileRanksAreAwaited) {
  JoinAll({"a", "b"});
  const std::string job = cluster_.Submit(MakeCommandSpec(1));
  ASSERT_EQ(cluster_.State(job), v1::STARTING);
  Pass(absl::Minutes(5), {"b"});
  EXPECT_EQ(cluster_.State(job), v1::STARTING);
  KeepBans("b");
  EXPECT_EQ(cluster_.Get(job).first_failure().reason(), reasons::kNodeLost);
  EXPECT_EQ(GenerationOf(job), 2u);
}

TEST_F(FenceTest, RanksThatReturnHaveTheirWholeTimeToStart) {
  JoinAll({"a", "b"});
  const std::string job = cluster_.Submit(MakeCommandSpec(1));
  Pass(absl::Minutes(5), {"b"});
  Join("a", set_.id());
  Pass(absl::Seconds(50), {"a", "b"});
  EXPECT_EQ(cluster_.State(job), v1::STARTING);
  EXPECT_EQ(GenerationOf(job), 1u);
}

// The only node of a cluster vouches for itself, and nobody else can know that its ranks ended.
TEST_F(FenceTest, OnlyNodeIsNeverDeclaredLostWithoutConfirmation) {
  JoinAll({"a"});
  const std::string job = RunOnA();
  Pass(absl::Hours(1), {});
  EXPECT_EQ(cluster_.State(job), v1::RUNNING);
  cluster_.Step(ConfirmNodeLost{RequestId(900), NodeName("a")});
  EXPECT_EQ(cluster_.Get(job).first_failure().reason(), reasons::kNodeLost);
  EXPECT_EQ(cluster_.State(job), v1::QUEUED);
}

TEST_F(FenceTest, TrainJobsNeedNoBans) {
  JoinAll({"a", "b"});
  const std::string job = cluster_.Submit(MakeSpec(1));
  cluster_.BringUp(job);
  Pass(kLease + absl::Seconds(5), {"b"});
  EXPECT_EQ(GenerationOf(job), 2u);
}

TEST_F(FenceTest, JobThatContinuesWhenCutOffWaitsForConfirmation) {
  JoinAll({"a", "b", "c"});
  const std::string job = RunOnA([](v1::JobSpec& spec) { spec.set_on_cut_off("continue"); });
  Pass(kLease + absl::Seconds(5), {"b", "c"});
  EXPECT_THAT(bans_.bans(), IsEmpty());
  EXPECT_THAT(WaitOf(job), HasSubstr("on_cut_off: continue"));
  Pass(absl::Hours(1), {"b", "c"});
  EXPECT_EQ(GenerationOf(job), 1u);
  cluster_.Step(ConfirmNodeLost{RequestId(900), NodeName("a")});
  EXPECT_EQ(GenerationOf(job), 2u);
}

TEST_F(FenceTest, ConnectedNodeIsNotConfirmedAsLost) {
  JoinAll({"a"});
  const std::string job = RunOnA();
  const auto status_of = [&](const std::string& node) {
    return cluster_.Step(ConfirmNodeLost{RequestId(900), NodeName(node)}).replies[0].job.status();
  };
  EXPECT_TRUE(absl::IsFailedPrecondition(status_of("a")));
  EXPECT_TRUE(absl::IsNotFound(status_of("nobody")));
  EXPECT_EQ(cluster_.State(job), v1::RUNNING);
}

TEST_F(FenceTest, MovedCoordinatorWaitsForReports) {
  cluster_.Step(Listening{"machine-1", "10.0.0.1:7070"});
  JoinAll({"a", "b"});
  const std::string job = RunOnA();
  cluster_.Restart();
  cluster_.Step(Listening{"machine-2", "10.0.0.2:7070"});
  Join("b", set_.id());
  Pass(kLease + absl::Seconds(5), {"b"});
  EXPECT_THAT(bans_.bans(), IsEmpty());
  EXPECT_THAT(WaitOf(job), HasSubstr("moved to another machine or address"));
  cluster_.Restart();
  cluster_.Step(Listening{"machine-2", "10.0.0.2:7070"});
  Join("b", set_.id());
  Pass(kLease + absl::Seconds(5), {"b"});
  EXPECT_THAT(WaitOf(job), HasSubstr("moved to another machine or address")) << "as before";
  v1::Hello hello = cluster_.MakeHello("a", 1);
  hello.set_keeps_bans(true);
  hello.set_fence_set(set_.id());
  *hello.add_inventory() = cluster_.MakeInventory(job, {Harness::MakeReport(0, v1::STARTED)});
  Note(cluster_.Open(hello));
  Pass(kLease + absl::Seconds(5), {"b"});
  KeepBans("b");
  EXPECT_EQ(GenerationOf(job), 2u) << "a has reported";
}

TEST_F(FenceTest, RestartAtSameAddressNeedsNoReports) {
  cluster_.Step(Listening{"machine-1", "10.0.0.1:7070"});
  JoinAll({"a", "b"});
  const std::string job = RunOnA();
  cluster_.Restart();
  cluster_.Step(Listening{"machine-1", "10.0.0.1:7070"});
  Join("b", set_.id());
  Pass(kLease + absl::Seconds(5), {"b"});
  KeepBans("b");
  EXPECT_EQ(GenerationOf(job), 2u);
}

// Workers extend leases from when a connection was refused, so the lease begins with the service.
TEST_F(FenceTest, LeasesBeginWhenTheCoordinatorListens) {
  JoinAll({"a", "b"});
  const std::string job = RunOnA();
  cluster_.Restart();
  Join("b", set_.id());
  Pass(kLease - absl::Seconds(5), {"b"});
  cluster_.Step(Listening{"machine-1", "10.0.0.1:7070"});
  Pass(kLease - absl::Seconds(5), {"b"});
  EXPECT_THAT(bans_.bans(), IsEmpty());
  Pass(absl::Seconds(10), {"b"});
  KeepBans("b");
  EXPECT_EQ(GenerationOf(job), 2u);
}

TEST_F(FenceTest, NoLeaseEndsOnceTheCoordinatorCloses) {
  JoinAll({"a", "b"});
  const std::string job = RunOnA();
  Pass(absl::Seconds(5), {"b"});
  cluster_.Step(Closing{});
  Pass(2 * kLease, {"b"});
  EXPECT_THAT(bans_.bans(), IsEmpty());
  EXPECT_EQ(cluster_.StateOf("a"), v1::READY);
}

TEST_F(FenceTest, LargeClustersHaveNoFenceSet) {
  JoinAll({"a"});
  const std::string job = RunOnA();
  for (size_t i = 0; i < Fence::kMembers; ++i) Join(absl::StrCat("b", i), set_.id());
  EXPECT_THAT(set_.nodes(), IsEmpty());
  KeepSet("a");
  Pass(kLease + absl::Seconds(5), {"b0"});
  EXPECT_EQ(GenerationOf(job), 2u);
}

}  // namespace
}  // namespace muster::core
