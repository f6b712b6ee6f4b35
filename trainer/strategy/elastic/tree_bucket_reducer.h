// Sums the gradients of the shards of a global batch in the order of a ShardTree: every element is
// the sum of the same pairs for any number of ranks.
//
//   backward of a rank's shards:  shard 0 ── shard 1 ──────────── shard 2 (its last one)
//   on the rank:                             + shard 0 in place   the rest of its subtrees, by
//   bucket between ranks:                                                all-to-all ··· sum ···
//   all-gather
//
// Each rank receives one chunk of every root of all ranks, adds the roots in the order of the tree,
// and gathers the chunks of the others. If all ranks have one root, as with powers of two, they
// exchange as many bytes as a ring all-reduce. The all-to-all of a bucket starts during backward.
//
// The losses are summed in the same order. Running statistics of batch norm are those of shard 0,
// as with a rank for each shard; its rank broadcasts them in each step, so that every rank has the
// complete state after it.
#ifndef MUSTER_TRAINER_STRATEGY_ELASTIC_TREE_BUCKET_REDUCER_H_
#define MUSTER_TRAINER_STRATEGY_ELASTIC_TREE_BUCKET_REDUCER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "collectives/communicator.h"
#include "kernels/aligned_floats.h"
#include "kernels/device.h"
#include "kernels/loss_result.h"
#include "trainer/strategy/elastic/shard_losses.h"
#include "trainer/strategy/elastic/shard_tree.h"

namespace muster::train {

struct TreeBucketReducerOptions {
  size_t elements = 0;  // of the gradients
  // Running statistics of this rank, which forward passes change.
  float* buffers = nullptr;
  size_t buffer_elements = 0;
  size_t first_bucket_bytes = 1 << 20;
  size_t bucket_bytes = 25 << 20;
};

// Used by one training thread in one generation. Calls of a step: Accumulate after the backward
// pass of every shard of this rank but the last; for the last or only shard Begin between forward
// and backward, then Ready as the plan calls it, or not at all, then Finish. Only the communicator
// allocates memory during a step.
class TreeBucketReducer {
 public:
  // Collective. All arguments outlive the reducer; `device` has host memory. The caller must bind
  // the gradients to gradients(). RESOURCE_EXHAUSTED if the communicator is out of memory.
  static absl::StatusOr<std::unique_ptr<TreeBucketReducer>> Create(
      collectives::Communicator* communicator, kernels::Device* device, const ShardTree* tree,
      const TreeBucketReducerOptions& options);

  // Gradient array that backward writes.
  float* gradients() { return gradients_; }
  // Keeps the gradients of a shard. `first`: of this rank's first one.
  void Accumulate(bool first);
  // Starts the reduction. `losses`: one per shard of this rank.
  void Begin(absl::Span<const kernels::LossResult> losses);
  // See the `ready` argument of nn::Execution::Backward.
  void Ready(size_t offset);
  // Waits for all buckets. On success gradients() has the sums over all shards, and the buffers are
  // those of shard 0. After an error (the communicator's) the values are undefined and the update
  // must not run.
  absl::Status Finish();
  // Loss summed over the shards; valid after Finish.
  const kernels::LossResult& totals() const { return totals_; }

  // Collective operations per step, and bytes of gradients that they reduce.
  size_t operations() const;
  size_t bytes() const { return options_.elements * sizeof(float); }
  // Time spent adding and copying since Create, without waiting.
  absl::Duration kernel_time() const { return kernel_time_; }

 private:
  // Elements [begin, end); every rank sums an equal chunk.
  struct Bucket {
    size_t begin = 0, end = 0;
  };

  TreeBucketReducer(collectives::Communicator* communicator, kernels::Device* device,
                    const ShardTree* tree, const TreeBucketReducerOptions& options);
  absl::Status Allocate();
  // dst += src
  void Add(const float* src, float* dst, size_t count) const;
  void KeepBuffers();
  // Adds the subtrees that the last shard completes, and sends the roots.
  void Exchange(const Bucket& bucket);
  // Sums this rank's chunk of all roots, and starts to gather the chunks of all ranks.
  void SumAndGather(const Bucket& bucket);
  size_t ChunkOf(const Bucket& bucket) const { return (bucket.end - bucket.begin) / tree_.ranks(); }

  collectives::Communicator* const communicator_;
  kernels::Device& device_;
  const ShardTree& tree_;
  const TreeBucketReducerOptions options_;
  const ShardRange own_;
  ShardLosses losses_;
  size_t padded_ = 0;            // elements of an array, which its buckets cover
  std::vector<Bucket> buckets_;  // the last elements first
  std::unique_ptr<collectives::Allocation> memory_;
  float* gradients_ = nullptr;
  std::vector<float*> partials_;  // sums of complete subtrees of earlier shards
  size_t kept_ = 0;               // of them in use
  uint32_t shard_ = 0;            // whose gradients were computed last
  std::vector<float*> received_;  // by root of a rank: the chunks of this rank, by bucket and rank
  // Place in received_ of each value of ShardTree::total, from the start of a bucket.
  struct Source {
    uint32_t root = 0;
    uint32_t rank = 0;
  };
  std::vector<Source> sources_;
  kernels::AlignedFloats buffers_;  // of shard 0
  size_t ready_ = 0;                // buckets sent in this step
  std::shared_ptr<collectives::Work> broadcast_;
  std::vector<std::shared_ptr<collectives::Work>> exchanges_, gathers_;
  absl::Duration kernel_time_;
  kernels::LossResult totals_;
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_ELASTIC_TREE_BUCKET_REDUCER_H_
