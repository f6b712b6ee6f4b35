#include "trainer/loop/checkpoint_writer.h"

#include <functional>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
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

TEST(CheckpointWriter, WritesWhileItsOwnerGoesOn) {
  CheckpointWriter writer;
  EXPECT_FALSE(writer.busy());
  EXPECT_FALSE(writer.TakeResult().has_value());
  writer.AwaitProgress(absl::InfiniteDuration());  // returns at once

  absl::Notification proceed;
  writer.Start(7, [&](const ByteProgress& progress) {
    proceed.WaitForNotification();
    progress(3);
    progress(4);
    return absl::OkStatus();
  });
  EXPECT_TRUE(writer.busy());
  EXPECT_FALSE(writer.TakeResult().has_value());
  proceed.Notify();
  writer.AwaitProgress(absl::InfiniteDuration());
  EXPECT_TRUE(writer.busy());
  EXPECT_EQ(writer.written_bytes(), 7);
  const auto result = writer.TakeResult();
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->step, 7);
  EXPECT_TRUE(result->status.ok());
  EXPECT_GT(result->duration, absl::ZeroDuration());
  EXPECT_FALSE(writer.busy());
  EXPECT_FALSE(writer.TakeResult().has_value());
}

TEST(CheckpointWriter, WritesAgainAfterFailure) {
  CheckpointWriter writer;
  writer.Start(1, [](const ByteProgress& progress) {
    progress(5);
    return absl::ResourceExhaustedError("disk full");
  });
  writer.AwaitProgress(absl::InfiniteDuration());
  EXPECT_EQ(writer.TakeResult()->status, absl::ResourceExhaustedError("disk full"));
  writer.Start(2, [](const ByteProgress&) { return absl::OkStatus(); });
  writer.AwaitProgress(absl::InfiniteDuration());
  EXPECT_EQ(writer.written_bytes(), 0);
  const auto result = writer.TakeResult();
  EXPECT_EQ(result->step, 2);
  EXPECT_TRUE(result->status.ok());
}

TEST(CheckpointWriter, ReturnsAfterIntervalOnlyWithProgress) {
  CheckpointWriter writer;
  absl::Notification first, second, proceed;
  writer.Start(1, [&](const ByteProgress& progress) {
    first.WaitForNotification();
    progress(1);
    second.WaitForNotification();
    progress(1);
    proceed.WaitForNotification();
    return absl::OkStatus();
  });
  first.Notify();
  writer.AwaitProgress(absl::ZeroDuration());
  EXPECT_EQ(writer.written_bytes(), 1);
  second.Notify();
  writer.AwaitProgress(absl::ZeroDuration());
  EXPECT_EQ(writer.written_bytes(), 2);
  EXPECT_FALSE(writer.TakeResult().has_value());
  proceed.Notify();
}

TEST(CheckpointWriter, DestructorWaitsForWrite) {
  bool written = false;
  {
    CheckpointWriter writer;
    writer.Start(1, [&](const ByteProgress&) {
      absl::SleepFor(absl::Milliseconds(20));
      written = true;
      return absl::OkStatus();
    });
  }
  EXPECT_TRUE(written);
}

constexpr absl::Duration kTimeout = absl::Milliseconds(800);
constexpr absl::Duration kInterval = absl::Milliseconds(20);

class AwaitAllWritersTest : public ::testing::TestWithParam<const char*> {
 protected:
  using Body = std::function<absl::Status(collectives::Communicator&, CheckpointWriter&)>;

  // Runs `body` on two ranks, each a process, over a backend whose timeout is kTimeout. Returns the
  // statuses; "" for OK.
  static std::vector<std::string> OnTwoRanks(const Body& body) {
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
      CheckpointWriter writer;
      return body(*world, writer);
    });
  }

  static absl::Status Await(collectives::Communicator& world, CheckpointWriter& writer) {
    return AwaitAllWriters(world, writer, kInterval, [&] {
      const auto result = writer.TakeResult();
      return result.has_value() ? result->status : absl::OkStatus();
    });
  }

  // Writes for 30 tenths of the timeout.
  static absl::Status WriteSlowly(const ByteProgress& progress) {
    for (int i = 0; i < 30; ++i) {
      absl::SleepFor(kTimeout / 10);
      progress(1);
    }
    return absl::OkStatus();
  }
};

TEST_P(AwaitAllWritersTest, WritesMayLastLongerThanTheTimeoutOfCollectives) {
  const auto results =
      OnTwoRanks([](collectives::Communicator& world, CheckpointWriter& writer) -> absl::Status {
        if (world.rank() == 1) writer.Start(1, WriteSlowly);
        const absl::Time begin = absl::Now();
        RETURN_IF_ERROR(Await(world, writer));
        if (absl::Now() - begin > 2 * kTimeout) return absl::OkStatus();
        return absl::InternalError("did not wait");
      });
  EXPECT_THAT(results, ElementsAre("", ""));
}

TEST_P(AwaitAllWritersTest, NamesRankWhoseWriteMakesNoProgress) {
  const auto results = OnTwoRanks([](collectives::Communicator& world, CheckpointWriter& writer) {
    if (world.rank() == 0) {
      writer.Start(1, [](const ByteProgress& progress) {
        progress(1);
        absl::SleepFor(4 * kTimeout);
        return absl::OkStatus();
      });
    }
    return Await(world, writer);
  });
  EXPECT_THAT(results[1], AllOf(HasSubstr("DEADLINE_EXCEEDED"), HasSubstr("waiting for rank 0")));
}

TEST_P(AwaitAllWritersTest, NamesRankThatDoesNotWait) {
  const auto results =
      OnTwoRanks([](collectives::Communicator& world, CheckpointWriter& writer) -> absl::Status {
        if (world.rank() == 1) {
          absl::SleepFor(4 * kTimeout);
          return absl::OkStatus();
        }
        writer.Start(1, WriteSlowly);
        return Await(world, writer);
      });
  EXPECT_THAT(results[0], AllOf(HasSubstr("DEADLINE_EXCEEDED"), HasSubstr("waiting for rank 1")));
}

TEST_P(AwaitAllWritersTest, ReturnsErrorOfTheWrite) {
  const auto results = OnTwoRanks([](collectives::Communicator& world, CheckpointWriter& writer) {
    if (world.rank() == 0) {
      writer.Start(1,
                   [](const ByteProgress&) { return absl::ResourceExhaustedError("disk full"); });
    }
    return Await(world, writer);
  });
  EXPECT_EQ(results[0], "RESOURCE_EXHAUSTED: disk full");
  EXPECT_THAT(results[1], Not(""));
}

INSTANTIATE_TEST_SUITE_P(Backends, AwaitAllWritersTest, ::testing::Values("shm", "gloo"),
                         [](const auto& backend) { return std::string(backend.param); });

}  // namespace
}  // namespace muster::train
