// Checks that the coordinator keeps its invariants whatever fails, and that every job ends once the
// faults stop.
//
// The real core runs between simulated machines, streams, disk and time, all derived from one seed.
// For a while, jobs are submitted, held, requeued and cancelled and nodes are cordoned and drained,
// while workers leave in order, streams break, networks are cut, workers, machines, ranks and the
// coordinator crash or are stopped for a while, other machines claim the names of nodes, and the
// coordinator's store is lost, restored from a copy or mistaken for another one, reports are out of
// bounds, and workers of the previous protocol version are upgraded. In some clusters the only
// faults are workers that leave in order and an absent coordinator: there, no job may fail or use
// up a restart. Checkers watch the invariants all the time. Then all faults are repaired, and every
// job must end, every slot must become free, and no worker may hold any state.
//
// MUSTER_SIMULATION_SEEDS is the number of seeds to run, from MUSTER_SIMULATION_FIRST (1);
// MUSTER_SIMULATION_SEED selects a single seed and prints its trace.
#include "tests/simulation/simulation.h"

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "glog/logging.h"
#include "gtest/gtest.h"

namespace muster::simulation {
namespace {

constexpr uint64_t kDefaultSeeds = 3000;  // two minutes

// Faults and situations that the default number of seeds must contain: a simulation in which
// nothing happens proves nothing.
constexpr const char* kFaults[] = {
    "answers: lost",
    "answers: time left",
    "broken streams",
    "compared garbage",
    "garbled messages",
    "quarantined Hellos",
    "quarantined messages",
    "bans",
    "refusals",
    "vouchers",
    "cuts between two groups",
    "cuts between two machines",
    "confirmed losses",
    "ordered ends of coordinators",
    "lost machines of coordinators",
    "moves of coordinators",
    "claims of node names",
    "conflicts of workers",
    "crashes of coordinators",
    "crashes of machines",
    "crashes of workers",
    "discards",
    "failures of ranks",
    "isolated machines",
    "lost stores",
    "network cuts",
    "pauses of coordinators",
    "recovered jobs",
    "restored stores",
    "saves of replaced generations",
    "shutdowns of workers",
    "unkillable ranks",
    "wrong stores",
    "pauses of machines",
    "pauses of ranks",
    "pauses of shims",
    "pauses of workers",
    "upgrades of workers",
};

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  uint64_t value = 0;
  return text != nullptr && absl::SimpleAtoi(text, &value) ? value : otherwise;
}

TEST(Simulation, InvariantsHoldAndAllJobsEnd) {
  const uint64_t alone = FromEnvironment("MUSTER_SIMULATION_SEED", 0);
  const uint64_t seeds = alone != 0 ? 1 : FromEnvironment("MUSTER_SIMULATION_SEEDS", kDefaultSeeds);
  const uint64_t first = alone != 0 ? alone : FromEnvironment("MUSTER_SIMULATION_FIRST", 1);
  FLAGS_minloglevel = google::GLOG_FATAL;
  std::map<std::string, uint64_t> ends;
  std::map<std::string, uint64_t> faults;
  std::map<std::string, uint64_t> causes;  // jobs by cause of a part of their time
  uint64_t restarts = 0;
  uint64_t notices = 0;
  absl::Duration simulated;
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    Simulation simulation(seed, /*tracing=*/alone != 0);
    simulation.Run();
    for (const v1::Job& job : simulation.Jobs()) {
      ++ends[v1::JobState_Name(job.state())];
      restarts += job.restarts();
      const v1::Goodput goodput = simulation.GoodputOf(job.job_id());
      for (const v1::Goodput::Cause& cause : goodput.causes()) ++causes[cause.cause()];
    }
    for (const auto& [kind, count] : simulation.faults()) faults[kind] += count;
    notices += simulation.wait_notices();
    simulated += simulation.simulated_time();
    if (alone != 0) std::cout << absl::StrJoin(simulation.trace(), "\n") << "\n";
    ASSERT_FALSE(simulation.Failed()) << "repeat with MUSTER_SIMULATION_SEED=" << seed << "\n"
                                      << absl::StrJoin(simulation.violations(), "\n");
  }
  for (const auto& [state, count] : ends) std::cout << state << " " << count << "\n";
  for (const auto& [kind, count] : faults) std::cout << kind << " " << count << "\n";
  for (const auto& [cause, count] : causes) std::cout << "time " << cause << " " << count << "\n";
  std::cout << "simulated hours " << absl::ToInt64Hours(simulated) << "\n";
  std::cout << "restarts " << restarts << "\nwait notices " << notices << "\n";
  if (alone != 0 || seeds < kDefaultSeeds) return;
  for (const char* kind : kFaults) EXPECT_GT(faults[kind], 0u) << kind;
  for (const char* cause :
       {"queued", "held", "starting", "preparing_data", "productive", "redone", "evaluating",
        "checkpoint_stall", "recovery", "lost_to_node", "requeue", "stopping"}) {
    EXPECT_GT(causes[cause], 0u) << cause;
  }
  for (const char* state : {"SUCCEEDED", "FAILED", "CANCELLED", "TIMED_OUT"}) {
    EXPECT_GT(ends[state], 0u) << state;
  }
  EXPECT_GT(restarts, seeds / 2);
  EXPECT_GT(notices, seeds);
}

// Goal: setting the wall clock changes nothing. Method: the same clusters with a wall clock that is
// set forward and back all the time do the same at the same moments.
TEST(Simulation, WallClockChangesNothing) {
  FLAGS_minloglevel = google::GLOG_FATAL;
  const uint64_t seeds = FromEnvironment("MUSTER_SIMULATION_CLOCK_SEEDS", 60);
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    Simulation expected(seed, /*tracing=*/true);
    expected.Run();
    for (const absl::Duration step : {absl::Hours(1), absl::Hours(24 * 365 * 10)}) {
      Simulation simulation(seed, /*tracing=*/true, step);
      simulation.Run();
      ASSERT_FALSE(simulation.Failed()) << "seed " << seed << "\n"
                                        << absl::StrJoin(simulation.violations(), "\n");
      const auto [one, other] = std::mismatch(expected.trace().begin(), expected.trace().end(),
                                              simulation.trace().begin(), simulation.trace().end());
      const bool equal = one == expected.trace().end() && other == simulation.trace().end();
      ASSERT_TRUE(equal) << "seed " << seed << ", step " << step << ": "
                         << (one == expected.trace().end() ? "the end" : *one) << ", but "
                         << (other == simulation.trace().end() ? "the end" : *other);
    }
  }
}

}  // namespace
}  // namespace muster::simulation
