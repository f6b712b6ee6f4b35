// NT-Xent contrastive loss over the samples of several ranks (Chen et al. 2020, SimCLR); see
// kernels/nt_xent.h.
//
// Ranks all-gather their normalized embeddings, and each rank computes the losses of its own
// anchors against all samples of the group. For the gradient, a second all-gather distributes the
// log-sum of every anchor (one number per sample), from which each rank computes the gradient of
// the other ranks' losses with respect to its own samples. Shares of a batch may have any size:
// fixed-size blocks are gathered, each followed by its number of used samples, and then compacted.
#ifndef MUSTER_TRAINER_OBJECTIVE_NT_XENT_OBJECTIVE_H_
#define MUSTER_TRAINER_OBJECTIVE_NT_XENT_OBJECTIVE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collectives/communicator.h"
#include "kernels/device.h"
#include "kernels/device_floats.h"
#include "kernels/nt_xent_loss.h"
#include "trainer/graph/execution.h"
#include "trainer/objective/objective.h"

namespace muster::train {

struct NtXentOptions {
  double temperature = 0.5;
  // Group of ranks whose samples serve as negatives; null: only this rank's samples.
  collectives::Communicator* group = nullptr;
  uint32_t max_samples = 0;  // largest number of samples on this rank
  int64_t width = 0;         // elements per embedding
  // Device of embeddings and gradients; outlives the objective.
  kernels::Device* device = &kernels::CpuDevice();
};

// Used by one training thread. Only the communicator allocates memory during a step.
class NtXentObjective final : public Objective {
 public:
  // Collective over the group. INVALID_ARGUMENT, RESOURCE_EXHAUSTED, or the communicator's errors.
  static absl::StatusOr<std::unique_ptr<NtXentObjective>> Create(const NtXentOptions& options);

  uint32_t views() const override { return 2; }
  // A single rank does not communicate.
  bool supports_graph_capture() const override { return ranks() == 1; }
  absl::Status Queue(nn::Execution& model, uint32_t samples, uint64_t global_samples, bool training,
                     nn::LossResult* result) override;

  // Computes the loss of embeddings, float32 [samples, width], where the two views of an image are
  // adjacent. Unless `gradients` is null, also writes the gradient of the group's summed losses
  // [samples, width], multiplied by `scale` and the loss scale; all ranks of the group must agree
  // on whether it is null. Collective; `samples` may be 0. INVALID_ARGUMENT if `samples` is odd or
  // too large; such a call fails before it communicates, so the caller must abort the group.
  absl::StatusOr<nn::LossResult> Compute(const float* embeddings, uint32_t samples, double scale,
                                         float* gradients);

 private:
  explicit NtXentObjective(const NtXentOptions& options);

  absl::Status Allocate();
  // Allocates the arrays in device memory for steps of up to the size of `largest`.
  absl::Status AllocateArrays(const kernels::NtXentShape& largest);
  // Same as Compute, but writes the result to device memory.
  absl::Status Run(const float* embeddings, uint32_t samples, double scale, float* gradients,
                   nn::LossResult* result);
  // Gathers the normalized embeddings of all ranks from own_units_ into units_, and sets shape_.
  absl::Status GatherUnits(uint32_t samples);
  absl::Status AllGather(const float* send, float* receive, size_t count);
  // Copies the blocks of all ranks to units_ without gaps, and sets samples_of_ and shape_.
  absl::Status Compact();
  // Gathers the log-sums of all samples from own_log_sums_ into group_log_sums_.
  absl::Status GatherLogSums(uint32_t samples);

  uint32_t ranks() const { return group_ == nullptr ? 1 : group_->size(); }
  uint32_t rank() const { return group_ == nullptr ? 0 : group_->rank(); }
  // Elements of a rank's block: its embeddings followed by their number.
  size_t block_elements() const { return capacity_ * width_ + 1; }

  kernels::Device& device_;
  const kernels::KernelTable& kernels_;
  collectives::Communicator* const group_;
  const size_t width_;
  size_t capacity_ = 0;  // maximum number of samples per rank; the same on all ranks of the group
  kernels::NtXentShape shape_;  // shape of the last call

  // Communication buffers in host memory, allocated by the communicator; none for a single rank.
  std::unique_ptr<collectives::Allocation> shared_memory_;
  float* block_ = nullptr;         // block_elements()
  float* blocks_ = nullptr;        // blocks of all ranks
  float* log_sums_ = nullptr;      // capacity_
  float* all_log_sums_ = nullptr;  // log-sums of all ranks

  std::unique_ptr<kernels::NtXentLoss> loss_;
  std::vector<size_t> samples_of_;  // by rank, in the last call
  // In device memory.
  kernels::DeviceFloats own_units_;       // [capacity_, width]; unused with one rank, see units_
  kernels::DeviceFloats own_log_sums_;    // capacity_; unused with one rank, see group_log_sums_
  kernels::DeviceFloats inverse_norms_;   // capacity_
  kernels::DeviceFloats units_;           // [samples, width]
  kernels::DeviceFloats logits_;          // [anchors, padded samples]
  kernels::DeviceFloats group_log_sums_;  // [padded samples]
  kernels::DeviceMemory result_;          // an nn::LossResult
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_OBJECTIVE_NT_XENT_OBJECTIVE_H_
