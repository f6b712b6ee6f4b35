#include "coordinator/core/scheduler/plan.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/core/scheduler/plan_world.h"
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

TEST_F(PlanTest, OverdueJobIsNotPreempted) {
  MakeCluster({1});
  const JobId blocker = Submit({.job_class = JobClass::kCritical});
  const JobId low = Submit({.job_class = JobClass::kLow});
  world_->Advance(absl::Hours(4 * 24));
  End(blocker);
  ASSERT_TRUE(IsRunning(low));
  Submit({.job_class = JobClass::kCritical});
  EXPECT_THAT(world_->plan().preemptions, IsEmpty());
}

// The low job is ahead by age, but the slot is freed for the other one.
TEST_F(PlanTest, NoJobIsPreemptedInVain) {
  MakeCluster({1, 1});
  const JobId running = Submit({.job_class = JobClass::kLow});
  const JobId normal = Submit({});
  const JobId aged = Submit({.job_class = JobClass::kLow, .limit = absl::Hours(1)});
  world_->Advance(absl::Hours(4 * 24));
  ASSERT_EQ(world_->queue().Find(aged)->tier, kOverdueTier);
  const JobId urgent = Submit({.job_class = JobClass::kCritical});
  world_->Advance(world_->grace);
  EXPECT_TRUE(IsRunning(urgent));
  EXPECT_FALSE(IsRunning(aged));
  EXPECT_EQ(world_->job(running).preemptions + world_->job(normal).preemptions, 1u);
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
