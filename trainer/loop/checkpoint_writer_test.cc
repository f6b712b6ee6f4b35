#include "trainer/loop/checkpoint_writer.h"

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "collectives/communicator.h"
#include "common/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/loop/rank_pair_testing.h"

namespace muster::train {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(CheckpointWriter, WritesWhileOwnerContinues) {
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
  absl::Notification leaving;
  {
    CheckpointWriter writer;
    writer.Start(1, [&](const ByteProgress&) {
      leaving.WaitForNotification();
      written = true;
      return absl::OkStatus();
    });
    leaving.Notify();
  }
  EXPECT_TRUE(written);
}

class AwaitAllWritersTest : public RankPairTest {
 protected:
  static absl::Status Await(collectives::Communicator& world, CheckpointWriter& writer) {
    return AwaitAllWriters(world, writer, kInterval, [&] {
      const auto result = writer.TakeResult();
      return result.has_value() ? result->status : absl::OkStatus();
    });
  }
};

TEST_P(AwaitAllWritersTest, WritesMayLastLongerThanTheTimeoutOfCollectives) {
  const auto results = OnBothRanks([](collectives::Communicator& world) -> absl::Status {
    CheckpointWriter writer;
    if (world.rank() == 1) {
      writer.Start(1, [](const ByteProgress& progress) {
        WorkSlowly([&progress] { progress(1); });
        return absl::OkStatus();
      });
    }
    const absl::Time begin = absl::Now();
    RETURN_IF_ERROR(Await(world, writer));
    if (absl::Now() - begin > 2 * kTimeout) return absl::OkStatus();
    return absl::InternalError("did not wait");
  });
  EXPECT_THAT(results, ElementsAre("", ""));
}

TEST_P(AwaitAllWritersTest, NamesRankWhoseWriteMakesNoProgress) {
  const auto results = OnBothRanks([this](collectives::Communicator& world) {
    CheckpointWriter writer;
    if (world.rank() == 0) {
      writer.Start(1, [this](const ByteProgress& progress) {
        progress(1);
        AwaitSignal();
        return absl::OkStatus();
      });
    }
    absl::Status status = Await(world, writer);
    if (world.rank() == 1) Signal();
    return status;
  });
  EXPECT_THAT(results[1], AllOf(HasSubstr("DEADLINE_EXCEEDED"), HasSubstr("waiting for rank 0")));
}

TEST_P(AwaitAllWritersTest, NamesRankThatDoesNotWait) {
  const auto results = OnBothRanks([this](collectives::Communicator& world) -> absl::Status {
    if (world.rank() == 1) {
      AwaitSignal();
      return absl::OkStatus();
    }
    absl::Notification failed;
    CheckpointWriter writer;
    writer.Start(1, [&failed](const ByteProgress& progress) {
      while (!failed.WaitForNotificationWithTimeout(kInterval)) progress(1);
      return absl::OkStatus();
    });
    absl::Status status = Await(world, writer);
    failed.Notify();
    Signal();
    return status;
  });
  EXPECT_THAT(results[0], AllOf(HasSubstr("DEADLINE_EXCEEDED"), HasSubstr("waiting for rank 1")));
}

TEST_P(AwaitAllWritersTest, ReturnsErrorOfTheWrite) {
  const auto results = OnBothRanks([](collectives::Communicator& world) {
    CheckpointWriter writer;
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
                         BackendName);

}  // namespace
}  // namespace muster::train
