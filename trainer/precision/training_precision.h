// Maps a spec's precision settings to data types for storage and computation.
#ifndef MUSTER_TRAINER_PRECISION_TRAINING_PRECISION_H_
#define MUSTER_TRAINER_PRECISION_TRAINING_PRECISION_H_

#include <string>

#include "absl/status/statusor.h"
#include "kernels/data_type.h"
#include "proto/muster/v1/job.pb.h"
#include "trainer/graph/precision.h"

namespace muster::train {

struct TrainingPrecision {
  int level = 0;  // 0 to 3 for O0 to O3
  nn::Precision plan;
  // Type in which gradients are reduced over the ranks. Each rank's own gradients are float32.
  kernels::DataType gradients = kernels::DataType::kFloat32;
  // `gradients` is automatic in the spec; see ChooseGradients.
  bool automatic_gradients = false;
  // Type to which parameters and optimizer states are rounded after each update; their arrays
  // remain float32.
  kernels::DataType weights = kernels::DataType::kFloat32;
};

// `spec` must have its defaults filled in, or no precision, which means O0. INVALID_ARGUMENT names
// the field.
absl::StatusOr<TrainingPrecision> PrecisionOf(const v1::TrainSpec& spec);

// Resolves automatic gradients: float32 for ranks that share memory, where adding float32 is faster
// than rounding it.
TrainingPrecision ChooseGradients(TrainingPrecision precision, bool shared_memory);

v1::PrecisionInfo PrecisionInfoOf(const TrainingPrecision& precision);

// E.g. "O0 float32" or "O2 bfloat16, gradients bfloat16".
std::string PrecisionText(const TrainingPrecision& precision);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_PRECISION_TRAINING_PRECISION_H_
