#include "cli/experiment/predict.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace muster::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kJob[] = R"({
  "spec": {"train": {"strategy": {"pipeline": {"micro_batches": 4}}}},
  "summary": {"stages": [
    {"first_layer": "conv1", "forward_seconds": 1, "backward_seconds": 2},
    {"first_layer": "layer2", "forward_seconds": 1, "backward_seconds": 2},
    {"first_layer": "layer3", "forward_seconds": 2, "backward_seconds": 4}]}})";

TEST(Predict, PredictsFromAFinishedJob) {
  const absl::StatusOr<ModelCosts> costs = ReadModelCosts(kJob);
  ASSERT_TRUE(costs.ok()) << costs.status();
  EXPECT_EQ(costs->micro_batches, 4u);
  const absl::StatusOr<std::vector<Prediction>> predictions =
      Predict(*costs, {{1, 2}, {4, 8}, {pipeline::Schedule::kGpipe}});
  ASSERT_TRUE(predictions.ok()) << predictions.status();
  ASSERT_EQ(predictions->size(), 4u);
  // One stage: 12 seconds for each of the 4 micro-batches, or 6 for each of 8.
  EXPECT_EQ((*predictions)[0].step.seconds, 48);
  EXPECT_EQ((*predictions)[1].step.seconds, 48);
  // Two stages of 6 seconds: m + 1 time slots.
  EXPECT_THAT((*predictions)[2].cuts, ElementsAre(2));
  EXPECT_EQ((*predictions)[2].step.seconds, 6 * 5);
  EXPECT_DOUBLE_EQ((*predictions)[2].step.bubble_ratio, 0.2);
  EXPECT_EQ((*predictions)[3].step.seconds, 3 * 9);
  EXPECT_EQ((*predictions)[3].slowest_seconds, 3);
  EXPECT_THAT(PredictionTable(*predictions), HasSubstr("gpipe     2       4"));
  const nlohmann::ordered_json json = PredictionsToJson(*predictions, *costs);
  EXPECT_EQ(json[2]["cuts"][0], "layer3");
  EXPECT_EQ(json[2]["by_stage"][1]["activation_slots"], 4);
}

TEST(Predict, PredictsFromAPlan) {
  const absl::StatusOr<ModelCosts> costs = ReadModelCosts(
      R"({"operations": [{"name": "a", "forward_us": 1e6, "backward_us": 2e6},
                         {"name": "b", "forward_us": 1e6, "backward_us": 2e6}]})");
  ASSERT_TRUE(costs.ok()) << costs.status();
  const absl::StatusOr<std::vector<Prediction>> predictions =
      Predict(*costs, {{2}, {3}, {pipeline::Schedule::kOneForwardOneBackward}});
  ASSERT_TRUE(predictions.ok());
  // A third of the batch takes a second; 3 + 1 time slots.
  EXPECT_DOUBLE_EQ((*predictions)[0].step.seconds, 4);
}

TEST(Predict, PredictsWithTransfersFromNumbers) {
  ModelCosts costs;
  costs.forward_seconds = {1, 1};
  costs.backward_seconds = {1, 1};
  PredictionRequest request = {{2}, {1, 2}, {pipeline::Schedule::kSequential}, 5};
  const absl::StatusOr<std::vector<Prediction>> predictions = Predict(costs, request);
  ASSERT_TRUE(predictions.ok());
  EXPECT_EQ((*predictions)[0].step.seconds, 14);
  EXPECT_EQ((*predictions)[1].step.seconds, 28);  // each takes the same time, whatever their number
}

TEST(Predict, RejectsInputWithoutTimes) {
  EXPECT_THAT(std::string(ReadModelCosts(R"({"summary": {}})").status().message()),
              HasSubstr("neither a finished pipeline job nor a plan with times"));
  EXPECT_FALSE(ReadModelCosts(R"({"operations": [{"name": "a"}]})").ok());
  EXPECT_FALSE(ReadModelCosts(R"({"operations": []})").ok());
  EXPECT_FALSE(ReadModelCosts("not json").ok());
  ModelCosts costs;
  costs.forward_seconds = {1, 1};
  EXPECT_FALSE(Predict(costs, {{1}, {1}, {pipeline::Schedule::kGpipe}}).ok());
  costs.backward_seconds = {1, 1};
  EXPECT_FALSE(Predict(costs, {{3}, {1}, {pipeline::Schedule::kGpipe}}).ok());
  EXPECT_FALSE(Predict(costs, {{1}, {0}, {pipeline::Schedule::kGpipe}}).ok());
}

}  // namespace
}  // namespace muster::cli
