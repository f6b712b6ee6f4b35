// A copy of the training state that outlives the next step. The training thread copies flat arrays
// only; any other thread converts them to the named tensors of a checkpoint.
#ifndef MUSTER_TRAINER_OPTIM_STATE_SNAPSHOT_H_
#define MUSTER_TRAINER_OPTIM_STATE_SNAPSHOT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/device.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/graph/plan.h"

namespace muster::train {

// Tensors of the whole model, or of a part of it, in the layout of checkpoint files.
struct ModelTensors {
  std::vector<Tensor> model;
  std::vector<Tensor> optimizer;
  std::vector<Tensor> average;  // empty without a moving average
};

// Tensors that one of several ranks writes: the parameters whose first element is in [begin, end)
// of the flat array, and the buffers if `buffers`. By default all tensors.
struct TensorRange {
  size_t begin = 0;
  size_t end = std::numeric_limits<size_t>::max();
  bool buffers = true;

  bool Contains(const nn::ParameterInfo& parameter) const {
    return parameter.offset >= begin && parameter.offset < end;
  }
};

// Owns the memory, which is that of the state in the range, and reuses it for later snapshots: only
// the first one allocates. Used by one thread at a time.
class StateSnapshot {
 public:
  // `slot` tells the snapshots apart that a training uses at the same time; the same on all ranks.
  explicit StateSnapshot(size_t slot = 0) : slot_(slot) {}

  size_t slot() const { return slot_; }

  // File of the checkpoint, e.g. &ModelTensors::model.
  using File = std::vector<Tensor> ModelTensors::*;

  // Begins a snapshot of the tensors in `range` after `batches` training batches (counting each
  // slice of a batch), which batch norm's num_batches_tracked is set to. Drops the previous one.
  // `plan` describes the arrays and outlives the snapshot, as does its device.
  void Begin(const nn::Plan* plan, const TensorRange& range, uint64_t batches);

  // Adds the range's elements of a flat array in the layout of the parameters, which the caller
  // copies to the returned host memory; null if the range is empty. Its tensors are named PARAMETER
  // or, with the name of an optimizer state, PARAMETER.STATE. RESOURCE_EXHAUSTED.
  absl::StatusOr<float*> AddParameters(File file, const std::string& state = "");
  // The same for a copy in the caller's host memory, aligned to 64 bytes, which the caller does not
  // use until the next Begin.
  void AddParameters(File file, const std::string& state, float* values);
  // The same, copied from a whole array in device memory.
  absl::Status CopyParameters(File file, const float* flat, const std::string& state = "");
  // Copies buffers from device memory if they are in the range.
  absl::Status CopyBuffers(File file, const float* flat);
  // Adds tensors of other ranks, which follow those of the arrays.
  void AddTensors(ModelTensors tensors) { others_ = std::move(tensors); }

  // Converts the arrays, in place, and returns their tensors, which refer to the snapshot's memory
  // until the next Begin. Called once per snapshot. Needs memory for a copy of the largest tensor.
  ModelTensors Convert();

 private:
  struct Array {
    File file;
    absl::Span<const nn::ParameterInfo> tensors;
    TensorRange range;
    std::string suffix;  // suffix of the tensors' names
    float* values;       // element range.begin
  };

  // Host memory for one more array; null for no elements.
  absl::StatusOr<float*> Allocate(size_t elements);
  void Convert(const Array& array, float* scratch, std::vector<Tensor>& tensors) const;

  const size_t slot_;
  const nn::Plan* plan_ = nullptr;
  TensorRange range_;
  uint64_t batches_ = 0;
  std::vector<Array> arrays_;
  ModelTensors others_;
  std::vector<kernels::HostMemory>
      memory_;  // one allocation per array, of this or an earlier snapshot
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_OPTIM_STATE_SNAPSHOT_H_
