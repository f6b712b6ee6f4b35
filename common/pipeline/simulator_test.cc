#include "common/pipeline/simulator.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace muster::pipeline {
namespace {

constexpr Schedule kAll[] = {Schedule::kSequential, Schedule::kGpipe,
                             Schedule::kOneForwardOneBackward};

// Costs of identical stages. Tests use small integers, so that sums are exact.
PipelineCosts Identical(uint32_t stages, double forward, double backward, double transfer = 0) {
  return {std::vector<double>(stages, forward), std::vector<double>(stages, backward),
          std::vector<double>(stages - 1, transfer)};
}

SimulatedStep Simulate(const PipelineCosts& costs, Schedule schedule, uint32_t micro_batches) {
  const absl::StatusOr<SimulatedStep> step = SimulateStep(costs, schedule, micro_batches);
  EXPECT_TRUE(step.ok()) << step.status();
  return step.ok() ? *step : SimulatedStep();
}

TEST(Simulator, MatchesClosedFormsForIdenticalStages) {
  for (uint32_t p = 1; p <= 8; ++p) {
    for (const uint32_t m : {1u, 2u, 3u, 7u, 8u, 32u}) {
      SCOPED_TRACE(absl::StrCat(p, " stages, ", m, " micro-batches"));
      const PipelineCosts costs = Identical(p, 1, 2);
      for (const Schedule schedule : {Schedule::kGpipe, Schedule::kOneForwardOneBackward}) {
        const SimulatedStep step = Simulate(costs, schedule, m);
        EXPECT_EQ(step.seconds, 3.0 * (m + p - 1));
        EXPECT_DOUBLE_EQ(step.bubble_ratio, (p - 1.0) / (m + p - 1.0));
        for (const SimulatedStage& stage : step.stages) {
          EXPECT_EQ(stage.busy_seconds, 3.0 * m);
          EXPECT_EQ(stage.idle_seconds, 3.0 * (p - 1));
        }
      }
      const SimulatedStep step = Simulate(costs, Schedule::kSequential, m);
      EXPECT_EQ(step.seconds, 3.0 * m * p);
      EXPECT_DOUBLE_EQ(step.bubble_ratio, 1.0 - 1.0 / p);
    }
  }
}

TEST(Simulator, AccountsForTransfers) {
  // Forward of the only micro-batch, transfer, forward, backward, transfer, backward.
  EXPECT_EQ(Simulate(Identical(2, 1, 2, 5), Schedule::kGpipe, 1).seconds, 1 + 5 + 1 + 2 + 5 + 2);
  // A slow cut carries one tensor at a time: the first forward, 3 output transfers, and the
  // transfer of the first gradient overlaps with the later backwards.
  const SimulatedStep step = Simulate(Identical(2, 2, 2, 10), Schedule::kGpipe, 3);
  EXPECT_EQ(step.seconds, 2 + 3 * 10 + 2 + 3 * 10 + 2 + 2);
}

// Expected values computed by hand: stage 1 takes four times as long as its neighbors.
TEST(Simulator, SlowestStageDeterminesTheDuration) {
  const PipelineCosts costs = {{1, 4, 1}, {1, 4, 1}, {0, 0}};
  const SimulatedStep gpipe = Simulate(costs, Schedule::kGpipe, 3);
  // Forward: 1, 3 × 4, 1. The last stage then computes three backwards; stage 1 starts after the
  // first of these and takes 3 × 4, then stage 0.
  EXPECT_EQ(gpipe.seconds, 1 + 12 + 1 + 1 + 12 + 1);
  EXPECT_EQ(gpipe.stages[1].busy_seconds, 24);
  EXPECT_EQ(gpipe.stages[1].idle_seconds, 4);
  EXPECT_EQ(gpipe.stages[0].idle_seconds, 22);
  EXPECT_DOUBLE_EQ(gpipe.bubble_ratio, (22.0 + 4 + 22) / (3 * 28));
  EXPECT_EQ(Simulate(costs, Schedule::kSequential, 3).seconds, 3 * 12);
}

TEST(Simulator, OneForwardOneBackwardTakesAsLongAsGpipeWithLessMemory) {
  const PipelineCosts costs = Identical(4, 1, 2);
  const SimulatedStep gpipe = Simulate(costs, Schedule::kGpipe, 16);
  const SimulatedStep ours = Simulate(costs, Schedule::kOneForwardOneBackward, 16);
  EXPECT_EQ(ours.seconds, gpipe.seconds);
  EXPECT_EQ(gpipe.stages[0].peak_slots, 16u);
  EXPECT_EQ(ours.stages[0].peak_slots, 4u);
  EXPECT_EQ(ours.stages[3].peak_slots, 1u);
}

// For random pipelines with random costs, checks that no schedule deadlocks and that every action
// starts after its inputs have arrived.
TEST(Simulator, ActionsStartAfterTheirInputs) {
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    const Schedule schedule = kAll[random() % 3];
    const uint32_t p = 1 + random() % 12;
    const uint32_t m = 1 + random() % 24;
    PipelineCosts costs;
    for (uint32_t i = 0; i < p; ++i) {
      costs.forward_seconds.push_back(random() % 5);
      costs.backward_seconds.push_back(random() % 9);
      if (i > 0) costs.transfer_seconds.push_back(random() % 4);
    }
    const SimulatedStep step = Simulate(costs, schedule, m);
    ASSERT_EQ(step.actions.size(), size_t{2} * p * m);
    // end[kind][stage][micro_batch]
    std::vector<std::vector<std::vector<double>>> end(
        2, std::vector<std::vector<double>>(p, std::vector<double>(m, -1)));
    for (const SimulatedAction& done : step.actions) {
      end[static_cast<int>(done.action.kind)][done.stage][done.action.micro_batch] =
          done.end_seconds;
    }
    std::vector<double> free(p, 0);
    for (const SimulatedAction& done : step.actions) {
      const uint32_t s = done.stage;
      const uint32_t i = done.action.micro_batch;
      EXPECT_GE(done.start_seconds, free[s]);
      free[s] = done.end_seconds;
      double needs = 0;
      if (done.action.kind == Action::Kind::kForward) {
        if (s > 0) needs = end[0][s - 1][i] + costs.transfer_seconds[s - 1];
      } else {
        needs = s + 1 == p ? end[0][s][i] : end[1][s + 1][i] + costs.transfer_seconds[s];
      }
      EXPECT_GE(done.start_seconds, needs);
    }
    EXPECT_EQ(step.seconds, *std::max_element(free.begin(), free.end()));
    for (uint32_t s = 0; s < p; ++s) {
      EXPECT_EQ(step.stages[s].peak_slots, ActivationSlots(schedule, p, s, m));
      EXPECT_EQ(step.stages[s].busy_seconds,
                m * (costs.forward_seconds[s] + costs.backward_seconds[s]));
    }
    // A step is never slower than all actions and transfers in sequence.
    double one_by_one = 0;
    for (uint32_t s = 0; s < p; ++s) one_by_one += step.stages[s].busy_seconds;
    one_by_one +=
        2 * m * std::accumulate(costs.transfer_seconds.begin(), costs.transfer_seconds.end(), 0.0);
    EXPECT_LE(step.seconds, one_by_one);
    if (schedule == Schedule::kSequential) EXPECT_EQ(step.seconds, one_by_one);
  }
}

TEST(Simulator, ReportsDeadlocks) {
  // Stage 0 waits for the gradient of micro-batch 1 before it has computed its output.
  const auto f = [](uint32_t i) { return Action{Action::Kind::kForward, i}; };
  const auto b = [](uint32_t i) { return Action{Action::Kind::kBackward, i}; };
  const absl::StatusOr<SimulatedStep> step =
      SimulateActions(Identical(2, 1, 1), {{f(0), b(1), f(1), b(0)}, {f(0), b(0), f(1), b(1)}}, 2);
  EXPECT_EQ(step.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(step.status().message(),
            "deadlock: stage 0 waits for the input of the backward of micro-batch 1");
}

TEST(Simulator, RejectsInvalidPipelines) {
  const auto code = [](const PipelineCosts& costs, uint32_t micro_batches) {
    return SimulateStep(costs, Schedule::kGpipe, micro_batches).status().code();
  };
  constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(code({}, 1), kInvalid);
  EXPECT_EQ(code(Identical(2, 1, 1), 0), kInvalid);
  EXPECT_EQ(code({{1, 1}, {1}, {0}}, 1), kInvalid);
  EXPECT_EQ(code({{1, 1}, {1, 1}, {}}, 1), kInvalid);
  EXPECT_EQ(code({{1, -1}, {1, 1}, {0}}, 1), kInvalid);
  EXPECT_EQ(code({{1, 1}, {1, std::numeric_limits<double>::quiet_NaN()}, {0}}, 1), kInvalid);
  EXPECT_EQ(code(Identical(100, 1, 1), 100'000), kInvalid);
  EXPECT_EQ(code(Identical(1, 0, 0), 1), absl::StatusCode::kOk);
  const Action twice = {Action::Kind::kForward, 0};
  EXPECT_EQ(SimulateActions(Identical(1, 1, 1), {{twice, twice}}, 1).status().code(), kInvalid);
  EXPECT_EQ(SimulateActions(Identical(1, 1, 1), {}, 1).status().code(), kInvalid);
}

}  // namespace
}  // namespace muster::pipeline
