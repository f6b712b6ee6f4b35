// Checks the rule of deadlines (docs/design/liveness.md) in clusters whose network is cut all the
// time: no two generations of a command job have live ranks at once; deliberate mistakes in the
// rule are found; and with only the coordinator dead, no rank ends on nodes that reach more than
// half of the others.
//
// MUSTER_LIVENESS_SEEDS is the number of seeds to run, from MUSTER_LIVENESS_FIRST (1); a single one
// prints its trace.
#include <cstdlib>
#include <iostream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "glog/logging.h"
#include "gtest/gtest.h"
#include "tests/simulation/simulation.h"

namespace muster::simulation {
namespace {

constexpr uint64_t kDefaultSeeds = 300;
// The most seeds in which a mistake must be found.
constexpr uint64_t kMutationSeeds = 4000;

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  uint64_t value = 0;
  return text != nullptr && absl::SimpleAtoi(text, &value) ? value : otherwise;
}

class LivenessTest : public ::testing::Test {
 protected:
  void SetUp() override { FLAGS_minloglevel = google::GLOG_FATAL; }

  // Returns the seed in which the mistake lets a job run twice; 0 if there is none.
  static uint64_t FindMistake(Mutation mutation) {
    for (uint64_t seed = 1; seed <= kMutationSeeds; ++seed) {
      Simulation simulation(seed, Simulation::Kind::kCuts, mutation);
      simulation.Run();
      for (const std::string& violation : simulation.violations()) {
        if (absl::StrContains(violation, "although rank")) return seed;
      }
    }
    return 0;
  }
};

TEST_F(LivenessTest, NoTwoGenerationsOfACommandJobRunAtOnce) {
  const uint64_t seeds = FromEnvironment("MUSTER_LIVENESS_SEEDS", kDefaultSeeds);
  const uint64_t first = FromEnvironment("MUSTER_LIVENESS_FIRST", 1);
  std::map<std::string, uint64_t> faults;
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    Simulation simulation(seed, Simulation::Kind::kCuts, Mutation::kNone, /*tracing=*/seeds == 1);
    simulation.Run();
    for (const std::string& line : simulation.trace()) std::cout << line << "\n";
    for (const auto& [kind, count] : simulation.faults()) faults[kind] += count;
    ASSERT_FALSE(simulation.Failed()) << "seed " << seed << "\n"
                                      << absl::StrJoin(simulation.violations(), "\n");
  }
  for (const auto& [kind, count] : faults) std::cout << kind << " " << count << "\n";
  if (seeds < kDefaultSeeds) return;
  for (const char* kind : {"bans", "vouchers", "refusals", "cuts between two groups",
                           "lost machines of coordinators", "moves of coordinators"}) {
    EXPECT_GT(faults[kind], seeds / 50) << kind;
  }
}

TEST_F(LivenessTest, ForgottenPromisesAreFound) {
  EXPECT_NE(FindMistake(Mutation::kForgetPromises), 0u);
}

TEST_F(LivenessTest, HeartbeatsInPlaceOfBansAreFound) {
  EXPECT_NE(FindMistake(Mutation::kHeartbeatsAreBans), 0u);
}

TEST_F(LivenessTest, AgreementOfPeersInPlaceOfEvidenceIsFound) {
  EXPECT_NE(FindMistake(Mutation::kAgreementIsEvidence), 0u);
}

TEST_F(LivenessTest, MissingMarginIsFound) { EXPECT_NE(FindMistake(Mutation::kNoMargin), 0u); }

TEST_F(LivenessTest, NoRankEndsWhileOnlyTheCoordinatorIsDead) {
  const uint64_t seeds = FromEnvironment("MUSTER_LIVENESS_SEEDS", kDefaultSeeds);
  const uint64_t first = FromEnvironment("MUSTER_LIVENESS_FIRST", 1);
  uint64_t ranks = 0;
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    Simulation simulation(seed, Simulation::Kind::kLostCoordinator, Mutation::kNone,
                          /*tracing=*/seeds == 1);
    ranks += simulation.LoseCoordinator();
    for (const std::string& line : simulation.trace()) std::cout << line << "\n";
    ASSERT_FALSE(simulation.Failed()) << "seed " << seed << "\n"
                                      << absl::StrJoin(simulation.violations(), "\n");
  }
  EXPECT_GT(ranks, 3 * seeds) << "that ran without a coordinator";
}

}  // namespace
}  // namespace muster::simulation
