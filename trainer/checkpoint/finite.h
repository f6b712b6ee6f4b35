// Checks that tensors are finite, so that a diverged training does not replace good checkpoints.
#ifndef MUSTER_TRAINER_CHECKPOINT_FINITE_H_
#define MUSTER_TRAINER_CHECKPOINT_FINITE_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "trainer/checkpoint/safetensors.h"

namespace muster::train {

// INVALID_ARGUMENT with exit code kExitDiverged if a value is NaN or infinite: names `file`, the
// first such tensor and the number of its values that are not finite.
absl::Status CheckFinite(absl::string_view file, absl::Span<const Tensor> tensors);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_CHECKPOINT_FINITE_H_
