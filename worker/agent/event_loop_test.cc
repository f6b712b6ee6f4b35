#include "worker/agent/event_loop.h"

#include <fcntl.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::agent {
namespace {

using ::testing::ElementsAre;

TEST(EventLoopTest, RunsPostedClosuresInOrder) {
  EventLoop loop("test");
  std::vector<int> order;
  for (int i = 0; i < 3; ++i) loop.Post([&order, i] { order.push_back(i); });
  loop.RunAndWait([&order] { order.push_back(3); });
  EXPECT_THAT(order, ElementsAre(0, 1, 2, 3));
}

TEST(EventLoopTest, ClosuresCanPostClosures) {
  EventLoop loop("test");
  absl::Notification done;
  loop.Post([&] { loop.Post([&] { loop.Post([&] { done.Notify(); }); }); });
  EXPECT_TRUE(done.WaitForNotificationWithTimeout(absl::Seconds(20)));
}

TEST(EventLoopTest, RunsTimersInOrderUnlessCancelled) {
  EventLoop loop("test");
  std::vector<int> order;
  absl::Notification done;
  loop.RunAndWait([&] {
    loop.RunAfter(absl::Milliseconds(20), [&] {
      order.push_back(2);
      done.Notify();
    });
    loop.RunAfter(absl::Milliseconds(1), [&] { order.push_back(1); });
    const EventLoop::TimerId cancelled =
        loop.RunAfter(absl::Milliseconds(2), [&] { order.push_back(9); });
    loop.Cancel(cancelled);
    loop.Cancel(cancelled);
  });
  ASSERT_TRUE(done.WaitForNotificationWithTimeout(absl::Seconds(20)));
  EXPECT_THAT(order, ElementsAre(1, 2));
}

TEST(EventLoopTest, WatchesDescriptorsUntilUnwatched) {
  EventLoop loop("test");
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  int calls = 0;
  absl::Notification called;
  loop.RunAndWait([&] {
    loop.Watch(ends[0], [&] {
      ++calls;
      loop.Unwatch(ends[0]);  // while its own closure runs
      called.Notify();
    });
  });
  ASSERT_EQ(write(ends[1], "x", 1), 1);
  ASSERT_TRUE(called.WaitForNotificationWithTimeout(absl::Seconds(20)));
  loop.RunAndWait([] {});
  EXPECT_EQ(calls, 1);
  close(ends[0]);
  close(ends[1]);
}

TEST(EventLoopTest, WatchesForWritableDescriptors) {
  EventLoop loop("test");
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_NONBLOCK), 0);
  std::string block(4096, 'x');
  while (write(ends[1], block.data(), block.size()) > 0) {
  }
  absl::Notification called;
  loop.RunAndWait([&] {
    loop.WatchWritable(ends[1], [&] {
      loop.Unwatch(ends[1]);
      called.Notify();
    });
  });
  loop.RunAndWait([] {});
  EXPECT_FALSE(called.HasBeenNotified());
  while (read(ends[0], block.data(), block.size()) > 0) {
  }
  EXPECT_TRUE(called.WaitForNotificationWithTimeout(absl::Seconds(20)));
  close(ends[0]);
  close(ends[1]);
}

TEST(EventLoopTest, DropsQueuedClosuresOnDestruction) {
  const auto token = std::make_shared<int>(1);
  {
    EventLoop loop("test");
    loop.RunAndWait([&] { loop.RunAfter(absl::Hours(1), [token] {}); });
  }
  EXPECT_EQ(token.use_count(), 1);
}

}  // namespace
}  // namespace muster::agent
