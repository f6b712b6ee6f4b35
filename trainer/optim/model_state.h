// Everything that training changes, with its names: parameters and buffers, what the optimizer
// remembers of them, and their moving average.
//
// With the number of steps done this is all there is: learning rate, order of samples, augmentation
// and dropout are functions of the spec and the step.
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
#include "absl/types/span.h"
#include "collectives/communicator.h"
#include "kernels/data_type.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/graph/plan.h"
#include "trainer/optim/ema.h"
#include "trainer/optim/optimizer.h"
#include "trainer/strategy/device_floats.h"

namespace muster::train {

// Owns the plan's arrays, in its device's memory, except for the gradients, and parameters that it
// is told to have elsewhere. For one training thread.
class ModelState {
 public:
  // Binds the arrays, all zeros, without gradients. `optimizer` is null where nothing is trained.
  // `averages`: with a moving average. The arrays are bound to `execution`, whose layout `plan`
  // describes; null: to the plan. All three outlive the state.
  ModelState(nn::Plan* plan, Optimizer* optimizer, bool averages = false,
             nn::Execution* execution = nullptr);

  // Binds the arrays again.
  void BindGradients(float* gradients);
  // To memory of somebody else's for as many zeros, in place of the state's own.
  void BindParameters(float* parameters);
  float* parameters() { return parameters_; }
  float* buffers() { return buffers_.get(); }

  // To the nearest values of `type`; the array stays one of float32.
  void RoundParameters(kernels::DataType type);

  // After an update; nothing where there is no average.
  void UpdateAverage(const kernels::UpdateScalars* scalars);
  // Runs `work` with the plan bound to the average, or to the model itself where there is none.
  absl::Status WithAverage(const std::function<absl::Status()>& work);

  // As a state_dict: parameters and buffers by name, and batch norm's num_batches_tracked, which is
  // `batches`: the batches that were trained on, each part of one counted.
  std::vector<Tensor> ExportModel(uint64_t batches);
  // The same of the average; empty where there is none.
  std::vector<Tensor> ExportAverage(uint64_t batches);
  // PARAMETER.STATE, e.g. fc.weight.exp_avg. Of whole `states`, which are the optimizer's or were
  // gathered.
  std::vector<Tensor> ExportOptimizer(absl::Span<const OptimizerState> states) const;
  // Of the optimizer's, where it keeps all.
  std::vector<Tensor> ExportOptimizer() const;

  // Layers of the model that other ranks have, or this one: a file may hold their tensors too.
  void set_layers(std::set<std::string, std::less<>> names) { layers_ = std::move(names); }

  // Every tensor of the model must be there, of floats and of the right shape; others are named in
  // the log. NOT_FOUND, INVALID_ARGUMENT, and SafetensorsFile::Open's errors.
  absl::Status ImportModel(const std::string& path);
  absl::Status ImportModel(const SafetensorsFile& file);
  // For a start from somebody else's file: tensors whose names begin with one of `excluded` are
  // left as they are. An error says so where that would help.
  absl::Status InitializeFrom(const std::string& path, absl::Span<const std::string> excluded);
  absl::Status InitializeFrom(const SafetensorsFile& file, absl::Span<const std::string> excluded);
  // The optimizer keeps all. A state that the file holds for no parameter at all, as after a
  // training without momentum, becomes zero. A plain PARAMETER is read as its momentum.
  absl::Status ImportOptimizer(const std::string& path);
  absl::Status ImportOptimizer(const SafetensorsFile& file);
  // Nothing where there is no average.
  absl::Status ImportAverage(const std::string& path);
  absl::Status ImportAverage(const SafetensorsFile& file);
  // The average begins as the model is now: for a checkpoint that has none.
  void StartAverage();

  // The parameters alone.
  std::vector<Tensor> ExportParameters() const;
  // SHA-256 over names, shapes and values of all parameters in the model's order: equal for equal
  // weights, however they lie in memory.
  static std::string WeightsDigest(absl::Span<const Tensor> parameters);
  std::string WeightsDigest() const { return WeightsDigest(ExportParameters()); }

  // Gives all ranks `root`'s parameters and buffers, and, for training that goes on, also its
  // optimizer's states, of which it keeps all, and its average. In canonical order, so that ranks
  // may lay them out differently. The communicator's errors.
  absl::Status Broadcast(collectives::Communicator& communicator, uint32_t root, bool resuming);
  // The buffers alone that the plan is bound to: batch norm's running statistics differ between
  // ranks.
  absl::Status BroadcastBuffers(collectives::Communicator& communicator, uint32_t root);

 private:
  absl::Status ImportTensors(const SafetensorsFile& file, absl::Span<const std::string> excluded);
  // Of a flat array in the layout of the parameters.
  absl::Status BroadcastParameters(collectives::Communicator& communicator, uint32_t root,
                                   float* flat);

  nn::Plan* const plan_;
  nn::Execution* const execution_;
  Optimizer* const optimizer_;
  DeviceFloats own_parameters_;
  float* parameters_;
  DeviceFloats buffers_;
  float* gradients_ = nullptr;
  std::optional<ExponentialMovingAverage> average_;
  bool IsOfLayer(absl::string_view tensor) const;

  std::set<std::string, std::less<>> layers_;
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_OPTIM_MODEL_STATE_H_
