// Predicts step times of pipelines with other numbers of stages and micro-batches from measured
// costs.
#ifndef MUSTER_CLI_EXPERIMENT_PREDICT_H_
#define MUSTER_CLI_EXPERIMENT_PREDICT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/pipeline/schedule.h"
#include "common/pipeline/simulator.h"
#include "nlohmann/json_fwd.hpp"

namespace muster::cli {

// A model as a sequence of parts of which stages are composed: the stages of a pipeline that ran,
// or layers. Seconds are per micro-batch.
struct ModelCosts {
  std::vector<std::string> names;  // one per part, or empty
  std::vector<double> forward_seconds;
  std::vector<double> backward_seconds;
  // Number of micro-batches of the measured run: with more, each takes less time. If not set, each
  // takes the same time, whatever their number.
  std::optional<uint32_t> micro_batches;
};

// Reads costs from Muster's JSON output: a finished job (`muster run -o json`; stages of its
// summary), or the plan of a model (`muster spec explain-plan --time -o json`; layers, one
// micro-batch). INVALID_ARGUMENT names what is missing.
absl::StatusOr<ModelCosts> ReadModelCosts(const std::string& json);

struct PredictionRequest {
  std::vector<uint32_t> stages;
  std::vector<uint32_t> micro_batches;
  std::vector<pipeline::Schedule> schedules;
  double transfer_seconds = 0;  // time to send one micro-batch to the adjacent stage
};

struct Prediction {
  pipeline::Schedule schedule;
  uint32_t stages;
  uint32_t micro_batches;
  std::vector<size_t> cuts;      // the first part of each stage but the first one
  double slowest_seconds;        // forward and backward of a micro-batch in the slowest stage
  pipeline::SimulatedStep step;  // its actions are empty
};

// One prediction per schedule, number of stages and number of micro-batches, in this order. Cuts
// minimise the time of the slowest stage. INVALID_ARGUMENT for more stages than parts, and the
// simulator's errors.
absl::StatusOr<std::vector<Prediction>> Predict(const ModelCosts& costs,
                                                const PredictionRequest& request);

std::string PredictionTable(const std::vector<Prediction>& predictions);
nlohmann::ordered_json PredictionsToJson(const std::vector<Prediction>& predictions,
                                         const ModelCosts& costs);

}  // namespace muster::cli

#endif  // MUSTER_CLI_EXPERIMENT_PREDICT_H_
