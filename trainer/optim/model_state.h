// The state that training changes, as named tensors: parameters and buffers, optimizer states, and
// their moving average.
//
// Together with the number of steps this is the complete state: learning rate, sample order,
// augmentation and dropout are functions of the spec and the step.
#ifndef MUSTER_TRAINER_OPTIM_MODEL_STATE_H_
#define MUSTER_TRAINER_OPTIM_MODEL_STATE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "collectives/communicator.h"
#include "kernels/data_type.h"
#include "kernels/device_floats.h"
#include "trainer/checkpoint/memory_checkpoint.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/checkpoint/tensor_set.h"
#include "trainer/graph/plan.h"
#include "trainer/optim/ema.h"
#include "trainer/optim/optimizer.h"
#include "trainer/optim/state_snapshot.h"

namespace muster::train {

// Owns the plan's arrays, in its device's memory, except for gradients and parameters that are
// bound to external memory. Used by one training thread.
class ModelState {
 public:
  // Binds the arrays, initially zero, without gradients. `optimizer` is null if nothing is trained.
  // `averages` keeps a moving average. The arrays are bound to `execution`, whose layout `plan`
  // describes, or to `plan` if it is null. All three outlive the state. RESOURCE_EXHAUSTED if out
  // of device memory.
  static absl::StatusOr<ModelState> Create(nn::Plan* plan, Optimizer* optimizer,
                                           bool averages = false,
                                           nn::Execution* execution = nullptr);

  // Rebinds the arrays with these gradients.
  void BindGradients(float* gradients);
  // Rebinds the arrays with the parameters in external memory of the same size, which must be zero.
  void BindParameters(float* parameters);
  float* parameters() { return parameters_; }
  float* buffers() { return buffers_.get(); }

  // Rounds the parameters to the nearest values of `type`; the array remains float32.
  // RESOURCE_EXHAUSTED if out of device memory.
  absl::Status RoundParameters(kernels::DataType type);

  // Called after an update; does nothing without an average.
  void UpdateAverage(const kernels::UpdateScalars* scalars);
  // Runs `work` with the plan bound to the average, or to the model itself if there is none.
  // Returns its status.
  absl::Status WithAverage(const std::function<absl::Status()>& work);

  // Copies the tensors in the range of `snapshot`, which has begun, except for optimizer states: to
  // the file `model` and, if there is an average, to `average`. RESOURCE_EXHAUSTED.
  absl::Status CopyTo(StateSnapshot& snapshot) const;

  // Sets the layers of the whole model. Files may contain tensors of these layers that this rank
  // does not have.
  void set_layers(std::set<std::string, std::less<>> names) { layers_ = std::move(names); }

  // The file, or set of files, must contain every tensor of the model, as floats and with the right
  // shape; unknown tensors are logged. NOT_FOUND, INVALID_ARGUMENT, or TensorSet::Open's errors.
  absl::Status ImportModel(const std::string& path);
  absl::Status ImportModel(const TensorSet& tensors);
  // Initializes the model from a file of another training. Tensors whose names start with one of
  // `excluded` keep their values. Errors mention train.init_exclude.
  absl::Status InitializeFrom(const std::string& path, absl::Span<const std::string> excluded);
  absl::Status InitializeFrom(const TensorSet& tensors, absl::Span<const std::string> excluded);
  // The optimizer must keep all states. A state that the file has for no parameter, as after
  // training without momentum, is set to zero. A tensor named PARAMETER is read as its momentum.
  absl::Status ImportOptimizer(const std::string& path);
  absl::Status ImportOptimizer(const TensorSet& tensors);
  // Does nothing without an average.
  absl::Status ImportAverage(const std::string& path);
  absl::Status ImportAverage(const TensorSet& tensors);
  // Initializes the average with the model's current values, e.g. for a checkpoint without one.
  void StartAverage();

  // The range of all arrays in the plan's layout: parameters, buffers, their average and the
  // optimizer's states, of which it must keep this range. In device memory.
  std::vector<StateArray> Arrays(const TensorRange& range = {});
  // Called once, before the methods below. RESOURCE_EXHAUSTED.
  absl::Status PrepareToKeepBuffers();
  // Keeps a copy of the buffers, which forward passes change; restores it after a step that failed.
  void KeepBuffers();
  void RestoreBuffers();
  // Called after UpdateController::Decide; restores the copy on the device if the update is
  // skipped. Does nothing without PrepareToKeepBuffers. Only issues device calls.
  void RestoreBuffersOfSkippedStep(const kernels::UpdateScalars* scalars);

  // Exports the parameters only.
  std::vector<Tensor> ExportParameters() const;
  // Exports all tensors, as the files of a checkpoint have them. The optimizer must keep all
  // states.
  ModelTensors Export();
  // SHA-256 of the names, shapes and values of all parameters in model order; independent of their
  // layout in memory.
  static std::string WeightsDigest(absl::Span<const Tensor> parameters);
  std::string WeightsDigest() const { return WeightsDigest(ExportParameters()); }

  // Arrays that Broadcast sends in addition to parameters and buffers, and their order.
  struct BroadcastOptions {
    bool resuming = false;   // also the average and the complete optimizer states
    bool canonical = false;  // in the canonical order, because the ranks' layouts differ
  };
  // Collective. Broadcasts `root`'s state. Returns the communicator's errors.
  absl::Status Broadcast(collectives::Communicator& communicator, uint32_t root,
                         const BroadcastOptions& options);
  // Collective. Broadcasts only the buffers that the plan is bound to, because batch norm's running
  // statistics differ between ranks.
  absl::Status BroadcastBuffers(collectives::Communicator& communicator, uint32_t root);

 private:
  ModelState(nn::Plan* plan, Optimizer* optimizer, nn::Execution* execution)
      : plan_(plan), execution_(execution), optimizer_(optimizer) {}

  absl::Status ImportTensors(const TensorSet& tensors, absl::Span<const std::string> excluded);
  // Appends the tensors of a flat array in the layout of the parameters.
  void ExportArray(const float* flat, const std::string& suffix,
                   std::vector<Tensor>& tensors) const;
  // Appends the buffers that the plan is bound to.
  void ExportBuffers(std::vector<Tensor>& tensors) const;
  // Broadcasts a flat array in the layout of the parameters.
  absl::Status BroadcastParameters(collectives::Communicator& communicator, uint32_t root,
                                   bool canonical, float* flat);

  nn::Plan* const plan_;
  nn::Execution* const execution_;
  Optimizer* const optimizer_;
  kernels::DeviceFloats own_parameters_;
  float* parameters_ = nullptr;
  kernels::DeviceFloats buffers_;
  kernels::DeviceFloats kept_buffers_;
  float* gradients_ = nullptr;
  std::optional<ExponentialMovingAverage> average_;
  bool IsOfLayer(absl::string_view tensor) const;

  std::set<std::string, std::less<>> layers_;
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_OPTIM_MODEL_STATE_H_
