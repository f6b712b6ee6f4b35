#include "trainer/loop/one_rank_work.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "collectives/factory.h"
#include "collectives/testing.h"
#include "common/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::train {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::Duration kTimeout = absl::Milliseconds(800);
constexpr absl::Duration kInterval = absl::Milliseconds(20);

class OneRankWork : public ::testing::TestWithParam<const char*> {
 protected:
  // Runs `body` on two ranks, each a process, over a backend whose timeout is kTimeout. Returns the
  // statuses; "" for OK.
  static std::vector<std::string> OnTwoRanks(
      const std::function<absl::Status(collectives::Communicator&)>& body) {
    collectives::FileKeyStore store;
    return collectives::RunRankProcesses(2, [&](uint32_t rank) -> absl::Status {
      collectives::GroupOptions options;
      options.name = "WORLD";
      options.id = "0123456789abcdef0123456789abcdef";
      options.rank = rank;
      options.size = 2;
      options.members = {0, 1};
      options.store = &store;
      options.interface_address = "127.0.0.1";
      options.timeout = kTimeout;
      ASSIGN_OR_RETURN(const auto world, collectives::CreateCommunicator(GetParam(), options));
      return body(*world);
    });
  }
};

TEST_P(OneRankWork, MayLastLongerThanTheTimeoutOfCollectives) {
  const auto results = OnTwoRanks([](collectives::Communicator& world) {
    return RunOnOneRank(world, 0, kInterval, [](const std::function<void()>& progress) {
      for (int i = 0; i < 30; ++i) {
        absl::SleepFor(kTimeout / 10);
        progress();
      }
      return absl::OkStatus();
    });
  });
  EXPECT_THAT(results, ElementsAre("", ""));
}

TEST_P(OneRankWork, NamesWorkerThatMakesNoProgress) {
  const auto results = OnTwoRanks([](collectives::Communicator& world) {
    return RunOnOneRank(world, 0, kInterval, [](const std::function<void()>& progress) {
      absl::SleepFor(kTimeout / 10);
      progress();
      absl::SleepFor(4 * kTimeout);
      return absl::OkStatus();
    });
  });
  EXPECT_THAT(results[1], AllOf(HasSubstr("DEADLINE_EXCEEDED"), HasSubstr("waiting for rank 0")));
}

TEST_P(OneRankWork, FinishesWithoutRankThatDoesNotWaitAndNamesIt) {
  const auto results = OnTwoRanks([](collectives::Communicator& world) -> absl::Status {
    if (world.rank() == 1) {
      absl::SleepFor(4 * kTimeout);
      return absl::OkStatus();
    }
    bool finished = false;
    const absl::Status status =
        RunOnOneRank(world, 0, kInterval, [&](const std::function<void()>& progress) {
          for (int i = 0; i < 4; ++i) {
            absl::SleepFor(kInterval);
            progress();
          }
          finished = true;
          return absl::OkStatus();
        });
    return finished ? status : absl::InternalError("the work was not finished");
  });
  EXPECT_THAT(results[0], AllOf(HasSubstr("DEADLINE_EXCEEDED"), HasSubstr("waiting for rank 1")));
}

TEST_P(OneRankWork, ReturnsErrorOfTheWork) {
  const auto results = OnTwoRanks([](collectives::Communicator& world) {
    return RunOnOneRank(world, 0, kInterval, [](const std::function<void()>&) {
      return absl::ResourceExhaustedError("disk full");
    });
  });
  EXPECT_EQ(results[0], "RESOURCE_EXHAUSTED: disk full");
  EXPECT_THAT(results[1], Not(""));
}

INSTANTIATE_TEST_SUITE_P(Backends, OneRankWork, ::testing::Values("shm", "gloo"),
                         [](const auto& backend) { return std::string(backend.param); });

}  // namespace
}  // namespace muster::train
