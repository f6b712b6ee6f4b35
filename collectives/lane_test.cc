#include "collectives/lane.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"

namespace muster::collectives {
namespace {

TEST(LaneTest, RunsInOrderOfIssue) {
  const auto lane = Lane::Start("test");
  std::vector<int> order;
  std::vector<std::shared_ptr<Work>> works;
  for (int i = 0; i < 100; ++i) {
    works.push_back(lane->Issue([&order, i] {
      order.push_back(i);
      return absl::OkStatus();
    }));
  }
  EXPECT_TRUE(works.back()->Wait().ok());
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[i], i);
  EXPECT_TRUE(lane->Idle());
  lane->Stop();
}

TEST(LaneTest, RunsWithoutWaiter) {
  const auto lane = Lane::Start("test");
  absl::Notification ran;
  const auto work = lane->Issue([&] {
    ran.Notify();
    return absl::OkStatus();
  });
  ran.WaitForNotification();
  EXPECT_TRUE(work->Wait().ok());
  lane->Stop();
}

TEST(LaneTest, WaitReturnsStatusToEveryWaiter) {
  const auto lane = Lane::Start("test");
  absl::Notification go;
  const auto work = lane->Issue([&] {
    go.WaitForNotification();
    return absl::DataLossError("lost");
  });
  EXPECT_FALSE(work->Done());
  std::vector<std::thread> waiters;
  for (int i = 0; i < 3; ++i) {
    waiters.emplace_back([&] { EXPECT_TRUE(absl::IsDataLoss(work->Wait())); });
  }
  go.Notify();
  for (std::thread& waiter : waiters) waiter.join();
  EXPECT_TRUE(work->Done());
  lane->Stop();
}

TEST(LaneTest, StopRunsQueuedOperationsAndRejectsNewOnes) {
  const auto lane = Lane::Start("test");
  int ran = 0;
  std::shared_ptr<Work> last;
  for (int i = 0; i < 10; ++i) {
    last = lane->Issue([&ran] {
      ++ran;
      return absl::OkStatus();
    });
  }
  lane->Stop();
  EXPECT_EQ(ran, 10);
  EXPECT_TRUE(last->Wait().ok());
  EXPECT_TRUE(absl::IsAborted(lane->Issue([] { return absl::OkStatus(); })->Wait()));
}

}  // namespace
}  // namespace muster::collectives
