// The order of samples: which ones a step trains on, and which of them are one rank's.
#ifndef MUSTER_TRAINER_DATA_SAMPLER_H_
#define MUSTER_TRAINER_DATA_SAMPLER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"

namespace muster::data {

struct RowRange {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t size() const { return end - begin; }
};

// Part `rank` of `world_size` nearly equal parts: rows floor(rank*rows/world_size) up to the next
// part's first.
RowRange Share(uint64_t rows, uint32_t rank, uint32_t world_size);

// Rows in the largest share.
uint64_t LargestShare(uint64_t rows, uint32_t world_size);

// The samples of one epoch in the order of training: a permutation that depends on seed and epoch
// alone.
std::vector<uint32_t> EpochOrder(uint64_t seed, uint64_t epoch, uint32_t samples);

// Where a step is within the training: a pure function of the step, so that resuming needs nothing
// but its number.
struct GlobalBatch {
  uint64_t epoch = 0;
  uint64_t first = 0;  // position in the epoch's order
  uint64_t rows = 0;   // in all ranks together
};

// Immutable.
class StepMap {
 public:
  // INVALID_ARGUMENT for no samples, an empty batch, or drop_last with a batch that no epoch fills.
  static absl::StatusOr<StepMap> Create(uint64_t samples, uint64_t global_batch, bool drop_last);

  uint64_t steps_per_epoch() const { return steps_per_epoch_; }
  uint64_t global_batch() const { return global_batch_; }
  GlobalBatch At(uint64_t step) const;
  // Samples that training has used up before `step`.
  uint64_t SamplesBefore(uint64_t step) const;

 private:
  StepMap(uint64_t samples, uint64_t global_batch, uint64_t steps_per_epoch)
      : samples_(samples), global_batch_(global_batch), steps_per_epoch_(steps_per_epoch) {}

  uint64_t samples_;
  uint64_t global_batch_;
  uint64_t steps_per_epoch_;
};

// What one rank loads in a step.
struct RankBatch {
  uint64_t epoch = 0;
  uint64_t global_rows = 0;
  uint64_t first_row = 0;  // of this rank's in the global batch
  RowRange positions;      // in the epoch's order
};

// The batches of one rank. Immutable.
class RankBatches {
 public:
  // Of training: its share of each global batch.
  static RankBatches OfTraining(const StepMap& steps, uint32_t rank, uint32_t world_size);
  // Of evaluation: its share of the whole data set in pieces of at most `max_rows`, which is above
  // 0; the data set counts as one global batch. Step i is piece i.
  static RankBatches OfEvaluation(uint64_t samples, uint64_t max_rows, uint32_t rank,
                                  uint32_t world_size);

  RankBatch At(uint64_t step) const;
  // Rows of the largest batch.
  uint64_t max_rows() const { return max_rows_; }
  // Of evaluation.
  uint64_t pieces() const { return (share_.size() + max_rows_ - 1) / max_rows_; }

 private:
  RankBatches() = default;

  std::optional<StepMap> steps_;  // of training
  uint32_t rank_ = 0;
  uint32_t world_size_ = 1;
  uint64_t samples_ = 0;  // of evaluation, with this rank's share of them
  RowRange share_;
  uint64_t max_rows_ = 0;
};

}  // namespace muster::data

#endif  // MUSTER_TRAINER_DATA_SAMPLER_H_
