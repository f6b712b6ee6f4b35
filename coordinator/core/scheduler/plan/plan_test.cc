#include "coordinator/core/scheduler/plan/plan.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/core/scheduler/plan/plan_world.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::PlanWorld;
using ::testing::SizeIs;
using Spec = PlanWorld::Spec;

class PlanTest : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_THAT(world_->problems(), IsEmpty()); }
  // A cluster of nodes a, b, c, … with these numbers of slots.
  void MakeCluster(std::vector<uint32_t> slots, SchedulerOptions options = {}) {
    world_.emplace(std::move(options));
    for (size_t i = 0; i < slots.size(); ++i) {
      world_->AddNode(std::string(1, static_cast<char>('a' + i)), slots[i]);
    }
  }
  JobId Submit(const Spec& spec) {
    const JobId id = world_->Submit(spec);
    world_->Decide();
    return id;
  }
  void End(const JobId& id) {
    world_->End(id);
    world_->Decide();
  }
  bool IsRunning(const JobId& id) const { return world_->IsRunning(id); }
  Hindrance HindranceOf(const JobId& id) const { return world_->VerdictOf(id).hindrance; }
  SteadyTime In(absl::Duration time) const { return world_->now() + time; }

  std::optional<PlanWorld> world_;
};

TEST_F(PlanTest, AllRanksStartTogether) {
  MakeCluster({2, 2});
  const JobId small = Submit({.nodes = 1, .slots = 2});
  const JobId large = Submit({.nodes = 2, .slots = 2});
  EXPECT_TRUE(IsRunning(small));
  EXPECT_FALSE(IsRunning(large));
  EXPECT_EQ(HindranceOf(large), Hindrance::kNoSlots);
  End(small);
  EXPECT_TRUE(IsRunning(large));
}

TEST_F(PlanTest, ShortJobsStartBeforeReservationOfLargeJob) {
  MakeCluster({1, 1});
  Submit({.limit = absl::Minutes(10)});
  const JobId large = Submit({.nodes = 2});
  ASSERT_THAT(world_->plan().reservations, SizeIs(1));
  EXPECT_EQ(world_->plan().reservations[0].job, large);
  EXPECT_EQ(world_->plan().reservations[0].from, In(absl::Minutes(10)));
  EXPECT_THAT(world_->plan().reservations[0].nodes, SizeIs(2));
  const JobId unlimited = Submit({});
  EXPECT_EQ(HindranceOf(unlimited), Hindrance::kReserved);
  const JobId too_long = Submit({.limit = absl::Minutes(11)});
  EXPECT_EQ(HindranceOf(too_long), Hindrance::kReserved);
  const JobId fits = Submit({.limit = absl::Minutes(9)});
  EXPECT_EQ(HindranceOf(unlimited), Hindrance::kNoSlots) << "the last slot is in use";
  EXPECT_TRUE(IsRunning(fits));
  world_->Advance(absl::Minutes(10));
  EXPECT_TRUE(IsRunning(large));
}

TEST_F(PlanTest, ReservationKeepsNoMoreThanItNeeds) {
  MakeCluster({4, 4, 4});
  for (int i = 0; i < 2; ++i) Submit({.slots = 3, .limit = absl::Minutes(10)});
  const JobId on_c = Submit({.slots = 2});
  EXPECT_THAT(world_->NodesOf(on_c), SizeIs(1));
  const JobId large = Submit({.nodes = 2, .slots = 3});
  EXPECT_EQ(world_->plan().FindReservation(large)->from, In(absl::Minutes(10)));
  EXPECT_TRUE(IsRunning(Submit({}))) << "the fourth slot of a node is not reserved";
  EXPECT_TRUE(IsRunning(Submit({.slots = 2}))) << "the rest of node c is not reserved";
}

// Without time limits, the nodes that are closest to being free are kept.
TEST_F(PlanTest, ReservationWithoutKnownEndKeepsNodes) {
  MakeCluster({2, 2, 2});
  const JobId full = Submit({.slots = 2});
  const JobId half = Submit({.slots = 1});
  const JobId other = Submit({.slots = 2});
  const JobId large = Submit({.nodes = 2, .slots = 2});
  const Reservation& kept = *world_->plan().FindReservation(large);
  EXPECT_EQ(kept.from, SteadyTime::Infinite());
  EXPECT_THAT(kept.nodes, SizeIs(2));
  const JobId small = Submit({.limit = absl::Seconds(1)});
  EXPECT_EQ(HindranceOf(small), Hindrance::kReserved);
  End(other);
  End(half);
  EXPECT_TRUE(IsRunning(large));
  EXPECT_TRUE(IsRunning(full));
}

TEST_F(PlanTest, LimitOfOwnerDelaysNoOther) {
  SchedulerOptions options;
  options.limits["alice"].running_slots = 2;
  MakeCluster({4}, options);
  const JobId first = Submit({.owner = "alice", .slots = 2});
  const JobId second = Submit({.owner = "alice", .slots = 2});
  const JobId other = Submit({.owner = "bob", .slots = 2});
  EXPECT_TRUE(IsRunning(first));
  EXPECT_EQ(HindranceOf(second), Hindrance::kOwnerLimit);
  EXPECT_THAT(world_->plan().reservations, IsEmpty());
  EXPECT_TRUE(IsRunning(other));
  End(first);
  EXPECT_TRUE(IsRunning(second));
}

TEST_F(PlanTest, UnplaceableJobDelaysNoOther) {
  MakeCluster({1, 1});
  const JobId large = Submit({.nodes = 3});
  EXPECT_TRUE(IsRunning(Submit({})));
  EXPECT_TRUE(IsRunning(Submit({})));
  EXPECT_EQ(HindranceOf(large), Hindrance::kUnplaceable);
}

TEST_F(PlanTest, HigherClassTakesPlaceOfLowestThatStartedLast) {
  MakeCluster({1, 1, 1});
  const JobId normal = Submit({});
  world_->Advance(absl::Seconds(1));
  const JobId older = Submit({.job_class = JobClass::kLow});
  world_->Advance(absl::Seconds(1));
  const JobId newer = Submit({.job_class = JobClass::kLow});
  world_->Advance(absl::Seconds(1));
  const JobId urgent = Submit({.job_class = JobClass::kHigh});
  ASSERT_THAT(world_->plan().preemptions, SizeIs(1));
  EXPECT_THAT(world_->plan().preemptions[0].victims, ElementsAre(newer));
  EXPECT_TRUE(world_->plan().FindReservation(urgent)->after_preemption);
  world_->Decide();
  EXPECT_THAT(world_->plan().preemptions, IsEmpty()) << "the slot is being freed already";
  EXPECT_EQ(world_->plan().FindReservation(urgent)->from, In(world_->grace));
  EXPECT_FALSE(IsRunning(Submit({.job_class = JobClass::kLow})));
  world_->Advance(world_->grace);
  EXPECT_TRUE(IsRunning(urgent));
  EXPECT_EQ(world_->job(newer).state, PlanWorld::State::kQueued);
  EXPECT_TRUE(IsRunning(older));
  EXPECT_TRUE(IsRunning(normal));
}

TEST_F(PlanTest, SmallestSetOfJobsIsPreempted) {
  MakeCluster({4, 4});
  for (int i = 0; i < 4; ++i) Submit({.job_class = JobClass::kLow});
  const JobId whole = Submit({.job_class = JobClass::kLow, .slots = 4});
  ASSERT_TRUE(IsRunning(whole));
  Submit({.job_class = JobClass::kCritical, .slots = 4});
  ASSERT_THAT(world_->plan().preemptions, SizeIs(1));
  EXPECT_THAT(world_->plan().preemptions[0].victims, ElementsAre(whole));
}

TEST_F(PlanTest, EqualClassIsNotPreempted) {
  MakeCluster({1});
  Submit({.job_class = JobClass::kHigh});
  Submit({.job_class = JobClass::kHigh});
  EXPECT_THAT(world_->plan().preemptions, IsEmpty());
}

TEST_F(PlanTest, PreemptionThatDoesNotHelpDoesNotHappen) {
  MakeCluster({1, 1});
  Submit({.job_class = JobClass::kLow});
  Submit({.job_class = JobClass::kCritical});
  Submit({.job_class = JobClass::kHigh, .nodes = 2});
  EXPECT_THAT(world_->plan().preemptions, IsEmpty());
}

TEST_F(PlanTest, PreemptedJobPreemptsNoOther) {
  MakeCluster({1, 1});
  const JobId low = Submit({.job_class = JobClass::kLow});
  const JobId normal = Submit({});
  const JobId first = Submit({.job_class = JobClass::kCritical});
  const JobId second = Submit({.job_class = JobClass::kCritical});
  EXPECT_EQ(world_->job(low).preemptions, 1u);
  EXPECT_EQ(world_->job(normal).preemptions, 1u) << "each in a decision of its own";
  world_->Advance(world_->grace);
  EXPECT_TRUE(IsRunning(first));
  EXPECT_TRUE(IsRunning(second));
  End(first);
  EXPECT_TRUE(IsRunning(normal)) << "it is of a higher class than the other";
  const JobId again = Submit({.job_class = JobClass::kHigh});
  EXPECT_EQ(world_->job(normal).preemptions, 2u);
  world_->Advance(world_->grace);
  EXPECT_TRUE(IsRunning(again));
  End(second);
  EXPECT_TRUE(IsRunning(normal));
  EXPECT_FALSE(IsRunning(low));
}

// ------------------------------------------------------------------------------------------------
// overdue jobs

// One slot; a job of class high runs on it for an hour, and many others wait.
class OverdueTest : public PlanTest {
 protected:
  void Saturate(std::vector<uint32_t> slots, SchedulerOptions options = {}) {
    MakeCluster(std::move(slots), options);
    for (int i = 0; i < 100; ++i) {
      world_->Submit({.owner = "busy",
                      .job_class = JobClass::kHigh,
                      .limit = absl::Hours(1),
                      .length = absl::Hours(1)});
    }
    world_->Decide();
  }
  bool IsKeptAsOverdue(const JobId& id) const {
    const Reservation* const kept = world_->plan().FindReservation(id);
    return kept != nullptr && kept->overdue;
  }
};

TEST_F(OverdueTest, LowClassIsNotStarved) {
  Saturate({1});
  const JobId low = Submit({.job_class = JobClass::kLow, .limit = absl::Hours(1)});
  world_->Advance(absl::Hours(24) - absl::Seconds(1));
  EXPECT_FALSE(IsRunning(low) || IsKeptAsOverdue(low));
  world_->Advance(absl::Seconds(1));
  EXPECT_TRUE(IsRunning(low));
}

TEST_F(OverdueTest, ReservationHoldsAgainstJobsAheadThatAreNotCritical) {
  Saturate({1, 1});
  const JobId low = Submit({.job_class = JobClass::kLow, .nodes = 2, .limit = absl::Hours(1)});
  world_->Advance(absl::Minutes(30));
  const JobId shifted = Submit({.owner = "other",
                                .job_class = JobClass::kHigh,
                                .limit = absl::Minutes(90),
                                .length = absl::Minutes(90)});
  world_->Advance(absl::Hours(24) - absl::Minutes(30));
  ASSERT_GT(world_->job(shifted).starts, 0u);
  ASSERT_TRUE(IsKeptAsOverdue(low));
  EXPECT_EQ(HindranceOf(Submit({.job_class = JobClass::kHigh})), Hindrance::kReserved);
  const JobId critical = Submit({.job_class = JobClass::kCritical, .length = absl::Hours(1)});
  EXPECT_TRUE(IsRunning(critical)) << "it waits behind no other class";
  world_->Advance(absl::Hours(1));
  EXPECT_TRUE(IsRunning(low));
}

TEST_F(OverdueTest, OnlyCriticalJobsTakeItsPlace) {
  Saturate({1});
  const JobId low = Submit({.job_class = JobClass::kLow});
  world_->Advance(absl::Hours(24));
  ASSERT_TRUE(IsRunning(low));
  EXPECT_THAT(world_->plan().preemptions, IsEmpty()) << "many jobs of class high wait";
  Submit({.job_class = JobClass::kCritical});
  ASSERT_THAT(world_->plan().preemptions, SizeIs(1));
  EXPECT_THAT(world_->plan().preemptions[0].victims, ElementsAre(low));
}

// One slot is 5 % of 20, so the second has to wait until the first has ended.
TEST_F(OverdueTest, OverdueJobsHaveSmallPartOfSlots) {
  for (const uint32_t percent : {5, 10}) {
    SchedulerOptions options;
    options.overdue_percent = percent;
    Saturate(std::vector<uint32_t>(20, 1), options);
    const Spec hour{.owner = "x", .limit = absl::Hours(1), .length = absl::Hours(1)};
    Spec low = hour;
    low.job_class = JobClass::kLow;
    for (int i = 0; i < 600; ++i) {
      world_->Submit({.owner = "busy",
                      .job_class = JobClass::kHigh,
                      .limit = absl::Hours(1),
                      .length = absl::Hours(1)});
    }
    const JobId first = Submit(low);
    const JobId second = Submit(hour);
    world_->Advance(absl::Hours(24));
    EXPECT_TRUE(IsRunning(first));
    EXPECT_EQ(IsRunning(second), percent == 10);
    world_->Advance(absl::Hours(1));
    EXPECT_EQ(world_->job(second).starts, 1u);
  }
}

// Nobody else keeps the backlog from running, so none of it is overdue, however old it is.
TEST_F(OverdueTest, OwnJobsAheadDoNotAge) {
  MakeCluster({1});
  for (int i = 0; i < 100; ++i) {
    Submit({.owner = "alice", .limit = absl::Hours(48), .length = absl::Hours(48)});
  }
  world_->Advance(absl::Hours(24 * 30 + 1));
  const JobId other = Submit({.owner = "bob", .limit = absl::Hours(1), .length = absl::Hours(1)});
  world_->Advance(absl::Hours(48));
  EXPECT_GT(world_->job(other).starts, 0u);
}

TEST_F(OverdueTest, LimitOfOwnerDoesNotAge) {
  SchedulerOptions options;
  options.limits["alice"].running_slots = 1;
  MakeCluster({2}, options);
  const JobId runs = Submit({.owner = "alice", .job_class = JobClass::kHigh});
  const JobId waits = Submit({.owner = "alice", .job_class = JobClass::kLow});
  Submit({.owner = "bob", .limit = absl::Hours(72), .length = absl::Hours(72)});
  for (int i = 0; i < 10; ++i) Submit({.owner = "bob", .length = absl::Hours(1)});
  world_->Advance(absl::Hours(48));
  End(runs);
  EXPECT_FALSE(IsRunning(waits)) << "it has not waited for others";
}

// ------------------------------------------------------------------------------------------------
// limits

TEST_F(PlanTest, OwnLowerClassMakesRoomWithinLimit) {
  SchedulerOptions options;
  options.limits["alice"].running_slots = 2;
  MakeCluster({2, 2}, options);
  const JobId older = Submit({.owner = "alice", .job_class = JobClass::kLow});
  world_->Advance(absl::Seconds(1));
  const JobId newer = Submit({.owner = "alice", .job_class = JobClass::kLow});
  const JobId others = Submit({.owner = "bob", .job_class = JobClass::kLow});
  const JobId urgent = Submit({.owner = "alice", .job_class = JobClass::kHigh});
  ASSERT_THAT(world_->plan().preemptions, SizeIs(1));
  EXPECT_THAT(world_->plan().preemptions[0].victims, ElementsAre(newer));
  world_->Decide();
  EXPECT_THAT(world_->plan().preemptions, IsEmpty()) << "its slot is being freed already";
  world_->Advance(world_->grace);
  EXPECT_TRUE(IsRunning(urgent) && IsRunning(older) && IsRunning(others));
  EXPECT_EQ(HindranceOf(Submit({.owner = "alice", .job_class = JobClass::kHigh, .slots = 2})),
            Hindrance::kOwnerLimit)
      << "the jobs of its class stay";
  EXPECT_EQ(HindranceOf(Submit({.owner = "alice"})), Hindrance::kNoSlots);
  EXPECT_EQ(world_->job(others).preemptions, 0u);
}

TEST_F(PlanTest, LimitCountsSlotsThatJobTakes) {
  SchedulerOptions options;
  options.default_limits.running_slots = 6;
  MakeCluster({8, 4}, options);
  const JobId all = Submit({.owner = "alice", .all = true});
  EXPECT_THAT(world_->NodesOf(all), ElementsAre("b"));
  const JobId further = Submit({.owner = "alice", .slots = 3});
  EXPECT_EQ(HindranceOf(further), Hindrance::kOwnerLimit);
  world_->Cancel(further);
  EXPECT_EQ(HindranceOf(Submit({.owner = "bob", .all = true})), Hindrance::kOwnerLimit)
      << "only the node with eight slots is free";
  End(all);
  const JobId exclusive = Submit({.owner = "carol", .slots = 2, .exclusive = true});
  EXPECT_EQ(world_->usage().RunningSlots("bob"), 4u);
  EXPECT_FALSE(IsRunning(exclusive)) << "bob's job has the node that is small enough";
}

TEST_F(PlanTest, ElasticJobGetsNoMoreNodesThanLimitAllows) {
  SchedulerOptions options;
  options.default_limits.running_slots = 8;
  MakeCluster({8, 4, 2, 2}, options);
  const JobId elastic = Submit({.most_nodes = 4, .all = true});
  EXPECT_THAT(world_->NodesOf(elastic), ElementsAre("b", "c", "d"));
  End(elastic);
  const JobId regular = Submit({.owner = "bob", .slots = 2, .most_nodes = 4});
  EXPECT_EQ(world_->NodesOf(regular).size(), 4u);
}

TEST_F(PlanTest, ExclusiveJobCountsItsWholeNodes) {
  MakeCluster({8, 8});
  const JobId exclusive = Submit({.owner = "alice", .nodes = 2, .exclusive = true});
  ASSERT_TRUE(IsRunning(exclusive));
  EXPECT_EQ(world_->usage().RunningSlots("alice"), 16u);
}

TEST_F(PlanTest, PreemptionCanBeDisabled) {
  SchedulerOptions options;
  options.preemption = false;
  MakeCluster({1}, options);
  Submit({.job_class = JobClass::kLow});
  const JobId urgent = Submit({.job_class = JobClass::kCritical});
  EXPECT_THAT(world_->plan().preemptions, IsEmpty());
  EXPECT_NE(world_->plan().FindReservation(urgent), nullptr);
}

TEST_F(PlanTest, SeveralReservationsUseDifferentNodes) {
  SchedulerOptions options;
  options.reservations = 2;
  MakeCluster({1, 1, 1, 1}, options);
  for (int i = 1; i <= 4; ++i) Submit({.limit = i * absl::Minutes(10)});
  const JobId first = Submit({.nodes = 2});
  const JobId second = Submit({.nodes = 2, .limit = absl::Hours(1)});
  EXPECT_EQ(world_->plan().FindReservation(first)->from, In(absl::Minutes(20)));
  EXPECT_EQ(world_->plan().FindReservation(second)->from, In(absl::Minutes(40)));
}

TEST_F(PlanTest, ExaminesLimitedNumberOfRequests) {
  SchedulerOptions options;
  options.backfill_depth = 2;
  MakeCluster({4}, options);
  Submit({.slots = 3, .limit = absl::Minutes(1)});
  for (uint32_t slots = 2; slots <= 3; ++slots) {
    EXPECT_EQ(HindranceOf(Submit({.slots = slots})), Hindrance::kNoSlots);
  }
  EXPECT_EQ(HindranceOf(Submit({.limit = absl::Seconds(1)})), Hindrance::kNotExamined);
}

}  // namespace
}  // namespace muster::core
