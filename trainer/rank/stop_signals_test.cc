#include "trainer/rank/stop_signals.h"

#include <csignal>
#include <cstdlib>

#include "gtest/gtest.h"

namespace muster::rank {
namespace {

v1::JobSpec SpecWith(const char* stop_signal) {
  v1::JobSpec spec;
  spec.set_stop_signal(stop_signal);
  return spec;
}

TEST(StopSignals, AreSigtermAndTheJobsOwn) {
  EXPECT_EQ(StopSignalOf(SpecWith("")), SIGTERM);
  EXPECT_EQ(StopSignalOf(SpecWith("SIGTERM")), SIGTERM);
  EXPECT_EQ(StopSignalOf(SpecWith("SIGINT")), SIGINT);
  EXPECT_EQ(StopSignalOf(SpecWith("SIGUSR1")), SIGUSR1);
  EXPECT_EQ(StopSignalOf(SpecWith("SIGUSR2")), SIGUSR2);
  EXPECT_EQ(StopSignalOf(SpecWith("SIGHUP")), SIGHUP);
  EXPECT_EQ(StopSignalOf(SpecWith("SIGQUIT")), SIGQUIT);
  EXPECT_EQ(StopSignalsOf(SpecWith("SIGUSR1")), (std::set<int>{SIGTERM, SIGUSR1}));
}

TEST(StopSignals, BecomeRequestsOfATrainingThatAcceptsThem) {
  train::RankRequests requests;
  const StopSignals signals(&requests, SpecWith("SIGUSR1"));
  requests.AcceptStops();
  std::raise(SIGUSR1);
  EXPECT_EQ(requests.stop_signal(), SIGUSR1);
  std::raise(SIGTERM);  // neither ends the process nor replaces the first request
  EXPECT_EQ(requests.stop_signal(), SIGUSR1);
}

TEST(StopSignalsDeathTest, EndProcessThatHasNothingToSave) {
  for (const int signal : {SIGTERM, SIGUSR1}) {
    EXPECT_EXIT(
        {
          train::RankRequests requests;
          const StopSignals signals(&requests, SpecWith("SIGUSR1"));
          std::raise(signal);
        },
        ::testing::KilledBySignal(signal), "");
  }
}

TEST(StopSignalsDeathTest, EndBySignalEndsProcessThatHandlesIt) {
  EXPECT_EXIT(
      {
        train::RankRequests requests;
        const StopSignals signals(&requests, SpecWith("SIGUSR1"));
        requests.AcceptStops();
        std::raise(SIGUSR1);
        EndBySignal(requests.stop_signal());
      },
      ::testing::KilledBySignal(SIGUSR1), "");
}

TEST(StopSignalsDeathTest, DestructorRestoresDefaultAction) {
  EXPECT_EXIT(
      {
        train::RankRequests requests;
        requests.AcceptStops();
        { const StopSignals signals(&requests, SpecWith("")); }
        std::raise(SIGTERM);
      },
      ::testing::KilledBySignal(SIGTERM), "");
}

// A rank that has failed keeps its exit code when it is stopped afterwards.
TEST(StopSignalsDeathTest, DestructorKeepsIgnoredSignals) {
  EXPECT_EXIT(
      {
        train::RankRequests requests;
        {
          const StopSignals signals(&requests, SpecWith(""));
          std::signal(SIGTERM, SIG_IGN);
        }
        std::raise(SIGTERM);
        std::_Exit(73);
      },
      ::testing::ExitedWithCode(73), "");
}

}  // namespace
}  // namespace muster::rank
