#include "trainer/loop/rank_requests.h"

#include <csignal>

#include "gtest/gtest.h"

namespace muster::train {
namespace {

TEST(RankRequests, AcceptsStopsOnlyWhileTheTrainingCanSave) {
  RankRequests requests;
  EXPECT_FALSE(requests.RequestStop(SIGTERM));
  EXPECT_FALSE(requests.stop_requested());

  requests.AcceptStops();
  EXPECT_FALSE(requests.stop_requested());
  requests.RefuseStops();
  EXPECT_FALSE(requests.RequestStop(SIGTERM));
  EXPECT_FALSE(requests.stop_requested());
  EXPECT_EQ(requests.stop_signal(), 0);
}

// A second signal does not interrupt the save that the first one caused.
TEST(RankRequests, KeepsFirstStop) {
  RankRequests requests;
  requests.AcceptStops();
  EXPECT_TRUE(requests.RequestStop(SIGUSR1));
  EXPECT_TRUE(requests.RequestStop(SIGTERM));
  EXPECT_EQ(requests.stop_signal(), SIGUSR1);
  requests.RefuseStops();
  EXPECT_TRUE(requests.stop_requested());
  EXPECT_TRUE(requests.RequestStop(SIGTERM));
}

// After the loss of a peer, the training thread may be stuck.
TEST(RankRequests, EndsAtOnceAfterAbort) {
  RankRequests requests;
  requests.AcceptStops();
  requests.Abort();
  EXPECT_FALSE(requests.RequestStop(SIGTERM));
}

TEST(RankRequests, FinishesCheckpointBeforeItEndsAfterAbort) {
  static int raised;
  raised = 0;
  std::signal(SIGUSR1, [](int) { ++raised; });
  RankRequests requests;
  requests.AcceptStops();
  requests.SetWriting(true);
  requests.Abort();
  EXPECT_TRUE(requests.RequestStop(SIGUSR1));
  EXPECT_EQ(raised, 0);
  requests.SetWriting(false);
  EXPECT_EQ(raised, 1);
  EXPECT_FALSE(requests.RequestStop(SIGUSR1));
  std::signal(SIGUSR1, SIG_DFL);
}

TEST(RankRequests, EndsByEarlierRequestOnAbort) {
  static int raised;
  raised = 0;
  std::signal(SIGUSR1, [](int) { ++raised; });
  RankRequests requests;
  requests.AcceptStops();
  EXPECT_TRUE(requests.RequestStop(SIGUSR1));
  requests.Abort();
  EXPECT_EQ(raised, 1);
  std::signal(SIGUSR1, SIG_DFL);
}

TEST(RankRequests, KeepsCheckpointRequestUntilCleared) {
  RankRequests requests;
  EXPECT_FALSE(requests.checkpoint_requested());
  requests.RequestCheckpoint();
  EXPECT_TRUE(requests.checkpoint_requested());
  requests.ClearCheckpointRequest();
  EXPECT_FALSE(requests.checkpoint_requested());
}

}  // namespace
}  // namespace muster::train
