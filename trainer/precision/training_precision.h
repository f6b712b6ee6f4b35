// From a spec's precision to what is stored and computed in which type.
#ifndef MUSTER_TRAINER_PRECISION_TRAINING_PRECISION_H_
#define MUSTER_TRAINER_PRECISION_TRAINING_PRECISION_H_

#include <string>

#include "absl/status/statusor.h"
#include "kernels/data_type.h"
#include "proto/muster/v1/job.pb.h"
#include "trainer/graph/precision.h"

namespace muster::train {

struct TrainingPrecision {
  int level = 0;  // of O0 to O3
  nn::Precision plan;
  // What gradients are summed over the ranks in. Each rank's own are float32.
  kernels::DataType gradients = kernels::DataType::kFloat32;
  // The spec leaves `gradients` open; see ChooseGradients.
  bool automatic_gradients = false;
  // What parameters and the optimizer's states are rounded to after each update; their arrays are
  // float32 all the same.
  kernels::DataType weights = kernels::DataType::kFloat32;
};

// `spec` with its defaults filled in, or without any precision, which is O0. INVALID_ARGUMENT names
// the field.
absl::StatusOr<TrainingPrecision> PrecisionOf(const v1::TrainSpec& spec);

// `precision` for ranks that share memory, or not: adding up float32 through it takes less time
// than rounding for it would, so that there float32 is what `auto` means.
TrainingPrecision ChooseGradients(TrainingPrecision precision, bool shared_memory);

v1::PrecisionInfo PrecisionInfoOf(const TrainingPrecision& precision);

// "O0 float32", "O2 bfloat16, gradients bfloat16".
std::string PrecisionText(const TrainingPrecision& precision);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_PRECISION_TRAINING_PRECISION_H_
