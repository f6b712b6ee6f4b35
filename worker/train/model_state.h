// Everything that training changes: parameters, momentum and buffers, with their names.
#ifndef MUSTER_WORKER_TRAIN_MODEL_STATE_H_
#define MUSTER_WORKER_TRAIN_MODEL_STATE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "worker/collectives/communicator.h"
#include "worker/nn/plan.h"
#include "worker/train/aligned_floats.h"
#include "worker/train/safetensors.h"

namespace muster::train {

// Owns the plan's arrays except for the gradients. For one training thread.
class ModelState {
 public:
  // Binds the plan, without gradients, and leaves zeros. `plan` outlives the state.
  explicit ModelState(nn::Plan* plan);

  // Binds the plan anew.
  void BindGradients(float* gradients);
  float* parameters() { return parameters_.get(); }
  float* momentum() { return momentum_.get(); }
  uint64_t parameter_count() const;  // without padding

  // As a state_dict: parameters and buffers by name, and batch norm's num_batches_tracked, which is
  // `steps`.
  std::vector<Tensor> ExportModel(uint64_t steps) const;
  std::vector<Tensor> ExportMomentum() const;
  // Every tensor must be there, F32 and of the right shape; others are ignored. NOT_FOUND,
  // INVALID_ARGUMENT, and SafetensorsFile::Open's errors.
  absl::Status ImportModel(const std::string& path);
  absl::Status ImportMomentum(const std::string& path);

  // SHA-256 over names, shapes and values of the parameters: equal for equal weights, however they
  // lie in memory.
  std::string WeightsDigest() const;

  // Gives all ranks `root`'s parameters and buffers, and its momentum where asked. In canonical
  // order, so that ranks may lay them out differently. The communicator's errors.
  absl::Status Broadcast(collectives::Communicator& communicator, uint32_t root,
                         bool with_momentum);
  // Buffers alone: batch norm's running statistics differ between ranks.
  absl::Status BroadcastBuffers(collectives::Communicator& communicator, uint32_t root);

 private:
  struct Piece {
    const nn::ParameterInfo* info;
    bool momentum;  // of the parameter, not its value
  };
  absl::Status BroadcastPieces(collectives::Communicator& communicator, uint32_t root,
                               absl::Span<const Piece> pieces);

  nn::Plan* const plan_;
  AlignedFloats parameters_;
  AlignedFloats momentum_;
  AlignedFloats buffers_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_MODEL_STATE_H_
