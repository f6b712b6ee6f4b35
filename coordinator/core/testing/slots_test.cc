// Workers' reports about their GPUs, and their effect on placement.
#include "coordinator/core/reasons.h"
#include "coordinator/core/testing/harness.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using testing::ExitWith;
using testing::Harness;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MakeCommandSpec;
using ::testing::Not;

class Slots : public ::testing::Test {
 protected:
  // A node with `gpus` GPUs followed by `cpus` CPU slots.
  v1::Hello HelloOf(const std::string& node, uint32_t gpus, uint32_t cpus = 0) {
    v1::Hello hello = cluster_.MakeHello(node, gpus + cpus);
    for (uint32_t i = 0; i < gpus; ++i) {
      v1::Slot& slot = *hello.mutable_slots(i);
      slot.set_kind("gpu");
      slot.set_uuid("GPU-" + std::to_string(i));
      slot.mutable_device()->set_index(i);
    }
    return hello;
  }
  static v1::JobSpec Spec(const std::string& device, uint32_t ranks = 1) {
    v1::JobSpec spec = MakeCommandSpec(1, ranks);
    spec.mutable_resources()->set_device(device);
    return spec;
  }
  struct Condition {
    uint32_t index;
    std::string unavailable;
    bool returning = false;
  };
  Effects ReportConditions(const std::string& node, const std::vector<Condition>& conditions) {
    v1::WorkerMessage message;
    message.mutable_slots();
    for (const Condition& condition : conditions) {
      v1::SlotCondition& reported = *message.mutable_slots()->add_conditions();
      reported.set_index(condition.index);
      reported.set_unavailable(condition.unavailable);
      reported.set_returning(condition.returning);
    }
    return cluster_.SendMessage(node, message);
  }
  std::vector<uint32_t> SlotsOf(const std::string& job, uint32_t rank = 0) const {
    const v1::RankStatus status = cluster_.Get(job).ranks(rank);
    return {status.slots().begin(), status.slots().end()};
  }
  std::string Blocker(const std::string& job, int which) const {
    return cluster_.Get(job).waits(0).missing(which).reason();
  }

  Harness cluster_;
};

TEST_F(Slots, JobsGetRequestedKind) {
  cluster_.Open(HelloOf("a", 1, 2));
  EXPECT_THAT(SlotsOf(cluster_.Submit(Spec("cpu"))), ElementsAre(1));
  EXPECT_THAT(SlotsOf(cluster_.Submit(Spec("auto"))), ElementsAre(0));
  EXPECT_THAT(SlotsOf(cluster_.Submit(Spec("auto"))), ElementsAre(2));
  const std::string waiting = cluster_.Submit(Spec("gpu"));
  EXPECT_EQ(cluster_.State(waiting), v1::QUEUED);
}

TEST_F(Slots, ReportsMissingGpus) {
  cluster_.Join("a", 4);
  const std::string job = cluster_.Submit(Spec("gpu", 2));
  EXPECT_EQ(Blocker(job, 0),
            "needs 1 node with 2 free gpu slots; 0 available; the cluster has 0 usable nodes "
            "of that size, 1 too few");
  EXPECT_EQ(Blocker(job, 1), "offers no gpu slots");
}

TEST_F(Slots, UnhealthySlotsGetNoRanks) {
  cluster_.Open(HelloOf("a", 2));
  const Effects effects = ReportConditions("a", {{1, "Xid 79, x"}});
  EXPECT_THAT(effects.logs,
              ElementsAre("no ranks will be placed on GPU 1 (GPU-1) of a: Xid 79, x"));
  EXPECT_THAT(ReportConditions("a", {{1, "Xid 79, x"}}).logs, IsEmpty());
  EXPECT_EQ(cluster_.GetNode("a").slots(1).unavailable(), "Xid 79, x");
  const std::string first = cluster_.Submit(Spec("gpu"));
  EXPECT_THAT(SlotsOf(first), ElementsAre(0));
  const std::string second = cluster_.Submit(Spec("gpu"));
  EXPECT_EQ(cluster_.State(second), v1::QUEUED);
  EXPECT_EQ(Blocker(second, 1),
            "0 of 2 gpu slots free (job " + first + " rank 0); GPU 1: Xid 79, x");
  ReportConditions("a", {});
  EXPECT_THAT(SlotsOf(second), ElementsAre(1));
}

TEST_F(Slots, HelloReportsUnhealthySlots) {
  v1::Hello hello = HelloOf("a", 1);
  hello.mutable_slots(0)->set_unavailable("lost");
  cluster_.Open(hello);
  const std::string job = cluster_.Submit(Spec("gpu"));
  EXPECT_EQ(cluster_.State(job), v1::QUEUED);
  cluster_.CloseStream("a");
  cluster_.Open(HelloOf("a", 1));
  EXPECT_EQ(cluster_.State(job), v1::STARTING);
}

TEST_F(Slots, AllDevicesMeansHealthyDevices) {
  cluster_.Open(HelloOf("a", 3));
  ReportConditions("a", {{1, "lost"}});
  v1::JobSpec spec = Spec("gpu");
  spec.mutable_resources()->set_devices_per_rank("all");
  EXPECT_THAT(SlotsOf(cluster_.Submit(spec)), ElementsAre(0, 2));
}

TEST_F(Slots, JobForAllDevicesWaitsForReturningOnes) {
  cluster_.Open(HelloOf("a", 2));
  ReportConditions("a", {{1, "memory", /*returning=*/true}});
  v1::JobSpec spec = Spec("gpu");
  spec.mutable_resources()->set_devices_per_rank("all");
  const std::string job = cluster_.Submit(spec);
  EXPECT_EQ(Blocker(job, 1), "1 of 2 gpu slots free; GPU 1: memory");
  ReportConditions("a", {});
  EXPECT_THAT(SlotsOf(job), ElementsAre(0, 1));
}

TEST_F(Slots, JobGetsEventAboutItsUnhealthyDevice) {
  cluster_.Open(HelloOf("a", 2));
  const std::string job = cluster_.Submit(Spec("gpu", 2));
  cluster_.BringUp(job);
  ReportConditions("a", {{0, "x", /*returning=*/true}});
  EXPECT_THAT(cluster_.EventTypes(job), Not(Contains(events::kDeviceUnhealthy)));
  ReportConditions("a", {{0, "memory held by pid 7"}, {1, "lost"}});
  const auto history = *cluster_.core().ListEvents(JobId(job), 0);
  EXPECT_EQ(history.back().type(), events::kDeviceUnhealthy);
  EXPECT_EQ(history.back().message(), "rank 1 runs on GPU 1 (GPU-1) of a: lost");
  EXPECT_EQ(cluster_.State(job), v1::RUNNING);
}

TEST_F(Slots, RestartWaitsForReleasedMemory) {
  cluster_.Open(HelloOf("a", 1));
  v1::JobSpec spec = Spec("gpu");
  spec.mutable_restart()->set_max(1);
  const std::string job = cluster_.Submit(spec);
  cluster_.BringUp(job);
  // Reported in this order, so that the slot is never free in between.
  ReportConditions("a", {{0, "memory", /*returning=*/true}});
  cluster_.ReportExit("a", job, 0, ExitWith(1));
  EXPECT_EQ(cluster_.State(job), v1::QUEUED);
  ReportConditions("a", {});
  EXPECT_EQ(cluster_.State(job), v1::STARTING);
  EXPECT_EQ(cluster_.Get(job).restarts(), 1u);
}

// Two workers of one machine that may offer the same GPUs.
class SharedDevices : public Slots {
 protected:
  // Opens a node with the GPUs of these indices.
  void Open(const std::string& node, const std::vector<uint32_t>& gpus) {
    v1::Hello hello = HelloOf(node, static_cast<uint32_t>(gpus.size()));
    for (size_t i = 0; i < gpus.size(); ++i) {
      v1::Slot& slot = *hello.mutable_slots(static_cast<int>(i));
      slot.set_uuid("GPU-" + std::to_string(gpus[i]));
      slot.mutable_device()->set_index(gpus[i]);
    }
    cluster_.Open(hello);
  }
  static v1::JobSpec TwoNodes(bool share_device = false) {
    v1::JobSpec spec = MakeCommandSpec(2);
    spec.mutable_resources()->set_device("gpu");
    spec.mutable_resources()->set_share_device(share_device);
    return spec;
  }
};

TEST_F(SharedDevices, RefusesJobThatCouldOnlyShare) {
  Open("a", {0});
  Open("b", {0});
  const v1::Job job = cluster_.Get(cluster_.Submit(TwoNodes()));
  EXPECT_EQ(job.state(), v1::FAILED);
  EXPECT_EQ(job.reason(), reasons::kDeviceShared);
  EXPECT_EQ(job.message(),
            "rank 0 (node a) and rank 1 (node b) would be on the same GPU, GPU 0 (GPU-0) of b, and "
            "there are not enough other GPUs; set resources.share_device: true to allow it");
  EXPECT_EQ(job.exit_code(), 1);
  EXPECT_EQ(job.generation(), 0u);
  // The refused job does not block others.
  EXPECT_EQ(cluster_.State(cluster_.Submit(Spec("gpu"))), v1::STARTING);
}

TEST_F(SharedDevices, PlacesSharingJobWhenAllowed) {
  Open("a", {0});
  Open("b", {0});
  const std::string job = cluster_.Submit(TwoNodes(/*share_device=*/true));
  EXPECT_EQ(cluster_.State(job), v1::STARTING);
  EXPECT_EQ(cluster_.Get(job).ranks_size(), 2);
}

TEST_F(SharedDevices, PrefersUnsharedDevices) {
  Open("a", {0, 1});
  Open("b", {0});
  const std::string first = cluster_.Submit(TwoNodes());
  EXPECT_THAT(SlotsOf(first, 0), ElementsAre(1));
  EXPECT_THAT(SlotsOf(first, 1), ElementsAre(0));
}

TEST_F(SharedDevices, NodesOfferingSameDeviceGetDifferentOnes) {
  Open("a", {0, 1});
  Open("b", {1, 0});
  const std::string job = cluster_.Submit(TwoNodes());
  EXPECT_THAT(SlotsOf(job, 0), ElementsAre(0));
  EXPECT_THAT(SlotsOf(job, 1), ElementsAre(0));  // GPU 1
}

TEST_F(SharedDevices, FallsBackToOtherKinds) {
  for (const char* node : {"a", "b"}) cluster_.Open(HelloOf(node, 1, /*cpus=*/1));
  v1::JobSpec spec = TwoNodes();
  spec.mutable_resources()->set_device("auto");
  const std::string job = cluster_.Submit(spec);
  EXPECT_THAT(SlotsOf(job, 0), ElementsAre(1));
  EXPECT_THAT(SlotsOf(job, 1), ElementsAre(1));
}

TEST_F(SharedDevices, JobWaitsForOccupiedDevices) {
  Open("a", {1, 0});
  Open("b", {0});
  v1::JobSpec on_a = Spec("gpu");
  on_a.mutable_resources()->add_exclude_nodes("b");
  const std::string other = cluster_.Submit(on_a);
  EXPECT_THAT(SlotsOf(other), ElementsAre(0));  // GPU 1
  const std::string job = cluster_.Submit(TwoNodes());
  EXPECT_EQ(cluster_.State(job), v1::QUEUED);
  EXPECT_EQ(Blocker(job, 0), "needs 2 nodes with 1 free gpu slot; 2 available");
  EXPECT_EQ(Blocker(job, 1),
            "rank 0 (node a) and rank 1 (node b) would be on the same GPU, GPU 0 (GPU-0) of b");
  cluster_.BringUp(other);
  cluster_.ExitAll(other, ExitWith(0));
  EXPECT_EQ(cluster_.State(job), v1::STARTING);
}

TEST_F(SharedDevices, RestartedCoordinatorWaitsForAllNodesBeforeRefusing) {
  Open("a", {0});
  Open("b", {0});
  Open("c", {1});
  ReportConditions("c", {{0, "lost"}});
  const std::string job = cluster_.Submit(TwoNodes());
  EXPECT_EQ(cluster_.State(job), v1::QUEUED);
  cluster_.Restart();
  Open("a", {0});
  Open("b", {0});
  EXPECT_EQ(cluster_.State(job), v1::QUEUED);
  cluster_.Run(Harness::DefaultOptions().lease / 2, {"a", "b"});
  EXPECT_EQ(cluster_.State(job), v1::QUEUED);
  cluster_.Run(Harness::DefaultOptions().lease, {"a", "b"});
  EXPECT_EQ(cluster_.State(job), v1::FAILED);
}

TEST_F(SharedDevices, RefusesRestartThatCouldOnlyShare) {
  Open("a", {0});
  Open("b", {1});
  v1::JobSpec spec = TwoNodes();
  spec.mutable_restart()->set_max(3);
  const std::string job = cluster_.Submit(spec);
  cluster_.BringUp(job);
  // The other GPU is removed from the machine.
  cluster_.CloseStream("b");
  Open("b", {0});
  cluster_.ExitAll(job, ExitWith(1));
  EXPECT_EQ(cluster_.State(job), v1::FAILED);
  EXPECT_EQ(cluster_.Get(job).reason(), reasons::kDeviceShared);
}

// Topology as reported by the worker: bridges between GPUs 0 and 1, and 2 and 3.
TEST_F(Slots, JobGetsGpusCloseToEachOther) {
  v1::Hello hello = HelloOf("a", 4);
  for (uint32_t i = 0; i < 4; ++i) {
    v1::DeviceLink& bridge =
        *hello.mutable_slots(static_cast<int>(i))->mutable_device()->add_links();
    bridge.set_index(i ^ 1);
    bridge.set_nvlinks(4);
  }
  cluster_.Open(hello);
  EXPECT_THAT(SlotsOf(cluster_.Submit(Spec("gpu"))), ElementsAre(0));
  const std::string pair = cluster_.Submit(Spec("gpu", 2));
  EXPECT_THAT(SlotsOf(pair, 0), ElementsAre(2));
  EXPECT_THAT(SlotsOf(pair, 1), ElementsAre(3));
}

}  // namespace
}  // namespace muster::core
