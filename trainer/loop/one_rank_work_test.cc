#include "trainer/loop/one_rank_work.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/loop/rank_pair_testing.h"

namespace muster::train {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

using OneRankWork = RankPairTest;

TEST_P(OneRankWork, MayLastLongerThanTheTimeoutOfCollectives) {
  const auto results = OnBothRanks([](collectives::Communicator& world) {
    return RunOnOneRank(world, 0, kInterval, [](const std::function<void()>& progress) {
      WorkSlowly(progress);
      return absl::OkStatus();
    });
  });
  EXPECT_THAT(results, ElementsAre("", ""));
}

TEST_P(OneRankWork, NamesWorkerThatMakesNoProgress) {
  const auto results = OnBothRanks([this](collectives::Communicator& world) {
    absl::Status status =
        RunOnOneRank(world, 0, absl::ZeroDuration(), [this](const std::function<void()>& progress) {
          progress();
          AwaitSignal();
          return absl::OkStatus();
        });
    if (world.rank() == 1) Signal();
    return status;
  });
  EXPECT_THAT(results[1], AllOf(HasSubstr("DEADLINE_EXCEEDED"), HasSubstr("waiting for rank 0")));
}

TEST_P(OneRankWork, FinishesWithoutRankThatDoesNotWaitAndNamesIt) {
  const auto results = OnBothRanks([this](collectives::Communicator& world) -> absl::Status {
    if (world.rank() == 1) {
      AwaitSignal();
      return absl::OkStatus();
    }
    bool finished = false;
    absl::Status status =
        RunOnOneRank(world, 0, absl::ZeroDuration(), [&](const std::function<void()>& progress) {
          for (int i = 0; i < 4; ++i) progress();
          finished = true;
          return absl::OkStatus();
        });
    Signal();
    return finished ? status : absl::InternalError("the work was not finished");
  });
  EXPECT_THAT(results[0], AllOf(HasSubstr("DEADLINE_EXCEEDED"), HasSubstr("waiting for rank 1")));
}

TEST_P(OneRankWork, ReturnsErrorOfTheWork) {
  const auto results = OnBothRanks([](collectives::Communicator& world) {
    return RunOnOneRank(world, 0, kInterval, [](const std::function<void()>&) {
      return absl::ResourceExhaustedError("disk full");
    });
  });
  EXPECT_EQ(results[0], "RESOURCE_EXHAUSTED: disk full");
  EXPECT_THAT(results[1], Not(""));
}

INSTANTIATE_TEST_SUITE_P(Backends, OneRankWork, ::testing::Values("shm", "gloo"), BackendName);

}  // namespace
}  // namespace muster::train
