#include "cli/follow/follow_run.h"

#include <signal.h>

#include <sstream>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"

namespace muster::cli {
namespace {

// Records what a RunInterrupt does on signals.
class Followed {
 public:
  explicit Followed(bool may_detach)
      : interrupt_(console_, stopper_, may_detach, [this] { cancelled_.Notify(); }) {}

  void Signal(int number) { kill(getpid(), number); }
  void AwaitCancelled() { cancelled_.WaitForNotification(); }
  void AwaitDetached() { detached_.WaitForNotification(); }
  bool cancelled() const { return cancelled_.HasBeenNotified(); }
  bool detached() const { return stopper_.stopped(); }
  bool interrupted() const { return interrupt_.interrupted(); }

 private:
  std::ostringstream out_, err_;
  Console console_{out_, err_, {}};
  Stopper stopper_;
  absl::Notification cancelled_, detached_;
  const Stopper::Registration registration_{stopper_, [this] { detached_.Notify(); }};
  RunInterrupt interrupt_;
};

TEST(InterruptTest, WithoutATerminalFirstSigintCancelsAndSecondStopsWaiting) {
  Followed followed(/*may_detach=*/true);
  EXPECT_FALSE(followed.interrupted());
  followed.Signal(SIGINT);
  followed.AwaitCancelled();
  EXPECT_TRUE(followed.interrupted());
  EXPECT_FALSE(followed.detached());
  followed.Signal(SIGINT);
  followed.AwaitDetached();
}

TEST(InterruptTest, SigtermAndSighupDetach) {
  for (const int signal : {SIGTERM, SIGHUP}) {
    Followed followed(/*may_detach=*/true);
    followed.Signal(signal);
    followed.AwaitDetached();
    EXPECT_TRUE(followed.interrupted());
    EXPECT_FALSE(followed.cancelled());
  }
}

TEST(InterruptTest, AnySignalCancelsAJobThatMayNotDetach) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    Followed followed(/*may_detach=*/false);
    followed.Signal(signal);
    followed.AwaitCancelled();
    EXPECT_FALSE(followed.detached());
    followed.Signal(signal);
    followed.AwaitDetached();
  }
}

TEST(InterruptTest, KeepsIgnoredSignalsIgnored) {
  const auto before = signal(SIGHUP, SIG_IGN);
  {
    const SignalWatcher watcher([](int number) { ADD_FAILURE() << number; });
    struct sigaction now;
    sigaction(SIGHUP, nullptr, &now);
    EXPECT_EQ(now.sa_handler, SIG_IGN);
  }
  signal(SIGHUP, before);
}

TEST(InterruptTest, RestoresSignalHandlers) {
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

TEST(StopperTest, CallsLateRegistrationsAtOnceAndWakesSleepers) {
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
