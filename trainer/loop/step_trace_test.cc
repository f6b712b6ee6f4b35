#include "trainer/loop/step_trace.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace muster::train {
namespace {

using nlohmann::json;

class StepTraceTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove_all(directory_); }

  Time At(absl::Duration since_start) const {
    return {SteadyTime(absl::Hours(1) + since_start),
            absl::FromUnixSeconds(1'800'000'000) + since_start};
  }
  std::string PathOf(uint64_t generation) const {
    return directory_ + "/.muster-trace/generation-" + std::to_string(generation) + ".jsonl";
  }
  // Records a trace of generation 1 and returns the lines of its file.
  template <typename Record>
  std::vector<json> Recorded(bool synchronous, Record record) {
    {
      StepTrace trace(directory_, 1, "node-\"1", 3, synchronous, At(absl::ZeroDuration()));
      record(trace);
    }
    return Lines(1);
  }
  std::vector<json> Lines(uint64_t generation) const {
    std::ifstream file(PathOf(generation));
    std::vector<json> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line));
    return lines;
  }
  static std::vector<uint64_t> StepsOf(const std::vector<json>& lines) {
    std::vector<uint64_t> steps;
    for (const json& line : lines) {
      if (line.contains("step")) steps.push_back(line["step"]);
    }
    return steps;
  }

  const std::string directory_ = ::testing::TempDir() + "step_trace_test";
  const StepTimes times_ = {absl::Milliseconds(10), absl::Milliseconds(1), absl::Milliseconds(2),
                            absl::Milliseconds(6)};
};

TEST_F(StepTraceTest, WritesPhasesAndStepsOfTheNodesClock) {
  const std::vector<json> lines = Recorded(/*synchronous=*/true, [this](StepTrace& trace) {
    trace.SetPhase("loading-data", At(absl::ZeroDuration()));
    trace.SetPhase("training", At(absl::Milliseconds(1500)));
    trace.SetPhase("training", At(absl::Milliseconds(1600)));
    trace.AddStep(1, times_, At(absl::Milliseconds(1700)));
  });
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0], json({{"generation", 1}, {"rank", 3}, {"node", "node-\"1"}}));
  EXPECT_EQ(lines[1], json({{"phase", "loading-data"}, {"time", 1'800'000'000.0}}));
  EXPECT_EQ(lines[2], json({{"phase", "training"}, {"time", 1'800'000'001.5}}));
  EXPECT_EQ(lines[3], json({{"step", 1},
                            {"end", 1'800'000'001.7},
                            {"seconds", 0.01},
                            {"data_wait", 0.001},
                            {"compute", 0.006},
                            {"communication", 0.002}}));
}

TEST_F(StepTraceTest, AsynchronousDevicesHaveTheTimeOfLaunching) {
  const std::vector<json> lines = Recorded(/*synchronous=*/false, [this](StepTrace& trace) {
    trace.AddStep(1, times_, At(absl::Milliseconds(10)));
  });
  EXPECT_EQ(lines.back()["launch"], 0.006);
  EXPECT_FALSE(lines.back().contains("compute"));
}

TEST_F(StepTraceTest, WindowsGetRarerAsTheGenerationGetsOlder) {
  const std::vector<uint64_t> steps = StepsOf(Recorded(true, [this](StepTrace& trace) {
    for (int step = 1; step <= 40'000; ++step) {
      trace.AddStep(step, times_, At(step * absl::Milliseconds(10)));
    }
  }));
  ASSERT_EQ(steps.size() % StepTrace::kWindowSteps, 0u);
  EXPECT_EQ(steps[0], 1u);
  EXPECT_EQ(steps[15], 16u);
  EXPECT_EQ(steps[16], 116u);  // a second later
  // 400 s in: a tenth of the age apart.
  const uint64_t gap = steps[steps.size() - 16] - steps[steps.size() - 17];
  EXPECT_GT(gap, 2000u);
  EXPECT_LT(gap, 5000u);
}

TEST_F(StepTraceTest, SizeIsBounded) {
  const std::vector<json> lines = Recorded(true, [this](StepTrace& trace) {
    for (int i = 0; i < 2 * StepTrace::kMaxPhases; ++i) {
      trace.SetPhase(i % 2 == 0 ? "training" : "evaluating", At(absl::Seconds(i)));
    }
    absl::Duration age = absl::Seconds(1);
    for (uint64_t step = 4'000'000'000; step < 4'000'020'000; ++step) {
      trace.AddStep(step, times_, At(age));
      age *= 1.001;
    }
  });
  EXPECT_EQ(StepsOf(lines).size(),
            static_cast<size_t>(StepTrace::kMaxWindows * StepTrace::kWindowSteps));
  EXPECT_LT(std::filesystem::file_size(PathOf(1)), 512u << 10);
}

TEST_F(StepTraceTest, KeepsTheNewestGenerations) {
  for (uint64_t generation = 1; generation <= 6; ++generation) {
    StepTrace trace(directory_, generation, "node-1", 0, true, At(absl::ZeroDuration()));
  }
  for (uint64_t generation = 1; generation <= 6; ++generation) {
    EXPECT_EQ(std::filesystem::exists(PathOf(generation)), generation >= 3) << generation;
  }
}

TEST_F(StepTraceTest, FolderThatCannotBeWrittenEndsOnlyTheTrace) {
  std::ofstream(directory_) << "a file";
  EXPECT_TRUE(Recorded(true, [this](StepTrace& trace) {
                trace.SetPhase("training", At(absl::ZeroDuration()));
                trace.AddStep(1, times_, At(absl::ZeroDuration()));
              }).empty());
}

}  // namespace
}  // namespace muster::train
