#include "trainer/loop/rank_pair_testing.h"

#include "absl/time/clock.h"
#include "collectives/factory.h"
#include "common/status.h"

namespace muster::train {
namespace {

constexpr char kSignal[] = "signal";

}  // namespace

std::vector<std::string> RankPairTest::OnBothRanks(
    const std::function<absl::Status(collectives::Communicator&)>& body) {
  return collectives::RunRankProcesses(2, [&](uint32_t rank) -> absl::Status {
    collectives::GroupOptions options;
    options.name = "WORLD";
    options.id = "0123456789abcdef0123456789abcdef";
    options.rank = rank;
    options.size = 2;
    options.members = {0, 1};
    options.store = &store_;
    options.interface_address = "127.0.0.1";
    options.timeout = kTimeout;
    ASSIGN_OR_RETURN(const auto world, collectives::CreateCommunicator(GetParam(), options));
    return body(*world);
  });
}

void RankPairTest::Signal() { EXPECT_TRUE(store_.Put(kSignal, "").ok()); }

void RankPairTest::AwaitSignal() { EXPECT_TRUE(store_.Get(kSignal, absl::Minutes(1)).ok()); }

void RankPairTest::WorkSlowly(const std::function<void()>& progress) {
  // The timeouts that this exceeds are measured in real time.
  for (int i = 0; i < 30; ++i) {
    absl::SleepFor(kTimeout / 10);
    progress();
  }
}

std::string BackendName(const ::testing::TestParamInfo<const char*>& backend) {
  return backend.param;
}

}  // namespace muster::train
