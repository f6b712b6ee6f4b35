#include "coordinator/core/goodput/time_account.h"

#include <map>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/time/proto_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

class TimeAccountTest : public ::testing::Test {
 protected:
  void Pass(double seconds) {
    const absl::Duration passed = absl::Seconds(seconds);
    now_ = {now_.steady + passed, now_.wall + passed};
  }
  void Enter(v1::TimeCause activity) { account_.Enter(activity, now_); }
  void Step(uint64_t step, double checkpoint_stall = 0) {
    account_.ReportStep(step, absl::Seconds(checkpoint_stall), now_);
  }
  // Starts a generation on two slots, which trains after 2 s.
  void Start() {
    account_.BeginGeneration(2, now_);
    Enter(v1::TIME_STARTING);
    Pass(2);
    Enter(v1::TIME_PRODUCTIVE);
  }
  void Fail(double stopping_seconds, const std::optional<std::string>& lost_node = {}) {
    Enter(v1::TIME_RECOVERY);
    Pass(stopping_seconds);
    account_.EndGeneration(lost_node, now_);
  }
  // Wall seconds by cause, or by the name of the node.
  std::map<std::string, double> Seconds() const {
    std::map<std::string, double> seconds;
    const v1::Goodput view = account_.View(now_);
    for (const v1::Goodput::Cause& cause : view.causes()) {
      seconds[cause.node().empty() ? cause.cause() : cause.node()] =
          absl::ToDoubleSeconds(FromProto(cause.wall_time()));
    }
    return seconds;
  }

  Time now_{SteadyTime(absl::Hours(1)), absl::FromUnixSeconds(1'700'000'000)};
  TimeAccount account_{/*counts_steps=*/true, absl::ZeroDuration(), now_};
};

TEST_F(TimeAccountTest, ChargesEachActivity) {
  Pass(1);
  Enter(v1::TIME_HELD);
  Pass(2);
  Enter(v1::TIME_QUEUED);
  Pass(3);
  account_.BeginGeneration(4, now_);
  Enter(v1::TIME_STARTING);
  Pass(4);
  Enter(v1::TIME_PREPARING_DATA);
  Pass(5);
  Enter(v1::TIME_STARTING);
  Pass(1);
  Enter(v1::TIME_PRODUCTIVE);
  Pass(60);
  Step(10);
  Enter(v1::TIME_EVALUATING);
  Pass(7);
  Enter(v1::TIME_CHECKPOINT_STALL);
  Pass(2);
  Enter(v1::TIME_STOPPING);
  Pass(0.5);
  account_.EndGeneration(std::nullopt, now_);
  account_.Close(now_);
  Pass(1000);
  EXPECT_THAT(Seconds(), UnorderedElementsAre(Pair("queued", 4), Pair("held", 2),
                                              Pair("starting", 5), Pair("preparing_data", 5),
                                              Pair("productive", 60), Pair("evaluating", 7),
                                              Pair("checkpoint_stall", 2), Pair("stopping", 0.5)));
  const v1::Goodput view = account_.View(now_);
  EXPECT_EQ(FromProto(view.wall_time()), absl::Seconds(85.5));
  EXPECT_EQ(FromProto(view.slots_held_time()), absl::Seconds(79.5));
  EXPECT_DOUBLE_EQ(view.goodput_ratio(), 60 / 79.5);
  EXPECT_EQ(view.current_cause(), "");
  EXPECT_DOUBLE_EQ(view.causes(0).slot_seconds(), 0);    // queued
  EXPECT_DOUBLE_EQ(view.causes(4).slot_seconds(), 240);  // productive
}

TEST_F(TimeAccountTest, CountsTimeOfCurrentCause) {
  Pass(5);
  EXPECT_THAT(Seconds(), ElementsAre(Pair("queued", 5)));
  EXPECT_EQ(account_.View(now_).current_cause(), "queued");
  Start();
  Step(3);
  Pass(4);
  EXPECT_THAT(Seconds(),
              ElementsAre(Pair("productive", 4), Pair("queued", 5), Pair("starting", 2)));
}

// The step that the failure interrupted counts as part of the recovery: it is done once, later.
TEST_F(TimeAccountTest, FailureTakesBackTheUnfinishedStep) {
  Start();
  Pass(20);
  Step(10);
  Pass(3);
  Fail(1);
  Pass(5);  // waits for slots
  Start();
  Pass(4);
  EXPECT_EQ(account_.View(now_).current_cause(), "recovery");
  Step(6);  // continued from step 5
  Pass(8);
  EXPECT_EQ(account_.View(now_).current_cause(), "redone");
  Step(10);
  EXPECT_EQ(account_.View(now_).current_cause(), "productive");
  Pass(2);
  Step(11);
  EXPECT_THAT(Seconds(), ElementsAre(Pair("productive", 22), Pair("recovery", 3 + 1 + 5 + 2 + 4),
                                     Pair("redone", 8), Pair("starting", 2)));
}

TEST_F(TimeAccountTest, LossOfNodeTakesBackTheStartToo) {
  Start();
  Pass(3);
  Fail(1, "node-1");
  Start();
  Pass(4);
  Step(1);
  Pass(5);
  Step(2);
  Pass(6);
  Fail(1, "node-2");
  Pass(7);
  EXPECT_THAT(Seconds(), ElementsAre(Pair("node-1", 2 + 3 + 1 + 2 + 4), Pair("node-2", 6 + 1 + 7),
                                     Pair("productive", 5)));
  EXPECT_EQ(account_.View(now_).current_cause(), "lost_to_node");
}

TEST_F(TimeAccountTest, ReportMayCoverRedoneAndNewSteps) {
  Start();
  Step(10);
  Fail(0);
  Start();
  Step(6);
  Pass(10);
  Step(14);  // 4 of these 8 steps were done before
  Pass(1);
  Step(15);
  EXPECT_THAT(Seconds(), ElementsAre(Pair("productive", 6), Pair("recovery", 2), Pair("redone", 5),
                                     Pair("starting", 2)));
}

TEST_F(TimeAccountTest, RequeueIsChargedUntilNextStepExceptInTheQueue) {
  Start();
  Pass(5);
  Step(1);
  Enter(v1::TIME_REQUEUE);
  Pass(3);
  account_.EndGeneration(std::nullopt, now_);
  Pass(100);
  Start();
  Pass(4);
  Step(2);
  Pass(6);
  Step(3);
  EXPECT_THAT(Seconds(), ElementsAre(Pair("productive", 11), Pair("queued", 100),
                                     Pair("requeue", 3 + 2 + 4), Pair("starting", 2)));
}

TEST_F(TimeAccountTest, GenerationWithoutStepLeftEndsRecovery) {
  Start();
  Pass(5);
  Step(10);
  Fail(1);
  Start();
  Enter(v1::TIME_EVALUATING);
  Pass(3);
  EXPECT_THAT(Seconds(), ElementsAre(Pair("evaluating", 3), Pair("productive", 5),
                                     Pair("recovery", 1 + 2), Pair("starting", 2)));
}

TEST_F(TimeAccountTest, MovesReportedCheckpointStallOutOfProductiveTime) {
  Start();
  Pass(10);
  Step(1, /*checkpoint_stall=*/1);
  Pass(10);
  Step(2, 1);
  // The account noticed the phase of this stop.
  Enter(v1::TIME_CHECKPOINT_STALL);
  Pass(2);
  Enter(v1::TIME_PRODUCTIVE);
  Pass(10);
  Step(3, 3.5);
  EXPECT_THAT(Seconds(), ElementsAre(Pair("checkpoint_stall", 3.5), Pair("productive", 28.5),
                                     Pair("starting", 2)));
  // A wrong report cannot exceed the time that has passed.
  Pass(1);
  Step(4, 1e30);
  EXPECT_THAT(Seconds(), ElementsAre(Pair("checkpoint_stall", 4.5), Pair("productive", 28.5),
                                     Pair("starting", 2)));
}

TEST_F(TimeAccountTest, ProgramWithoutStepsIsProductiveWhileItRuns) {
  account_ = TimeAccount(/*counts_steps=*/false, absl::ZeroDuration(), now_);
  Start();
  Pass(50);
  EXPECT_EQ(account_.CertainlyPending(now_).Of(v1::TIME_PRODUCTIVE).slot_time, absl::Seconds(100));
  Fail(1, "node-1");
  Start();
  EXPECT_EQ(account_.View(now_).current_cause(), "productive");
  Pass(5);
  EXPECT_THAT(Seconds(),
              ElementsAre(Pair("node-1", 1 + 2), Pair("productive", 55), Pair("starting", 2)));
}

TEST_F(TimeAccountTest, HangTakesBackTheTimeSinceTheLastProgress) {
  account_ = TimeAccount(/*counts_steps=*/false, absl::ZeroDuration(), now_);
  Start();
  Pass(50);
  account_.FindHang(now_.steady - absl::Seconds(30), now_);
  Enter(v1::TIME_HUNG);
  Pass(10);
  EXPECT_THAT(Seconds(),
              ElementsAre(Pair("hung", 40), Pair("productive", 20), Pair("starting", 2)));
  Enter(v1::TIME_PRODUCTIVE);
  Pass(5);
  EXPECT_THAT(Seconds(),
              ElementsAre(Pair("hung", 40), Pair("productive", 25), Pair("starting", 2)));
  // More silence than there are productive seconds.
  account_.FindHang(now_.steady - absl::Hours(1), now_);
  Enter(v1::TIME_HUNG);
  Fail(1, std::nullopt);
  EXPECT_THAT(Seconds(), ElementsAre(Pair("hung", 45), Pair("productive", 20), Pair("recovery", 1),
                                     Pair("starting", 2)));
}

TEST_F(TimeAccountTest, HungStepStaysHung) {
  Start();
  Pass(10);
  Step(1);
  Pass(40);
  account_.FindHang(now_.steady - absl::Seconds(40), now_);
  Enter(v1::TIME_HUNG);
  Pass(5);
  Enter(v1::TIME_PRODUCTIVE);
  Pass(1);
  Step(2);
  EXPECT_THAT(Seconds(),
              ElementsAre(Pair("hung", 45), Pair("productive", 11), Pair("starting", 2)));
}

TEST_F(TimeAccountTest, ReturnsTimeOfGenerationAndSettledTimeOnce) {
  Pass(9);
  Start();
  Pass(5);
  Step(1);
  Pass(1);
  const Ledger settled = account_.TakeSettled();
  EXPECT_EQ(settled.Total().wall_time, absl::Seconds(16));
  EXPECT_EQ(account_.OfGeneration(now_).Total().slot_time, absl::Seconds(16));
  EXPECT_EQ(account_.EndGeneration(std::nullopt, now_).Total().slot_time, absl::Seconds(16));
  EXPECT_EQ(account_.TakeSettled().Total().wall_time, absl::Seconds(1));
}

TEST_F(TimeAccountTest, RecordIsDueSoonOnlyAfterChangeOfCause) {
  account_.MarkWritten(now_.steady);
  Pass(60);
  EXPECT_FALSE(account_.IsWriteDue(now_.steady));
  Enter(v1::TIME_HELD);
  EXPECT_TRUE(account_.IsWriteDue(now_.steady));
  account_.MarkWritten(now_.steady);
  Enter(v1::TIME_QUEUED);
  EXPECT_FALSE(account_.IsWriteDue(now_.steady));
  Pass(10);
  EXPECT_TRUE(account_.IsWriteDue(now_.steady));
  account_.MarkWritten(now_.steady);
  Pass(300);
  EXPECT_TRUE(account_.IsWriteDue(now_.steady));
}

TEST_F(TimeAccountTest, SettingTheWallClockChargesNothing) {
  Pass(5);
  now_.wall += absl::Hours(3);
  EXPECT_THAT(Seconds(), ElementsAre(Pair("queued", 5)));
}

TEST_F(TimeAccountTest, TimeBeforeTheAccountIsUnrecorded) {
  account_ = TimeAccount(true, absl::Minutes(2), now_);
  Pass(5);
  EXPECT_THAT(Seconds(), ElementsAre(Pair("queued", 5), Pair("unrecorded", 120)));
}

TEST_F(TimeAccountTest, AccountOfEndedJobStaysEmpty) {
  account_ = TimeAccount();
  Enter(v1::TIME_QUEUED);
  Step(4);
  Pass(5);
  account_.Close(now_);
  EXPECT_EQ(account_.View(now_).causes_size(), 0);
}

// Goal: whatever happens in whatever order, each moment is charged once. Method: random changes,
// with a restart of the coordinator now and then; after each, the sums are compared with clocks of
// the test's own, and settled times may only grow.
TEST_F(TimeAccountTest, CausesAddUpToWallTimeWhateverHappens) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&random](uint32_t limit) {
      return static_cast<uint32_t>(random() % limit);
    };
    const bool counts_steps = below(3) != 0;
    account_ = TimeAccount(counts_steps, absl::ZeroDuration(), now_);
    absl::Duration wall;
    absl::Duration held;
    absl::Duration slot_time;
    absl::Duration of_generations;
    Ledger taken;
    uint32_t slots = 0;
    for (int i = 0; i < 200; ++i) {
      const absl::Duration passed = absl::Milliseconds(below(4) == 0 ? 0 : below(5000));
      now_ = {now_.steady + passed, now_.wall + passed};
      wall += passed;
      if (slots > 0) held += passed;
      slot_time += slots * passed;
      switch (below(8)) {
        case 0:
          if (slots == 0) {
            slots = 1 + below(8);
            account_.BeginGeneration(slots, now_);
          }
          break;
        case 1:
          if (slots > 0) {
            of_generations +=
                account_
                    .EndGeneration(below(2) == 0 ? std::nullopt
                                                 : std::make_optional(absl::StrCat("n", below(3))),
                                   now_)
                    .Total()
                    .slot_time;
            slots = 0;
          }
          break;
        case 2:
        case 3:
        case 4:
          if (slots > 0) Step(below(20), below(10));
          break;
        case 5: {
          // The clock goes on while no coordinator runs.
          const v1::TimeAccountRecord record = account_.ToRecord();
          account_ = TimeAccount(record, counts_steps);
          account_.Resume(now_);
          break;
        }
        default:
          if (slots > 0) {
            constexpr v1::TimeCause kActivities[] = {
                v1::TIME_STARTING,   v1::TIME_PREPARING_DATA, v1::TIME_PRODUCTIVE,
                v1::TIME_PRODUCTIVE, v1::TIME_EVALUATING,     v1::TIME_CHECKPOINT_STALL};
            Enter(kActivities[below(6)]);
            if (below(4) == 0) Enter(v1::TIME_RECOVERY);
            if (below(8) == 0) Enter(v1::TIME_REQUEUE);
            if (below(8) == 0) Enter(v1::TIME_STOPPING);
          } else {
            Enter(below(2) == 0 ? v1::TIME_QUEUED : v1::TIME_HELD);
          }
      }
      const v1::Goodput view = account_.View(now_);
      absl::Duration sum;
      double slot_seconds = 0;
      for (const v1::Goodput::Cause& cause : view.causes()) {
        EXPECT_GT(FromProto(cause.wall_time()), absl::ZeroDuration());
        sum += FromProto(cause.wall_time());
        slot_seconds += cause.slot_seconds();
      }
      // Records and views have nanoseconds.
      const absl::Duration rounding = absl::Microseconds(1);
      ASSERT_LE(absl::AbsDuration(sum - wall), rounding) << "seed " << seed << ", change " << i;
      ASSERT_LE(absl::AbsDuration(FromProto(view.wall_time()) - wall), rounding);
      ASSERT_LE(absl::AbsDuration(FromProto(view.slots_held_time()) - held), rounding);
      ASSERT_NEAR(slot_seconds, absl::ToDoubleSeconds(slot_time), 1e-4) << "seed " << seed;
      if (slots > 0) {
        ASSERT_LE(absl::AbsDuration(of_generations + account_.OfGeneration(now_).Total().slot_time -
                                    slot_time),
                  absl::Microseconds(10));
      }
      const Ledger settled = account_.TakeSettled();
      for (const Ledger::Entry& entry : settled.entries()) {
        ASSERT_GT(entry.wall_time, absl::ZeroDuration());
      }
      taken.Add(settled);
      ASSERT_LE(taken.Total().wall_time, wall + rounding);
    }
    account_.Close(now_);
    taken.Add(account_.TakeSettled());
    ASSERT_LE(absl::AbsDuration(taken.Total().wall_time - wall), absl::Microseconds(10));
  }
}

}  // namespace
}  // namespace muster::core
