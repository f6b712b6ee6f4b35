// Reduces the gradients of data-parallel ranks bucket by bucket while backward runs.
//
//   backward:    … fc2 ── fc1 ───────────── conv2 ────────── conv1
//   all-reduce:            bucket 0 ···················· bucket 1 ····
//
// The step's loss is appended to the first bucket: it is known before any gradient, and so needs no
// operation of its own. With several micro-batches per step, gradients are reduced once, during the
// last backward pass; the accumulated gradients are added to each bucket just before it is sent.
//
// Gradients are float32. They may be reduced in a 16-bit type, which halves the traffic: a bucket
// is rounded before the reduction and widened afterwards. The loss needs more precision and is then
// reduced by a separate operation.
//
// Buckets are in the communicator's memory. Backward writes there directly if the device uses host
// memory; otherwise gradients are copied to it and back.
//
// If the update reduces the gradients itself (fused_shared_memory_update.h), only the loss is
// reduced. If each rank updates a shard of the parameters (zero1/sharded_parameters.h), it receives
// only the sums of that shard, through one reduce-scatter after backward.
#ifndef MUSTER_TRAINER_STRATEGY_HOST_BUCKET_REDUCER_H_
#define MUSTER_TRAINER_STRATEGY_HOST_BUCKET_REDUCER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "collectives/communicator.h"
#include "kernels/aligned_floats.h"
#include "kernels/data_type.h"
#include "kernels/device_floats.h"
#include "trainer/graph/plan.h"
#include "trainer/strategy/buckets.h"
#include "trainer/strategy/shares.h"

namespace muster::train {

struct HostBucketReducerOptions {
  size_t first_bucket_bytes = 1 << 20;
  size_t bucket_bytes = 25 << 20;
  // Ranks use different parameter layouts: reduce in the parameters' canonical order, at the cost
  // of two copies.
  bool canonical = false;
  // Whether Accumulate will be called.
  bool accumulates = false;
  // If false, only losses are reduced; each rank's gradients stay in the communicator's memory,
  // where peers can read them. Requires float32, canonical = false and a device with host memory.
  bool sums = true;
  // Each rank receives only the sums of its shard (see Shares) of the plan's array. Requires
  // canonical = false.
  bool scatters = false;
  // Type in which gradients are reduced. For float16, each rank's gradients are divided by the
  // number of ranks before the reduction, so that a sum does not overflow unless its terms do, and
  // the sums are multiplied by it afterwards.
  kernels::DataType type = kernels::DataType::kFloat32;
};

// Used by one training thread in one generation. Calls of a step: Accumulate after the backward
// pass of every micro-batch but the last; for the last or only micro-batch Begin, then Ready as the
// plan calls it, or not at all, then Finish. Only the communicator allocates memory during a step.
class HostBucketReducer {
 public:
  // Collective. `communicator` and `plan` outlive the reducer. The caller must bind the plan's
  // gradients to gradients(). RESOURCE_EXHAUSTED if the communicator or the plan's device is out of
  // memory.
  static absl::StatusOr<std::unique_ptr<HostBucketReducer>> Create(
      collectives::Communicator* communicator, nn::Plan* plan,
      const HostBucketReducerOptions& options);
  // Aborts the operations of a step that failed between Begin and Finish.
  ~HostBucketReducer();
  HostBucketReducer(const HostBucketReducer&) = delete;
  HostBucketReducer& operator=(const HostBucketReducer&) = delete;

  // Gradient array in device memory.
  float* gradients() { return gradients_; }
  // Gradients of `rank`; null if they are copied before the reduction or this process cannot read
  // them.
  const float* PeerGradients(uint32_t rank);

  // Saves the gradients of a micro-batch before the last: copies gradients() to the accumulator if
  // `first`, otherwise adds it. Only issues device calls.
  void Accumulate(bool first);
  // Starts the reduction, before or after the last backward pass. `loss`: this rank's loss over all
  // micro-batches. `accumulated`: the step had earlier micro-batches.
  void Begin(const nn::LossResult& loss, bool accumulated);
  // See the `ready` argument of nn::Plan::Backward.
  void Ready(size_t offset);
  // Waits for all buckets. On success gradients() has the sums over all ranks, which may be
  // infinite or NaN; with `scatters` only this rank's shard of it is defined; with sums = false all
  // ranks have reached this point. After an error (the communicator's) the values are undefined and
  // the update must not run.
  absl::Status Finish();
  // Loss summed over the ranks; valid after Finish.
  const nn::LossResult& totals() const { return totals_; }

  size_t buckets() const { return buckets_.size(); }
  // Collective operations per step, and bytes that they reduce.
  size_t operations() const { return GradientOperations() + (TailInFirstBucket() ? 0 : 1); }
  size_t bytes() const;

  // Time spent adding, copying and rounding since Create, without waiting.
  absl::Duration kernel_time() const { return kernel_time_; }

 private:
  struct Range {
    Bucket parameters;
    // Range in the plan's gradients; complete when `plan_begin` is ready.
    size_t plan_begin = 0, plan_end = 0;
    size_t begin = 0, end = 0;  // in packed_
  };
  HostBucketReducer(collectives::Communicator* communicator, nn::Plan* plan,
                    const HostBucketReducerOptions& options);
  void LayOut(const HostBucketReducerOptions& options);
  absl::Status Allocate(const HostBucketReducerOptions& options);
  // Converts a bucket of gradients_ into reduced_.
  void Pack(const Range& range);
  void* Reduced(size_t element) const;
  // Converts reduced elements back into gradients_.
  void Unpack(size_t begin, size_t end);
  absl::Status ImportCanonical();
  // Whether the loss is reduced with the first bucket.
  bool TailInFirstBucket() const {
    return sums_ && !scatters_ && type_ == kernels::DataType::kFloat32;
  }
  // Collective operations that reduce gradients, per step.
  size_t GradientOperations() const { return !sums_ ? 0 : (scatters_ ? 1 : buckets_.size()); }
  void ReduceTail();

  collectives::Communicator* const communicator_;
  nn::Plan* const plan_;
  kernels::Device& device_;
  const bool canonical_;
  const bool sums_;
  const bool scatters_;
  const kernels::DataType type_;
  // Scaling of float16 sums; see RankScale.
  const float postscale_, prescale_;
  std::unique_ptr<collectives::Allocation> memory_;
  void* reduced_ = nullptr;  // in memory_; elements_ of type_
  float* tail_ = nullptr;    // in memory_, after them
  // float32 copy of reduced_; equals reduced_ for float32, otherwise own_packed_.
  float* packed_ = nullptr;
  size_t elements_ = 0;
  const Shares shares_;         // shards of the plan's array
  float* gradients_ = nullptr;  // in the plan's layout; packed_ or own_gradients_
  kernels::AlignedFloats own_packed_;
  kernels::DeviceFloats own_gradients_;
  kernels::DeviceFloats accumulated_;  // sum of earlier micro-batches; null if unused
  bool has_accumulated_ = false;       // whether this step has accumulated gradients
  std::vector<size_t> offsets_;        // offset of each parameter in packed_
  std::vector<Range> buckets_;
  std::shared_ptr<collectives::Work> tail_work_;  // null if reduced with the first bucket
  size_t ready_ = 0;                              // buckets completed in this step
  std::vector<std::shared_ptr<collectives::Work>>
      work_;  // one per bucket sent in this step, or the reduce-scatter
  absl::Duration kernel_time_;
  nn::LossResult totals_;
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_HOST_BUCKET_REDUCER_H_
