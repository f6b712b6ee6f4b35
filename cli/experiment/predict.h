// What pipelines of other shapes would take, from the costs of one that ran.
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

// A model as parts in order, which stages are put together from: the stages of a pipeline that ran,
// or layers. Seconds are of one micro-batch.
struct ModelCosts {
  std::vector<std::string> names;  // as many as parts, or none
  std::vector<double> forward_seconds;
  std::vector<double> backward_seconds;
  // How many micro-batches the batch was cut into when this was measured: with more, each takes
  // less. None: each takes as long however many there are.
  std::optional<uint32_t> micro_batches;
};

// From what Muster prints as JSON: a finished job (`muster run -o json`, stages of its summary), or
// the plan of a model (`muster spec explain-plan --time -o json`, layers, one micro-batch).
// INVALID_ARGUMENT says what is missing.
absl::StatusOr<ModelCosts> ReadModelCosts(const std::string& json);

struct PredictionRequest {
  std::vector<uint32_t> stages;
  std::vector<uint32_t> micro_batches;
  std::vector<pipeline::Schedule> schedules;
  double transfer_seconds = 0;  // of one micro-batch across each cut
};

struct Prediction {
  pipeline::Schedule schedule;
  uint32_t stages;
  uint32_t micro_batches;
  std::vector<size_t> cuts;      // the part that each stage but the first begins with
  double slowest_seconds;        // forward and backward of a micro-batch, of the slowest stage
  pipeline::SimulatedStep step;  // without its actions
};

// One for each schedule, number of stages and of micro-batches, in this order. Stages are cut where
// the slowest one takes least. INVALID_ARGUMENT: more stages than parts, and the simulator's.
absl::StatusOr<std::vector<Prediction>> Predict(const ModelCosts& costs,
                                                const PredictionRequest& request);

std::string PredictionTable(const std::vector<Prediction>& predictions);
nlohmann::ordered_json PredictionsToJson(const std::vector<Prediction>& predictions,
                                         const ModelCosts& costs);

}  // namespace muster::cli

#endif  // MUSTER_CLI_EXPERIMENT_PREDICT_H_
