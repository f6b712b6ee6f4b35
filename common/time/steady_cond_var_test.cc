#include "common/time/steady_cond_var.h"

#include <thread>

#include "common/time/steady_notification.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

TEST(SteadyCondVar, SignalEndsTimedWait) {
  absl::Mutex mutex;
  SteadyCondVar changed;
  bool set = false;
  std::thread setter([&] {
    absl::MutexLock lock(&mutex);
    set = true;
    changed.Signal();
  });
  {
    absl::MutexLock lock(&mutex);
    while (!set) EXPECT_FALSE(changed.WaitFor(&mutex, absl::InfiniteDuration()));
  }
  setter.join();
}

TEST(SteadyCondVar, WaitEndsAtDeadline) {
  absl::Mutex mutex;
  SteadyCondVar changed;
  const Deadline deadline(absl::Milliseconds(20));
  absl::MutexLock lock(&mutex);
  while (!changed.WaitUntil(&mutex, deadline)) {
  }
  EXPECT_TRUE(deadline.passed());
  EXPECT_TRUE(changed.WaitUntil(&mutex, deadline));
}

TEST(SteadyCondVar, WaitForReturnsCondition) {
  absl::Mutex mutex;
  SteadyCondVar changed;
  bool set = false;
  std::thread setter([&] {
    absl::MutexLock lock(&mutex);
    set = true;
    changed.Signal();
  });
  {
    absl::MutexLock lock(&mutex);
    EXPECT_TRUE(changed.WaitFor(&mutex, absl::InfiniteDuration(), [&set] { return set; }));
    EXPECT_FALSE(changed.WaitFor(&mutex, absl::Milliseconds(5), [] { return false; }));
  }
  setter.join();
}

TEST(SteadyNotification, EndsWaits) {
  SteadyNotification notification;
  EXPECT_FALSE(notification.WaitFor(absl::ZeroDuration()));
  std::thread notifier([&] { notification.Notify(); });
  EXPECT_TRUE(notification.WaitFor(absl::InfiniteDuration()));
  EXPECT_TRUE(notification.HasBeenNotified());
  notifier.join();
}

}  // namespace
}  // namespace muster
