#include "trainer/optim/state_snapshot.h"

#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/status.h"
#include "glog/logging.h"
#include "kernels/aligned_floats.h"

namespace muster::train {
namespace {

size_t CountOf(const nn::ParameterInfo& tensor) {
  size_t count = 1;
  for (const int64_t dimension : tensor.shape) count *= static_cast<size_t>(dimension);
  return count;
}

}  // namespace

void StateSnapshot::Begin(const nn::Plan* plan, const TensorRange& range, uint64_t batches) {
  plan_ = plan;
  range_ = range;
  range_.end = std::min(range.end, plan->parameter_elements());
  batches_ = batches;
  arrays_.clear();
  others_ = ModelTensors();
}

absl::StatusOr<float*> StateSnapshot::Allocate(size_t elements) {
  const size_t index = arrays_.size();
  if (index == memory_.size()) memory_.emplace_back();
  kernels::HostMemory& memory = memory_[index];
  const size_t bytes = elements * sizeof(float);
  if (memory.bytes() < bytes) {
    ASSIGN_OR_RETURN(memory, plan_->device().AllocateHost(bytes));
    // Touches all pages here, so that later snapshots have no page faults.
    std::memset(memory.data(), 0, bytes);
  }
  return elements > 0 ? memory.as<float>() : nullptr;
}

absl::StatusOr<float*> StateSnapshot::AddParameters(File file, const std::string& state) {
  ASSIGN_OR_RETURN(float* const values, Allocate(range_.end - range_.begin));
  AddParameters(file, state, values);
  return values;
}

void StateSnapshot::AddParameters(File file, const std::string& state, float* values) {
  arrays_.push_back({.file = file,
                     .tensors = plan_->parameters(),
                     .range = range_,
                     .suffix = state.empty() ? "" : absl::StrCat(".", state),
                     .values = values});
}

absl::Status StateSnapshot::CopyParameters(File file, const float* flat, const std::string& state) {
  ASSIGN_OR_RETURN(float* const values, AddParameters(file, state));
  if (values == nullptr) return absl::OkStatus();
  plan_->device().CopyToHost(values, flat + range_.begin,
                             (range_.end - range_.begin) * sizeof(float));
  return absl::OkStatus();
}

absl::Status StateSnapshot::CopyBuffers(File file, const float* flat) {
  const size_t elements = range_.buffers ? plan_->buffer_elements() : 0;
  if (elements == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(float* const values, Allocate(elements));
  plan_->device().CopyToHost(values, flat, elements * sizeof(float));
  arrays_.push_back(
      {.file = file, .tensors = plan_->buffers(), .range = {}, .suffix = "", .values = values});
  return absl::OkStatus();
}

ModelTensors StateSnapshot::Convert() {
  size_t largest = 0;
  for (const Array& array : arrays_) {
    for (const nn::ParameterInfo& tensor : array.tensors) {
      if (array.range.Contains(tensor)) largest = std::max(largest, tensor.count);
    }
  }
  const kernels::AlignedFloats scratch = kernels::MakeAlignedFloats(largest);
  ModelTensors converted;
  for (const Array& array : arrays_) Convert(array, scratch.get(), converted.*array.file);
  for (const File file : {&ModelTensors::model, &ModelTensors::optimizer, &ModelTensors::average}) {
    std::move((others_.*file).begin(), (others_.*file).end(), std::back_inserter(converted.*file));
  }
  return converted;
}

void StateSnapshot::Convert(const Array& array, float* scratch,
                            std::vector<Tensor>& tensors) const {
  for (const nn::ParameterInfo& tensor : array.tensors) {
    if (!array.range.Contains(tensor)) continue;
    // Padding makes a tensor in the plan's layout at least as large as in the canonical order.
    const absl::Span<float> values(array.values + (tensor.offset - array.range.begin),
                                   CountOf(tensor));
    CHECK_LE(values.size(), tensor.count) << tensor.name;
    std::copy_n(values.data(), tensor.count, scratch);
    // Cannot fail: name and size are the plan's own.
    const absl::Status exported = plan_->ExportTensor(scratch, tensor, values);
    LOG_IF(DFATAL, !exported.ok()) << tensor.name << ": " << exported;
    tensors.push_back(
        {absl::StrCat(tensor.name, array.suffix), tensor.shape, absl::Span<const float>(values)});
    // PyTorch counts a batch norm's training batches in a separate buffer.
    absl::string_view layer = tensor.name;
    if (absl::ConsumeSuffix(&layer, "running_var")) {
      tensors.push_back({absl::StrCat(layer, "num_batches_tracked"),
                         {},
                         std::vector<int64_t>{static_cast<int64_t>(batches_)}});
    }
  }
}

}  // namespace muster::train
