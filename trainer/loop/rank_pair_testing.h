// For tests of work that ranks wait for: two ranks whose collectives have a short timeout.
#ifndef MUSTER_TRAINER_LOOP_RANK_PAIR_TESTING_H_
#define MUSTER_TRAINER_LOOP_RANK_PAIR_TESTING_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "collectives/communicator.h"
#include "collectives/testing.h"
#include "gtest/gtest.h"

namespace muster::train {

// The parameter is the backend.
class RankPairTest : public ::testing::TestWithParam<const char*> {
 protected:
  static constexpr absl::Duration kTimeout = absl::Milliseconds(800);
  static constexpr absl::Duration kInterval = absl::Milliseconds(20);

  // Runs `body` on both ranks, each a process. Returns the statuses; "" for OK.
  std::vector<std::string> OnBothRanks(
      const std::function<absl::Status(collectives::Communicator&)>& body);

  // Lets AwaitSignal return, also in the other process. Called once per test.
  void Signal();
  void AwaitSignal();

  // Works for three timeouts and reports progress ten times in each.
  static void WorkSlowly(const std::function<void()>& progress);

 private:
  collectives::FileKeyStore store_;
};

// Names instances of such tests by the backend.
std::string BackendName(const ::testing::TestParamInfo<const char*>& backend);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_LOOP_RANK_PAIR_TESTING_H_
