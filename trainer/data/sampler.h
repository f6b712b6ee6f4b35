// The order of samples, and their distribution over steps and ranks.
#ifndef MUSTER_TRAINER_DATA_SAMPLER_H_
#define MUSTER_TRAINER_DATA_SAMPLER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"

namespace muster::data {

struct SampleRange {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t size() const { return end - begin; }
};

// Returns slice `rank` of `world_size` nearly equal slices: from floor(rank*samples/world_size) to
// the start of the next slice.
SampleRange Share(uint64_t samples, uint32_t rank, uint32_t world_size);

// Size of the largest slice.
uint64_t LargestShare(uint64_t samples, uint32_t world_size);

// Returns the order in which an epoch trains on its samples: a permutation that depends only on
// seed and epoch.
std::vector<uint32_t> EpochOrder(uint64_t seed, uint64_t epoch, uint32_t samples);

// The position of a step in the training: a pure function of the step, so that its number is enough
// to resume.
struct GlobalBatch {
  uint64_t epoch = 0;
  uint64_t first = 0;  // position in the epoch's order
  uint64_t samples = 0;  // samples of all ranks
};

// Maps steps to global batches. Immutable.
class StepMap {
 public:
  // INVALID_ARGUMENT: no samples, an empty batch, or drop_last with a batch larger than an epoch.
  static absl::StatusOr<StepMap> Create(uint64_t samples, uint64_t global_batch, bool drop_last);

  uint64_t steps_per_epoch() const { return steps_per_epoch_; }
  uint64_t global_batch() const { return global_batch_; }
  GlobalBatch At(uint64_t step) const;
  // Number of samples that training has consumed before `step`.
  uint64_t SamplesBefore(uint64_t step) const;

 private:
  StepMap(uint64_t samples, uint64_t global_batch, uint64_t steps_per_epoch)
      : samples_(samples), global_batch_(global_batch), steps_per_epoch_(steps_per_epoch) {}

  uint64_t samples_;
  uint64_t global_batch_;
  uint64_t steps_per_epoch_;
};

// The samples that one rank loads in a step.
struct RankBatch {
  uint64_t epoch = 0;
  uint64_t global_samples = 0;
  uint64_t first_sample = 0;  // index of this rank's first sample in the global batch
  SampleRange positions;      // in the epoch's order
};

// The batches of one rank. Immutable.
class RankBatches {
 public:
  // For training: `slices` slices of each global batch, of which there are `world_size`, from slice
  // `rank` on.
  static RankBatches OfTraining(const StepMap& steps, uint32_t rank, uint32_t world_size,
                                uint32_t slices = 1);
  // For evaluation: the rank's slice of the whole dataset, in pieces of at most `max_samples` > 0
  // samples; the dataset counts as one global batch. Step i is piece i.
  static RankBatches OfEvaluation(uint64_t samples, uint64_t max_samples, uint32_t rank,
                                  uint32_t world_size);

  RankBatch At(uint64_t step) const;
  // Samples of the largest batch.
  uint64_t max_samples() const { return max_samples_; }
  // For evaluation only.
  uint64_t pieces() const { return (share_.size() + max_samples_ - 1) / max_samples_; }

 private:
  RankBatches() = default;

  std::optional<StepMap> steps_;  // for training
  uint32_t rank_ = 0;
  uint32_t world_size_ = 1;
  uint32_t slices_ = 1;
  uint64_t samples_ = 0;  // for evaluation, with this rank's slice
  SampleRange share_;
  uint64_t max_samples_ = 0;
};

}  // namespace muster::data

#endif  // MUSTER_TRAINER_DATA_SAMPLER_H_
