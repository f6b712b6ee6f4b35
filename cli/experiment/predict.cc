#include "cli/experiment/predict.h"

#include <algorithm>
#include <exception>

#include "absl/strings/str_cat.h"
#include "cli/experiment/metrics.h"
#include "cli/output/table.h"
#include "common/pipeline/balance.h"
#include "common/status.h"
#include "nlohmann/json.hpp"

namespace muster::cli {
namespace {

using nlohmann::ordered_json;
using pipeline::PipelineCosts;

void AddPart(const std::string& name, double forward, double backward, ModelCosts& costs) {
  costs.names.push_back(name);
  costs.forward_seconds.push_back(forward);
  costs.backward_seconds.push_back(backward);
}

ModelCosts FromJob(const ordered_json& job) {
  ModelCosts costs;
  for (const ordered_json& stage : job.at("summary").at("stages")) {
    AddPart(stage.at("first_layer").get<std::string>(), stage.at("forward_seconds").get<double>(),
            stage.at("backward_seconds").get<double>(), costs);
  }
  const ordered_json::json_pointer measured("/spec/train/strategy/pipeline/micro_batches");
  if (job.contains(measured)) costs.micro_batches = job.at(measured).get<uint32_t>();
  return costs;
}

ModelCosts FromPlan(const ordered_json& plan) {
  ModelCosts costs;
  costs.micro_batches = 1;
  for (const ordered_json& operation : plan.at("operations")) {
    AddPart(operation.at("name").get<std::string>(),
            operation.at("forward_us").get<double>() * 1e-6,
            operation.at("backward_us").get<double>() * 1e-6, costs);
  }
  return costs;
}

// Costs per micro-batch if the batch is split into this many micro-batches.
double Scale(const ModelCosts& costs, uint32_t micro_batches) {
  return costs.micro_batches.has_value() ? static_cast<double>(*costs.micro_batches) / micro_batches
                                         : 1.0;
}

std::vector<double> Scaled(std::vector<double> seconds, double scale) {
  for (double& value : seconds) value *= scale;
  return seconds;
}

absl::StatusOr<Prediction> PredictOne(const ModelCosts& costs, const PredictionRequest& request,
                                      pipeline::Schedule schedule, uint32_t stages,
                                      uint32_t micro_batches) {
  if (micro_batches == 0)
    return absl::InvalidArgumentError("--micro-batches: expected numbers of at least 1");
  const double scale = Scale(costs, micro_batches);
  std::vector<double> both = costs.forward_seconds;
  for (size_t i = 0; i < both.size(); ++i) both[i] += costs.backward_seconds[i];
  Prediction prediction = {schedule, stages, micro_batches, {}, 0, {}};
  ASSIGN_OR_RETURN(prediction.cuts, pipeline::BalancedCuts(both, stages));
  for (const double seconds : pipeline::StageCosts(both, prediction.cuts)) {
    prediction.slowest_seconds = std::max(prediction.slowest_seconds, seconds * scale);
  }
  PipelineCosts of_stages;
  of_stages.forward_seconds =
      Scaled(pipeline::StageCosts(costs.forward_seconds, prediction.cuts), scale);
  of_stages.backward_seconds =
      Scaled(pipeline::StageCosts(costs.backward_seconds, prediction.cuts), scale);
  of_stages.transfer_seconds.assign(stages - 1, request.transfer_seconds * scale);
  ASSIGN_OR_RETURN(prediction.step, pipeline::SimulateStep(of_stages, schedule, micro_batches));
  prediction.step.actions.clear();
  return prediction;
}

}  // namespace

absl::StatusOr<ModelCosts> ReadModelCosts(const std::string& json) {
  try {
    const ordered_json document = ordered_json::parse(json);
    const ModelCosts costs =
        document.contains("operations") ? FromPlan(document) : FromJob(document);
    if (!costs.forward_seconds.empty()) return costs;
    return absl::InvalidArgumentError("the input has no stages or operations");
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the input is neither a finished pipeline job nor a plan with times: ", error.what()));
  }
}

absl::StatusOr<std::vector<Prediction>> Predict(const ModelCosts& costs,
                                                const PredictionRequest& request) {
  if (costs.forward_seconds.size() != costs.backward_seconds.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(costs.forward_seconds.size(), " forward times, but ",
                     costs.backward_seconds.size(), " backward times"));
  }
  std::vector<Prediction> predictions;
  for (const pipeline::Schedule schedule : request.schedules) {
    for (const uint32_t stages : request.stages) {
      for (const uint32_t micro_batches : request.micro_batches) {
        ASSIGN_OR_RETURN(Prediction prediction,
                         PredictOne(costs, request, schedule, stages, micro_batches));
        predictions.push_back(std::move(prediction));
      }
    }
  }
  return predictions;
}

std::string PredictionTable(const std::vector<Prediction>& predictions) {
  Table table({"SCHEDULE", "STAGES", "MICRO-BATCHES", "STEP", "BUBBLE", "SLOWEST STAGE",
               "ACTIVATION SLOTS"});
  for (const Prediction& prediction : predictions) {
    uint32_t slots = 0;
    for (const pipeline::SimulatedStage& stage : prediction.step.stages) {
      slots = std::max(slots, stage.peak_slots);
    }
    table.AddRow({std::string(pipeline::ScheduleName(prediction.schedule)),
                  absl::StrCat(prediction.stages), absl::StrCat(prediction.micro_batches),
                  MetricText(Unit::kSeconds, prediction.step.seconds),
                  MetricText(Unit::kRatio, prediction.step.bubble_ratio),
                  MetricText(Unit::kSeconds, prediction.slowest_seconds), absl::StrCat(slots)});
  }
  return table.Text();
}

ordered_json PredictionsToJson(const std::vector<Prediction>& predictions,
                               const ModelCosts& costs) {
  ordered_json list = ordered_json::array();
  for (const Prediction& prediction : predictions) {
    ordered_json value = {{"schedule", std::string(pipeline::ScheduleName(prediction.schedule))},
                          {"stages", prediction.stages},
                          {"micro_batches", prediction.micro_batches},
                          {"step_seconds", prediction.step.seconds},
                          {"bubble_ratio", prediction.step.bubble_ratio},
                          {"slowest_stage_seconds", prediction.slowest_seconds}};
    ordered_json& cuts = value["cuts"] = ordered_json::array();
    for (const size_t cut : prediction.cuts) {
      cuts.push_back(costs.names.empty() ? ordered_json(cut) : ordered_json(costs.names[cut]));
    }
    ordered_json& stages = value["by_stage"] = ordered_json::array();
    for (const pipeline::SimulatedStage& stage : prediction.step.stages) {
      stages.push_back(ordered_json::object({{"busy_seconds", stage.busy_seconds},
                                             {"idle_seconds", stage.idle_seconds},
                                             {"activation_slots", stage.peak_slots}}));
    }
    list.push_back(std::move(value));
  }
  return list;
}

}  // namespace muster::cli
