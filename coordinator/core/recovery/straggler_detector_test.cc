// Synthetic and noisy traces of own times, one row per window of four steps.
#include "coordinator/core/recovery/straggler_detector.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using Change = StragglerDetector::Change;
using Phase = StragglerDetector::Phase;
using ::testing::AllOf;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::IsEmpty;

constexpr uint32_t kStepsPerWindow = 4;
constexpr int kReported = 12;  // windows in a report

// Seconds that a rank's step takes.
struct StepCost {
  double compute = 0.1;
  double input = 0;
};

// Simulates the ranks of a job, each with a given number of samples per step.
class Trace {
 public:
  explicit Trace(uint32_t ranks, std::set<uint32_t> slow = {})
      : detector_(ranks, slow), reports_(ranks), samples_(ranks, 32) {}

  void set_stage(uint32_t rank, uint32_t stage) { reports_[rank].set_stage(stage); }
  void set_samples(uint32_t rank, double samples) { samples_[rank] = samples; }
  void set_asynchronous() { asynchronous_ = true; }
  // Windows after which all ranks report; rank r reports r windows later than rank 0, at most.
  void set_report_every(int windows) { report_every_ = windows; }

  using Cost = std::function<StepCost(uint32_t rank, uint64_t step)>;
  // Runs `windows` windows of steps, and reports them.
  void Run(int windows, const Cost& cost) {
    for (int i = 0; i < windows; ++i) {
      std::vector<StepCost> sums(reports_.size(), {0, 0});
      double steps = 0;
      for (uint32_t s = 0; s < kStepsPerWindow; ++s) {
        ++step_;
        double slowest = 0;
        for (uint32_t rank = 0; rank < reports_.size(); ++rank) {
          const StepCost of_step = cost(rank, step_);
          sums[rank].compute += of_step.compute;
          sums[rank].input += of_step.input;
          slowest = std::max(slowest, of_step.compute + of_step.input);
        }
        steps += slowest + 0.01;  // communication
      }
      for (uint32_t rank = 0; rank < reports_.size(); ++rank) {
        AddWindow(rank, sums[rank], steps);
      }
      ++window_;
      for (uint32_t rank = 0; rank < reports_.size(); ++rank) {
        if ((window_ + rank) % report_every_ != 0) continue;
        for (const Change& change : detector_.Add(rank, reports_[rank])) {
          changes_.push_back(change);
          noticed_.push_back(step_);
        }
      }
    }
  }

  const std::vector<Change>& changes() const { return changes_; }
  uint64_t step() const { return step_; }
  // The step at which change `index` was known.
  uint64_t noticed(size_t index) const { return noticed_[index]; }
  StragglerDetector& detector() { return detector_; }

 private:
  void AddWindow(uint32_t rank, const StepCost& sum, double steps) {
    auto& windows = *reports_[rank].mutable_windows();
    if (windows.size() == kReported) windows.DeleteSubrange(0, 1);
    v1::StepWindow& window = *windows.Add();
    window.set_last_step(step_);
    window.set_steps(kStepsPerWindow);
    if (!asynchronous_) window.set_compute_seconds(static_cast<float>(sum.compute / 4));
    window.set_input_seconds(static_cast<float>(sum.input / 4));
    window.set_step_seconds(static_cast<float>(steps / 4));
    window.set_samples(static_cast<float>(samples_[rank]));
  }

  StragglerDetector detector_;
  std::vector<v1::StepWindows> reports_;
  std::vector<double> samples_;
  bool asynchronous_ = false;
  int report_every_ = 1;
  int window_ = 0;
  uint64_t step_ = 0;
  std::vector<Change> changes_;
  std::vector<uint64_t> noticed_;
};

// Random numbers for a trace.
class Noise {
 public:
  explicit Noise(uint64_t seed) : random_(seed) {}
  double Normal(double deviation) { return deviation * normal_(random_); }
  bool Chance(double probability) { return uniform_(random_) < probability; }
  // Pareto with exponent 2: no finite variance.
  double HeavyTail(double scale) { return scale * (1 / std::sqrt(1 - uniform_(random_)) - 1); }

 private:
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
  std::uniform_real_distribution<double> uniform_;
};

std::string Text(const std::vector<Change>& changes) {
  std::string text;
  for (const Change& change : changes) {
    text += "rank " + std::to_string(change.rank) + (change.begins ? " begins" : " ends") +
            " at step " + std::to_string(change.step) + ", " + std::to_string(change.slowdown) +
            "\n";
  }
  return text;
}

TEST(StragglerDetectorTest, NamesASlowRankWithin50Steps) {
  for (const uint32_t ranks : {2u, 3u, 4u, 64u}) {
    Trace trace(ranks);
    trace.set_report_every(3);  // once a second
    trace.Run(50, [](uint32_t, uint64_t) { return StepCost(); });
    const uint64_t before = trace.step();
    trace.Run(13, [](uint32_t rank, uint64_t) { return StepCost{rank == 1 ? 0.12 : 0.1}; });
    ASSERT_EQ(trace.changes().size(), 1u) << ranks << " ranks:\n" << Text(trace.changes());
    EXPECT_LE(trace.noticed(0), before + 50);
    const Change& change = trace.changes()[0];
    EXPECT_EQ(change.rank, 1u);
    EXPECT_TRUE(change.begins);
    EXPECT_EQ(change.phase, Phase::kCompute);
    EXPECT_NEAR(change.slowdown, 1.2, 0.01);
    EXPECT_EQ(change.step, before + 1);
    EXPECT_FALSE(change.by_growth);
  }
}

// Earlier slow ranks are no noise.
TEST(StragglerDetectorTest, NamesTheNextSlowRankAsSoonAsTheFirst) {
  Noise noise(4);
  Trace trace(2);
  trace.set_report_every(3);
  const auto even = [&](uint32_t, uint64_t) {
    return StepCost{0.1 * std::exp(noise.Normal(0.03))};
  };
  trace.Run(60, even);
  for (size_t round = 0; round < 8; ++round) {
    const uint64_t before = trace.step();
    trace.Run(13, [&](uint32_t rank, uint64_t step) {
      StepCost cost = even(rank, step);
      if (rank == round % 2) cost.compute *= 1.2;
      return cost;
    });
    ASSERT_EQ(trace.changes().size(), 2 * round + 1) << Text(trace.changes());
    EXPECT_EQ(trace.changes().back().rank, round % 2);
    EXPECT_LE(trace.noticed(2 * round), before + 50);
    trace.Run(24, even);
    ASSERT_EQ(trace.changes().size(), 2 * round + 2) << Text(trace.changes());
  }
}

// 20 of 20 with a rank that other work interrupts, and noise on all ranks.
TEST(StragglerDetectorTest, NamesAnInterruptedRankAmongNoisyOnes) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Noise noise(seed);
    Trace trace(4);
    trace.set_report_every(3);
    const auto even = [&](uint32_t, uint64_t) {
      return StepCost{0.1 * std::exp(noise.Normal(0.03)) + noise.HeavyTail(0.001)};
    };
    trace.Run(100, even);
    const uint64_t before = trace.step();
    // A stop of 30 ms in five of six steps: a fifth of the time.
    trace.Run(13, [&](uint32_t rank, uint64_t step) {
      StepCost cost = even(rank, step);
      if (rank == 2 && noise.Chance(5.0 / 6)) cost.compute += 0.03;
      return cost;
    });
    ASSERT_EQ(trace.changes().size(), 1u) << "seed " << seed << ":\n" << Text(trace.changes());
    EXPECT_EQ(trace.changes()[0].rank, 2u);
    EXPECT_LE(trace.noticed(0), before + 50) << "seed " << seed;
  }
}

// Slow almost from the start, when the noise is not known yet.
TEST(StragglerDetectorTest, NamesASlowRankInSpiteOfNoise) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Noise noise(seed);
    Trace trace(2);
    trace.Run(300, [&](uint32_t rank, uint64_t step) {
      const double cost = 0.1 * std::exp(noise.Normal(0.16));  // 8 % per window
      return StepCost{rank == 1 && step > 40 ? 1.28 * cost : cost};
    });
    ASSERT_FALSE(trace.changes().empty()) << "seed " << seed;
    EXPECT_EQ(trace.changes()[0].rank, 1u) << "seed " << seed;
    EXPECT_LE(trace.noticed(0), 400u) << "seed " << seed;
  }
}

TEST(StragglerDetectorTest, ReportsBeginAndEndOnce) {
  Noise noise(5);
  Trace trace(4);
  const auto even = [&](uint32_t, uint64_t) {
    return StepCost{0.1 * std::exp(noise.Normal(0.05))};
  };
  trace.Run(30, even);
  trace.Run(300, [&](uint32_t rank, uint64_t step) {
    StepCost cost = even(rank, step);
    if (rank == 3) cost.compute *= 1.25;
    return cost;
  });
  trace.Run(300, even);
  EXPECT_THAT(trace.changes(),
              ElementsAre(AllOf(Field(&Change::rank, 3u), Field(&Change::begins, true)),
                          AllOf(Field(&Change::rank, 3u), Field(&Change::begins, false))))
      << Text(trace.changes());
  EXPECT_THAT(trace.detector().slowdown(3), DoubleNear(1, 0.1));
}

// Between the limits for begin and end, a rank stays what it is.
TEST(StragglerDetectorTest, HasHysteresis) {
  Trace trace(4);
  const auto slower_by = [](double factor) {
    return [factor](uint32_t rank, uint64_t) { return StepCost{rank == 0 ? 0.1 * factor : 0.1}; };
  };
  trace.Run(100, slower_by(1.08));
  EXPECT_THAT(trace.changes(), IsEmpty());
  trace.Run(20, slower_by(1.2));
  EXPECT_EQ(trace.changes().size(), 1u);
  trace.Run(100, slower_by(1.08));
  EXPECT_EQ(trace.changes().size(), 1u);
  trace.Run(20, slower_by(1.02));
  EXPECT_EQ(trace.changes().size(), 2u);
}

TEST(StragglerDetectorTest, NamesASlowLoader) {
  Noise noise(3);
  Trace trace(4);
  trace.Run(60, [&](uint32_t rank, uint64_t) {
    return StepCost{0.1 * std::exp(noise.Normal(0.03)), rank == 1 ? 0.03 : 0.0005};
  });
  ASSERT_EQ(trace.changes().size(), 1u) << Text(trace.changes());
  EXPECT_EQ(trace.changes()[0].rank, 1u);
  EXPECT_EQ(trace.changes()[0].phase, Phase::kInput);
  EXPECT_NEAR(trace.changes()[0].slowdown, 1.3, 0.05);
}

TEST(StragglerDetectorTest, NamesASlowLoaderOfAnAsynchronousDevice) {
  Trace trace(4);
  trace.set_asynchronous();
  trace.Run(60, [&](uint32_t rank, uint64_t) { return StepCost{0.1, rank == 1 ? 0.03 : 0.0}; });
  ASSERT_EQ(trace.changes().size(), 1u) << Text(trace.changes());
  EXPECT_EQ(trace.changes()[0].rank, 1u);
  EXPECT_EQ(trace.changes()[0].phase, Phase::kInput);
  EXPECT_NEAR(trace.changes()[0].slowdown, 0.14 / 0.11, 0.01);
}

// Losses of all ranks to the same cause, and tails without a finite variance on each.
// Own times that vary by more than 10 %, and single steps that take many times as long as others,
// are as much as the detector is to bear: of trainings of 5,000 steps, at most one in ten may have
// a rank that is named although it is not slow.
TEST(StragglerDetectorTest, FindsHardlyAnythingInHeavyTailedNoise) {
  int trainings = 0, with_changes = 0;
  std::string found;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    for (const uint32_t ranks : {2u, 4u, 16u}) {
      Noise noise(100 * seed + ranks);
      Trace trace(ranks);
      double common = 1;
      uint64_t last = 0;
      trace.Run(1250, [&](uint32_t, uint64_t step) {
        if (step != last) common = std::exp(noise.Normal(0.3)) + noise.HeavyTail(0.2);
        last = step;
        return StepCost{0.1 * common * std::exp(noise.Normal(0.1)) + noise.HeavyTail(0.01),
                        noise.HeavyTail(0.001)};
      });
      ++trainings;
      if (trace.changes().empty()) continue;
      ++with_changes;
      found += std::to_string(ranks) + " ranks:\n" + Text(trace.changes());
    }
  }
  EXPECT_LE(with_changes, trainings / 10) << found;
}

// A neighbor that moves from core to core slows down one rank after the other, each for up to two
// seconds.
TEST(StragglerDetectorTest, FindsNothingUnderAMovingLoad) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Noise noise(seed);
    Trace trace(2);
    uint32_t victim = 0;
    uint64_t since = 0;
    trace.Run(1250, [&](uint32_t rank, uint64_t step) {
      if (rank == 0 && (noise.Chance(0.1) || step == since + 20)) {
        victim = 1 - victim;
        since = step;
      }
      return StepCost{rank == victim ? 0.15 : 0.1};
    });
    EXPECT_THAT(trace.changes(), IsEmpty()) << "seed " << seed << ":\n" << Text(trace.changes());
  }
}

// With short steps, two seconds are many windows.
TEST(StragglerDetectorTest, NamesARankAfterThreeSecondsOfShortSteps) {
  Trace trace(2);
  const auto even = [](uint32_t, uint64_t) { return StepCost{0.02}; };
  const auto slow = [](uint32_t rank, uint64_t) { return StepCost{rank == 1 ? 0.026 : 0.02}; };
  trace.Run(100, even);
  for (int i = 0; i < 3; ++i) {
    trace.Run(17, slow);  // of 4 steps of 36 ms: 2.4 s
    trace.Run(20, even);
  }
  EXPECT_THAT(trace.changes(), IsEmpty()) << Text(trace.changes());
  trace.Run(100, even);
  trace.Run(26, slow);  // 3.7 s
  ASSERT_EQ(trace.changes().size(), 1u) << Text(trace.changes());
  EXPECT_EQ(trace.changes()[0].rank, 1u);
}

TEST(StragglerDetectorTest, IgnoresPausesOfAHost) {
  Trace trace(4);
  trace.Run(600, [](uint32_t rank, uint64_t step) {
    // Ranks 2 and 3 share a host that stops for two seconds every 100 steps.
    const bool paused = rank >= 2 && step % 100 == 50;
    return StepCost{paused ? 2.1 : 0.1};
  });
  EXPECT_THAT(trace.changes(), IsEmpty()) << Text(trace.changes());
}

TEST(StragglerDetectorTest, IgnoresASlowStart) {
  Trace trace(4);
  trace.Run(60, [](uint32_t rank, uint64_t step) {
    // Rank 0 needs longer to fill its caches.
    return StepCost{0.1 * (1 + (rank == 0 ? 5.0 : 1.0) * std::exp(-static_cast<double>(step) / 4))};
  });
  EXPECT_THAT(trace.changes(), IsEmpty()) << Text(trace.changes());
}

// 10 samples on 4 ranks, with a fixed cost per step.
TEST(StragglerDetectorTest, AllowsForUnequalShares) {
  const std::vector<double> samples = {2, 3, 2, 3};
  const auto cost = [&](uint32_t rank) { return 0.03 + 0.02 * samples[rank]; };
  Trace trace(4);
  for (uint32_t rank = 0; rank < 4; ++rank) trace.set_samples(rank, samples[rank]);
  trace.Run(100, [&](uint32_t rank, uint64_t) { return StepCost{cost(rank)}; });
  EXPECT_THAT(trace.changes(), IsEmpty()) << Text(trace.changes());
  trace.Run(20,
            [&](uint32_t rank, uint64_t) { return StepCost{cost(rank) * (rank == 1 ? 1.5 : 1)}; });
  ASSERT_EQ(trace.changes().size(), 1u) << Text(trace.changes());
  EXPECT_EQ(trace.changes()[0].rank, 1u);
}

// Stages have different work; the replicas of a stage have the same.
TEST(StragglerDetectorTest, ComparesTheReplicasOfAStage) {
  Trace trace(4);
  for (uint32_t rank = 0; rank < 4; ++rank) trace.set_stage(rank, rank % 2);
  const auto cost = [](uint32_t rank) { return rank % 2 == 0 ? 0.05 : 0.1; };
  trace.Run(50, [&](uint32_t rank, uint64_t) { return StepCost{cost(rank)}; });
  EXPECT_THAT(trace.changes(), IsEmpty()) << Text(trace.changes());
  trace.Run(20,
            [&](uint32_t rank, uint64_t) { return StepCost{cost(rank) * (rank == 2 ? 1.3 : 1)}; });
  ASSERT_EQ(trace.changes().size(), 1u) << Text(trace.changes());
  EXPECT_EQ(trace.changes()[0].rank, 2u);
  EXPECT_FALSE(trace.changes()[0].by_growth);
}

TEST(StragglerDetectorTest, ComparesTheGrowthOfStagesWithOneRank) {
  Noise noise(2);
  Trace trace(3);
  for (uint32_t rank = 0; rank < 3; ++rank) trace.set_stage(rank, rank);
  double load = 1;
  const auto cost = [&](uint32_t rank) {
    return load * (0.05 + 0.03 * rank) * std::exp(noise.Normal(0.03));
  };
  trace.Run(50, [&](uint32_t rank, uint64_t) { return StepCost{cost(rank)}; });
  load = 1.4;  // of the whole machine
  trace.Run(50, [&](uint32_t rank, uint64_t) { return StepCost{cost(rank)}; });
  EXPECT_THAT(trace.changes(), IsEmpty()) << Text(trace.changes());
  trace.Run(20,
            [&](uint32_t rank, uint64_t) { return StepCost{cost(rank) * (rank == 0 ? 1.25 : 1)}; });
  ASSERT_EQ(trace.changes().size(), 1u) << Text(trace.changes());
  EXPECT_EQ(trace.changes()[0].rank, 0u);
  EXPECT_TRUE(trace.changes()[0].by_growth);
  EXPECT_NEAR(trace.changes()[0].slowdown, 1.25, 0.1);
}

// Steps consist of communication, so that 20 % more computation costs 2 %.
TEST(StragglerDetectorTest, IgnoresWhatCostsHardlyAnything) {
  Trace trace(4);
  trace.Run(100, [](uint32_t rank, uint64_t) { return StepCost{rank == 0 ? 0.0012 : 0.001}; });
  EXPECT_THAT(trace.changes(), IsEmpty()) << Text(trace.changes());
}

TEST(StragglerDetectorTest, WaitsForTheWindowsOfAllRanks) {
  StragglerDetector detector(2, {});
  v1::StepWindows windows;
  for (uint64_t i = 1; i <= 100; ++i) {
    windows.clear_windows();
    v1::StepWindow& window = *windows.add_windows();
    window.set_last_step(4 * i);
    window.set_steps(4);
    window.set_compute_seconds(0.1f);
    EXPECT_THAT(detector.Add(0, windows), IsEmpty());
    // A window of another length is not compared.
    window.set_steps(3);
    window.set_compute_seconds(0.2f);
    EXPECT_THAT(detector.Add(1, windows), IsEmpty());
  }
  EXPECT_EQ(detector.slowdown(0), 0);
}

TEST(StragglerDetectorTest, GoesOnFromTheStragglersOfAnEarlierDetector) {
  Trace trace(4, {1, 2, 17});
  trace.Run(20, [](uint32_t rank, uint64_t) { return StepCost{rank == 1 ? 0.12 : 0.1}; });
  // Rank 1 still is slow, and rank 2 is not.
  ASSERT_EQ(trace.changes().size(), 1u) << Text(trace.changes());
  EXPECT_EQ(trace.changes()[0].rank, 2u);
  EXPECT_FALSE(trace.changes()[0].begins);
}

}  // namespace
}  // namespace muster::core
