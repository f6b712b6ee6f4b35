#include "common/steady_cond_var.h"

#include <thread>

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
    while (!set) EXPECT_FALSE(changed.WaitWithTimeout(&mutex, absl::InfiniteDuration()));
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

}  // namespace
}  // namespace muster
