// NT-Xent over the samples of several ranks (Chen et al. 2020, SimCLR): see kernels/nt_xent.h.
//
// Ranks exchange their embeddings, of length one, by an all-gather, and each computes the losses of
// its own anchors against all samples of the group. For the gradient, a second all-gather brings
// the log sum of every anchor: one number per sample, from which each rank knows what the other
// ranks' losses say of its own samples. Shares of a batch may be of any size: blocks travel at full
// size with the number of rows in use behind them, and the samples are put together without gaps.
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
#include "trainer/graph/execution.h"
#include "trainer/objective/objective.h"
#include "trainer/strategy/device_floats.h"

namespace muster::train {

struct NtXentOptions {
  double temperature = 0.5;
  // The ranks whose samples are each other's negatives, or null for this rank's own alone.
  collectives::Communicator* group = nullptr;
  uint32_t max_rows = 0;  // of this rank
  int64_t width = 0;      // of an embedding
  // Where embeddings and gradients are; outlives the objective.
  kernels::Device* device = &kernels::CpuDevice();
};

// For one training thread. Nothing is allocated in a step, but by the communicator.
class NtXentObjective final : public Objective {
 public:
  // Collective over the group. INVALID_ARGUMENT; RESOURCE_EXHAUSTED; the communicator's errors.
  static absl::StatusOr<std::unique_ptr<NtXentObjective>> Create(const NtXentOptions& options);

  uint32_t views() const override { return 2; }
  // With no other rank's samples nothing travels.
  bool supports_graph_capture() const override { return ranks() == 1; }
  absl::Status Queue(nn::Execution& model, uint32_t rows, uint64_t global_rows, bool training,
                     nn::LossResult* result) override;

  // embeddings float32 [rows, width], the two views of a sample next to each other, to their loss
  // and, unless gradients is null, `scale`, and the loss's, times the gradient of the group's
  // summed losses [rows, width]; all ranks of the group agree on whether they want it. Collective,
  // rows may be 0. INVALID_ARGUMENT for an odd number of rows or too many: such a call fails before
  // it exchanges anything, so the group is to be aborted.
  absl::StatusOr<nn::LossResult> Compute(const float* embeddings, uint32_t rows, double scale,
                                         float* gradients);

 private:
  explicit NtXentObjective(const NtXentOptions& options);

  absl::Status Allocate();
  // As Compute, with the result in the device's memory.
  absl::Status Run(const float* embeddings, uint32_t rows, double scale, float* gradients,
                   nn::LossResult* result);
  // Of all ranks, from own_units_ to units_, and shape_.
  absl::Status GatherUnits(uint32_t rows);
  absl::Status AllGather(const float* send, float* receive, size_t count);
  // From the blocks of all ranks to units_ without gaps, rows_of_ and shape_.
  absl::Status Compact();
  // Of all samples, from own_log_sums_ to group_log_sums_.
  absl::Status GatherLogSums(uint32_t rows);

  uint32_t ranks() const { return group_ == nullptr ? 1 : group_->size(); }
  uint32_t rank() const { return group_ == nullptr ? 0 : group_->rank(); }
  // A rank's embeddings and how many they are, at the end.
  size_t block_elements() const { return capacity_ * width_ + 1; }

  kernels::Device& device_;
  const kernels::KernelTable& kernels_;
  collectives::Communicator* const group_;
  const size_t width_;
  size_t capacity_ = 0;         // rows of a rank, at most; the same on all ranks of the group
  kernels::NtXentShape shape_;  // of the newest call

  // What travels lies in the process's memory, where the communicator likes it best; nothing does
  // where there is one rank.
  std::unique_ptr<collectives::Allocation> shared_memory_;
  float* block_ = nullptr;         // block_elements()
  float* blocks_ = nullptr;        // those of all ranks
  float* log_sums_ = nullptr;      // capacity_
  float* all_log_sums_ = nullptr;  // those of all ranks

  std::vector<size_t> rows_of_;  // by rank, in the newest call
  // In the device's memory.
  DeviceFloats own_units_;        // [capacity_, width]; of one rank in units_
  DeviceFloats own_log_sums_;     // capacity_; of one rank in group_log_sums_
  DeviceFloats inverse_norms_;    // capacity_
  DeviceFloats units_;            // [samples, width]
  DeviceFloats logits_;           // [anchors, line of samples]
  DeviceFloats group_log_sums_;   // [line of samples]
  DeviceFloats workspace_;        // of forward
  kernels::DeviceMemory result_;  // an nn::LossResult
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_OBJECTIVE_NT_XENT_OBJECTIVE_H_
