#include "cli/interrupt.h"

#include <signal.h>

#include <sstream>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"

namespace muster::cli {
namespace {

TEST(InterruptTest, OffATerminalTheFirstSignalCancelsTheSecondDetaches) {
  for (const int signal : {SIGINT, SIGTERM}) {
    std::ostringstream out, err;
    Console console(out, err, {});
    Stopper stopper;
    absl::Notification cancelled, detached;
    const Stopper::Registration registration(stopper, [&detached] { detached.Notify(); });
    RunInterrupt interrupt(console, stopper, [&cancelled] { cancelled.Notify(); });
    EXPECT_FALSE(interrupt.interrupted());
    kill(getpid(), signal);
    cancelled.WaitForNotification();
    EXPECT_TRUE(interrupt.interrupted());
    EXPECT_FALSE(stopper.stopped());
    kill(getpid(), SIGINT);
    detached.WaitForNotification();
    EXPECT_TRUE(stopper.stopped());
  }
}

TEST(InterruptTest, SignalsDoAgainWhatTheyDid) {
  struct sigaction before, after;
  sigaction(SIGINT, nullptr, &before);
  {
    const SignalWatcher watcher([](int) {});
    sigaction(SIGINT, nullptr, &after);
    EXPECT_NE(before.sa_handler, after.sa_handler);
  }
  sigaction(SIGINT, nullptr, &after);
  EXPECT_EQ(before.sa_handler, after.sa_handler);
}

TEST(StopperTest, LateRegistrationsAreCalledAtOnceAndSleepersWake) {
  Stopper stopper;
  EXPECT_TRUE(stopper.SleepFor(absl::ZeroDuration()));
  int calls = 0;
  {
    const Stopper::Registration gone(stopper, [&calls] { calls += 100; });
  }
  const Stopper::Registration early(stopper, [&calls] { ++calls; });
  std::thread sleeper([&stopper] { EXPECT_FALSE(stopper.SleepFor(absl::InfiniteDuration())); });
  stopper.Stop();
  stopper.Stop();
  sleeper.join();
  EXPECT_EQ(calls, 1);
  const Stopper::Registration late(stopper, [&calls] { ++calls; });
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace muster::cli
