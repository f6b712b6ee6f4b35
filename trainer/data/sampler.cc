#include "trainer/data/sampler.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/philox.h"
#include "trainer/data/purpose.h"

namespace muster::data {

SampleRange Share(uint64_t samples, uint32_t rank, uint32_t world_size) {
  return {rank * samples / world_size, (rank + uint64_t{1}) * samples / world_size};
}

uint64_t LargestShare(uint64_t samples, uint32_t world_size) {
  return (samples + world_size - 1) / world_size;
}

std::vector<uint32_t> EpochOrder(uint64_t seed, uint64_t epoch, uint32_t samples) {
  std::vector<uint32_t> order(samples);
  std::iota(order.begin(), order.end(), 0);
  // Fisher-Yates shuffle; draw i decides position i, with four draws per block.
  const kernels::PhiloxKey key = kernels::DerivePhiloxKey(seed, kOrderPurpose);
  kernels::PhiloxCounter words{};
  for (uint32_t i = 0; i + 1 < samples; ++i) {
    if (i % 4 == 0) {
      words = kernels::Philox4x32(
          {i / 4, 0, static_cast<uint32_t>(epoch), static_cast<uint32_t>(epoch >> 32)}, key);
    }
    std::swap(order[i], order[i + kernels::UniformBelow(words[i % 4], samples - i)]);
  }
  return order;
}

absl::StatusOr<StepMap> StepMap::Create(uint64_t samples, uint64_t global_batch, bool drop_last) {
  if (samples == 0 || samples > UINT32_MAX) {
    return absl::InvalidArgumentError(
        absl::StrCat("dataset has ", samples, " samples, must have 1 to ", UINT32_MAX));
  }
  if (global_batch == 0) {
    return absl::InvalidArgumentError("global batch must be at least 1, not 0");
  }
  if (drop_last && global_batch > samples) {
    return absl::InvalidArgumentError(absl::StrCat("drop_last: a global batch of ", global_batch,
                                                   " is larger than the dataset of ", samples,
                                                   " samples"));
  }
  const uint64_t steps =
      drop_last ? samples / global_batch : (samples + global_batch - 1) / global_batch;
  return StepMap(samples, global_batch, steps);
}

GlobalBatch StepMap::At(uint64_t step) const {
  GlobalBatch batch;
  batch.epoch = step / steps_per_epoch_;
  batch.first = step % steps_per_epoch_ * global_batch_;
  batch.samples = std::min(global_batch_, samples_ - batch.first);
  return batch;
}

uint64_t StepMap::SamplesBefore(uint64_t step) const {
  const uint64_t per_epoch = std::min(samples_, steps_per_epoch_ * global_batch_);
  return step / steps_per_epoch_ * per_epoch + step % steps_per_epoch_ * global_batch_;
}

RankBatches RankBatches::OfTraining(const StepMap& steps, uint32_t rank, uint32_t world_size,
                                    uint32_t slices) {
  RankBatches batches;
  batches.steps_ = steps;
  batches.rank_ = rank;
  batches.world_size_ = world_size;
  batches.slices_ = slices;
  batches.max_samples_ =
      std::min(LargestShare(steps.global_batch(), world_size) * slices, steps.global_batch());
  return batches;
}

RankBatches RankBatches::OfEvaluation(uint64_t samples, uint64_t max_samples, uint32_t rank,
                                      uint32_t world_size) {
  RankBatches batches;
  batches.samples_ = samples;
  batches.share_ = Share(samples, rank, world_size);
  batches.max_samples_ = max_samples;
  return batches;
}

RankBatch RankBatches::At(uint64_t step) const {
  RankBatch batch;
  if (!steps_.has_value()) {
    batch.global_samples = samples_;
    batch.positions.begin = share_.begin + step * max_samples_;
    batch.positions.end = std::min(share_.end, batch.positions.begin + max_samples_);
    batch.first_sample = batch.positions.begin;
    return batch;
  }
  const GlobalBatch global = steps_->At(step);
  const SampleRange share = {Share(global.samples, rank_, world_size_).begin,
                             Share(global.samples, rank_ + slices_ - 1, world_size_).end};
  batch.epoch = global.epoch;
  batch.global_samples = global.samples;
  batch.first_sample = share.begin;
  batch.positions = {global.first + share.begin, global.first + share.end};
  return batch;
}

}  // namespace muster::data
