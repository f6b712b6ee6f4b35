#include "trainer/loop/step_agreement.h"

#include <functional>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/loop/testing.h"

namespace muster::train {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::Le;

constexpr absl::Duration kInterval = absl::Milliseconds(250);

class StepAgreementTest : public ::testing::Test {
 protected:
  // Runs `body` for each rank, on a thread of its own.
  static void OnRanks(uint32_t size,
                      const std::function<void(uint32_t rank, StepAgreement&)>& body) {
    const auto world = MakeLoopbackGroup(size);
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        StepAgreement agreement(world[rank].get());
        agreement.Start(SteadyTime());
        body(rank, agreement);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  // Steps at which rank `observer` of two agreed, if the steps of the ranks take these times.
  static std::vector<int> AgreedSteps(uint32_t observer, int steps, absl::Duration time_of_rank_0,
                                      absl::Duration time_of_rank_1) {
    std::vector<int> agreed;
    OnRanks(2, [&](uint32_t rank, StepAgreement& agreement) {
      SteadyTime now;
      for (int step = 1; step <= steps; ++step) {
        now = now + (rank == 0 ? time_of_rank_0 : time_of_rank_1);
        if (!agreement.StepDone()) continue;
        EXPECT_TRUE(agreement.Agree({}, now).ok());
        if (rank == observer) agreed.push_back(step);
      }
    });
    return agreed;
  }
};

TEST_F(StepAgreementTest, AllRanksActOnARequestOfOneAfterTheSameStep) {
  std::vector<int> stopped(3), saved(3);
  OnRanks(3, [&](uint32_t rank, StepAgreement& agreement) {
    SteadyTime now;
    for (int step = 1; stopped[rank] == 0 && step < 1000; ++step) {
      now = now + absl::Milliseconds(20);
      if (!agreement.StepDone()) continue;
      // Rank 0 wants a checkpoint after step 30, rank 2 is asked to stop after step 50.
      const auto agreed = agreement.Agree(
          {.stop = rank == 2 && step > 50, .checkpoint = rank == 0 && saved[0] == 0 && step > 30},
          now);
      ASSERT_TRUE(agreed.ok()) << agreed.status();
      if (agreed->checkpoint) saved[rank] = step;
      if (agreed->stop) stopped[rank] = step;
    }
  });
  EXPECT_THAT(saved, Each(saved[0]));
  EXPECT_THAT(stopped, Each(stopped[0]));
  const int every = kInterval / absl::Milliseconds(20);
  EXPECT_THAT(saved[0], AllOf(Ge(31), Le(31 + every)));
  EXPECT_THAT(stopped[0], AllOf(Ge(51), Le(51 + every)));
}

TEST_F(StepAgreementTest, PostponesCheckpointWhileAnyRankIsWriting) {
  std::vector<int> saved(2);
  OnRanks(2, [&](uint32_t rank, StepAgreement& agreement) {
    for (int step = 1; step <= 5; ++step) {
      const auto agreed = agreement.Agree(
          {.checkpoint = rank == 0, .writing = rank == 1 && step < 4}, SteadyTime());
      ASSERT_TRUE(agreed.ok()) << agreed.status();
      EXPECT_FALSE(agreed->stop);
      if (agreed->checkpoint && saved[rank] == 0) saved[rank] = step;
    }
  });
  EXPECT_THAT(saved, ElementsAre(4, 4));
}

TEST_F(StepAgreementTest, StateStaysInMemoryIfAllRanksCanLeaveIt) {
  OnRanks(2, [&](uint32_t rank, StepAgreement& agreement) {
    for (const bool asked : {false, true}) {
      for (const bool able : {false, true}) {
        const auto agreed = agreement.Agree(
            {.stop = true, .in_memory = rank == 1 && asked, .only_on_disk = rank == 0 && !able},
            SteadyTime());
        ASSERT_TRUE(agreed.ok()) << agreed.status();
        EXPECT_EQ(agreed->in_memory, asked && able);
      }
    }
  });
}

TEST_F(StepAgreementTest, AllRanksReceiveAFailure) {
  OnRanks(2, [&](uint32_t rank, StepAgreement& agreement) {
    for (const bool failed : {false, true}) {
      const auto agreed = agreement.Agree({.failed = rank == 0 && failed}, SteadyTime());
      ASSERT_TRUE(agreed.ok()) << agreed.status();
      EXPECT_EQ(agreed->failed, failed);
    }
  });
}

// The clock of rank 0 counts; the ranks agree after the same steps whatever the others measure.
TEST_F(StepAgreementTest, AgreesAboutEvery250Milliseconds) {
  for (const uint32_t observer : {0u, 1u}) {
    EXPECT_THAT(AgreedSteps(observer, 30, absl::Milliseconds(25), absl::Milliseconds(3)),
                ElementsAre(1, 11, 21));
  }
}

// Rank 0 chooses the length of windows, and keeps it while it fits.
TEST_F(StepAgreementTest, AllRanksGetTheSameWindows) {
  std::vector<std::vector<uint32_t>> windows(2);
  OnRanks(2, [&](uint32_t rank, StepAgreement& agreement) {
    SteadyTime now;
    for (const int milliseconds : {1, 1, 2, 3, 5, 100, 3000, 24, 10}) {
      // Rank 1 measures something else.
      now = now + absl::Milliseconds(rank == 0 ? milliseconds : 500);
      agreement.StepDone();
      const auto agreed = agreement.Agree({}, now);
      ASSERT_TRUE(agreed.ok()) << agreed.status();
      windows[rank].push_back(agreed->window_steps);
    }
  });
  // 101 steps take 101 ms, 303 ms at 3 ms each; 505 ms would be too long.
  EXPECT_THAT(windows[0], ElementsAre(101, 101, 101, 101, 21, 3, 3, 5, 11));
  EXPECT_EQ(windows[1], windows[0]);
}

TEST_F(StepAgreementTest, OneRankHasNoWindows) {
  OnRanks(1, [&](uint32_t, StepAgreement& agreement) {
    const auto agreed = agreement.Agree({}, SteadyTime() + absl::Milliseconds(10));
    ASSERT_TRUE(agreed.ok()) << agreed.status();
    EXPECT_EQ(agreed->window_steps, 0u);
  });
}

TEST_F(StepAgreementTest, AgreesAfterEachSlowStep) {
  EXPECT_THAT(AgreedSteps(1, 4, absl::Seconds(3), absl::Seconds(3)), ElementsAre(1, 2, 3, 4));
}

TEST_F(StepAgreementTest, LimitsStepsBetweenAgreements) {
  EXPECT_THAT(AgreedSteps(1, 200, absl::Microseconds(10), absl::Microseconds(10)),
              ElementsAre(1, 65, 129, 193));
  EXPECT_THAT(AgreedSteps(1, 70, absl::ZeroDuration(), absl::ZeroDuration()), ElementsAre(1, 65));
}

TEST_F(StepAgreementTest, WorldOfOneAgreesWithItselfAfterEachStep) {
  const auto world = MakeLoopbackGroup(1);
  StepAgreement agreement(world[0].get());
  agreement.Start(SteadyTime());
  for (int step = 0; step < 3; ++step) {
    EXPECT_TRUE(agreement.StepDone());
    const auto agreed = agreement.Agree({.stop = step == 2, .checkpoint = true}, SteadyTime());
    ASSERT_TRUE(agreed.ok());
    EXPECT_EQ(agreed->stop, step == 2);
    EXPECT_TRUE(agreed->checkpoint);
  }
}

TEST_F(StepAgreementTest, ReturnsErrorOfLostPeer) {
  auto world = MakeLoopbackGroup(2);
  world[1]->Abort(absl::AbortedError("enough"));
  StepAgreement agreement(world[0].get());
  EXPECT_FALSE(agreement.Agree({.stop = true}, SteadyTime()).ok());
}

}  // namespace
}  // namespace muster::train
