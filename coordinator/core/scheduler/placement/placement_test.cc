#include "coordinator/core/scheduler/placement/placement.h"

#include "coordinator/core/scheduler/explain.h"
#include "coordinator/core/scheduler/scheduler.h"
#include "coordinator/core/testing/parts.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using testing::Advance;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MakeContext;
using testing::MakeSession;
using testing::Open;
using ::testing::SizeIs;
using testing::Start;
using testing::Submit;

v1::JobSpec MakeSpec(uint32_t nodes, const std::string& device = "cpu", int32_t priority = 0) {
  v1::JobSpec spec;
  spec.set_priority(priority);
  spec.mutable_resources()->mutable_nodes()->set_min(nodes);
  spec.mutable_resources()->mutable_nodes()->set_max(nodes);
  spec.mutable_resources()->set_ranks_per_node(1);
  spec.mutable_resources()->set_device(device);
  return spec;
}

class PlacementTest : public ::testing::Test {
 protected:
  Decision DecideOn(const v1::JobSpec& spec) {
    return core::Decide(spec.resources(), nodes_.all(), context_.options.lease,
                        context_.now.steady);
  }
  // A node with one GPU, which all nodes of the machine offer.
  void OpenWithGpu(uint64_t session, const std::string& node) {
    SessionOpened opened = MakeSession(session, node);
    opened.hello.mutable_slots(0)->set_kind("gpu");
    opened.hello.mutable_slots(0)->set_uuid("GPU-0");
    Open(sessions_, opened);
  }
  Context context_ = MakeContext();
  Nodes all_nodes_{context_};
  NodeTable& nodes_ = all_nodes_.table;
  NodeSessions& sessions_ = all_nodes_.sessions;
  Jobs jobs_{context_};
  Scheduler scheduler_{context_};

  void Decide() {
    scheduler_.TakeCapacityChange(nodes_);
    scheduler_.Decide([](const StartRequest&) { return StartResult(); });
  }
};

TEST_F(PlacementTest, PlacesJobThatFits) {
  Open(sessions_, MakeSession(1, "b"));
  Open(sessions_, MakeSession(2, "a"));
  const Decision decision = DecideOn(MakeSpec(2));
  ASSERT_THAT(decision.placements, SizeIs(2));
  EXPECT_EQ(decision.placements[0].node(), "a");
  EXPECT_EQ(decision.placements[1].ranks(0).rank(), 1u);
}

TEST_F(PlacementTest, JobThatDoesNotFitWaits) {
  Open(sessions_, MakeSession(1, "a"));
  const Decision decision = DecideOn(MakeSpec(2));
  EXPECT_THAT(decision.placements, IsEmpty());
  EXPECT_THAT(decision.refusal, IsEmpty());
  EXPECT_FALSE(decision.retry_at.has_value());
}

TEST_F(PlacementTest, RefusesRanksThatWouldShareGpu) {
  OpenWithGpu(1, "a");
  OpenWithGpu(2, "b");
  EXPECT_THAT(DecideOn(MakeSpec(2, "gpu")).refusal, HasSubstr("would be on the same GPU"));
  v1::JobSpec sharing = MakeSpec(2, "gpu");
  sharing.mutable_resources()->set_share_device(true);
  EXPECT_THAT(DecideOn(sharing).placements, SizeIs(2));
}

TEST_F(PlacementTest, DoesNotRefuseWhileRecordedNodesMayReconnect) {
  v1::NodeRecord record;
  record.set_name("c");
  sessions_.Restore(record);
  OpenWithGpu(1, "a");
  OpenWithGpu(2, "b");
  const Decision early = DecideOn(MakeSpec(2, "gpu"));
  EXPECT_THAT(early.refusal, IsEmpty());
  ASSERT_EQ(early.retry_at, context_.now.steady + context_.options.lease);
  Advance(context_, context_.options.lease);
  EXPECT_THAT(DecideOn(MakeSpec(2, "gpu")).refusal, HasSubstr("same GPU"));
}

// ------------------------------------------------------------------------------------------------
// Queue.

TEST_F(PlacementTest, QueueOrdersByPriorityThenRestartsThenSubmission) {
  for (const char* id : {"first", "second", "third", "again"}) Submit(jobs_, id, MakeSpec(1));
  Submit(jobs_, "urgent", MakeSpec(1, "cpu", /*priority=*/5));
  jobs_.table.at(JobId("again")).status.set_generation(1);
  for (const char* id : {"third", "again", "second", "urgent", "first"}) {
    scheduler_.Add(jobs_.table.at(JobId(id)));
  }
  EXPECT_THAT(scheduler_.First(10), ElementsAre(JobId("urgent"), JobId("again"), JobId("first"),
                                                JobId("second"), JobId("third")));
  EXPECT_EQ(scheduler_.PositionOf(JobId("first")), 3u);
  scheduler_.Remove(jobs_.table.at(JobId("again")));
  EXPECT_EQ(scheduler_.PositionOf(JobId("first")), 2u);
  EXPECT_EQ(scheduler_.PositionOf(JobId("again")), 0u);
}

TEST_F(PlacementTest, DecisionIsDueWhenCapacityChanges) {
  EXPECT_FALSE(scheduler_.TakeCapacityChange(nodes_)) << "no job is queued";
  scheduler_.Add(Submit(jobs_, "one"));
  EXPECT_TRUE(scheduler_.TakeCapacityChange(nodes_));
  EXPECT_FALSE(scheduler_.TakeCapacityChange(nodes_));
  Open(sessions_, MakeSession(1, "a"));
  EXPECT_TRUE(scheduler_.TakeCapacityChange(nodes_));
  scheduler_.Remove(jobs_.table.at(JobId("one")));
  EXPECT_FALSE(scheduler_.TakeCapacityChange(nodes_));
}

// ------------------------------------------------------------------------------------------------
// Explanations.

TEST_F(PlacementTest, BlockersNameEachNodeThatCannotTakeItsShare) {
  Open(sessions_, MakeSession(1, "a"));
  Open(sessions_, MakeSession(2, "b"));
  nodes_.Occupy(NodeName("a"), {JobId("other"), Generation(1), 4}, {0});
  all_nodes_.health.Cordon(NodeName("b"), "noisy");
  Job& job = Submit(jobs_, "one", MakeSpec(1));
  scheduler_.Add(job);
  Decide();
  const std::vector<v1::WaitedFor> blockers = Blockers(job, scheduler_, nodes_.all(), context_.now);
  ASSERT_THAT(blockers, SizeIs(3));
  EXPECT_EQ(blockers[0].reason(), "needs 1 node with 1 free slot; 0 available");
  EXPECT_EQ(blockers[1].reason(), "0 of 1 slots free (job other rank 4)");
  EXPECT_EQ(blockers[2].node(), "b");
  EXPECT_EQ(blockers[2].reason(), "cordoned: noisy");
  EXPECT_EQ(blockers[2].remedy(), "muster node uncordon b");
}

TEST_F(PlacementTest, EstimatesStartFromTimeLimitOfRunningJob) {
  Open(sessions_, MakeSession(1, "a"));
  v1::JobSpec limited = MakeSpec(1);
  limited.mutable_time_limit()->set_seconds(600);
  Job& running = Submit(jobs_, "running", limited);
  Start(jobs_, running, {"a"});
  nodes_.Occupy(NodeName("a"), {JobId("running"), Generation(1), 0}, {0});
  Job& waiting = Submit(jobs_, "waiting", MakeSpec(1));
  scheduler_.Add(waiting);
  Advance(context_, absl::Seconds(100));
  const auto start = [&](const Job& job) {
    return EstimateOf(job, jobs_.table, scheduler_, nodes_.all(), context_.now).in;
  };
  EXPECT_EQ(start(waiting), absl::Seconds(500));
  EXPECT_EQ(start(running), std::nullopt);
  // The job behind it depends on a job without a time limit.
  Job& behind = Submit(jobs_, "behind", MakeSpec(1));
  scheduler_.Add(behind);
  EXPECT_EQ(start(behind), std::nullopt);
}

}  // namespace
}  // namespace muster::core
