// Distributed data parallel's gradients: summed over the ranks bucket by bucket while backward
// still runs.
//
//   backward:    … fc2 ── fc1 ───────────── conv2 ────────── conv1
//   all-reduce:            bucket 0 ···················· bucket 1 ····
//
// The step's loss rides at the end of the first bucket: it is known before any gradient is, and
// costs no operation of its own. A step in several micro-batches is exchanged once, with the last
// one's backward: each bucket has the gradients of those before added just before it goes.
//
// Gradients are float32. They may be summed in a 16-bit type, which halves what travels: a bucket
// is rounded as it goes and widened as it comes back. The loss, of which such a type holds too few
// digits, then travels in an operation of its own.
//
// What travels lies in the communicator's memory, which backward writes to where that is the
// device's as well; else it is copied there and back.
//
// Where the update adds the gradients up itself (fused_shared_memory_update.h), all that travels is
// the loss. Where each rank updates a share of the parameters (zero1/sharded_parameters.h), it gets
// the sums of that share alone, by one reduce-scatter after backward.
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
#include "kernels/data_type.h"
#include "trainer/graph/plan.h"
#include "trainer/strategy/aligned_floats.h"
#include "trainer/strategy/buckets.h"
#include "trainer/strategy/device_floats.h"
#include "trainer/strategy/shares.h"

namespace muster::train {

struct HostBucketReducerOptions {
  size_t first_bucket_bytes = 1 << 20;
  size_t bucket_bytes = 25 << 20;
  // Ranks lay their arrays out differently: exchange in the parameters' canonical order, at the
  // cost of two copies.
  bool canonical = false;
  // Accumulate will be called.
  bool accumulates = false;
  // False: each rank's gradients stay its own, for whoever reads them in the communicator's memory.
  // Only of float32 that is not canonical, of a device whose memory is the process's.
  bool sums = true;
  // Each rank gets the sums of its Shares of the plan's array alone. Not canonical.
  bool scatters = false;
  // What is summed over the ranks. In float16 each rank's gradients are divided by the number of
  // ranks before they are added, so that their sum overflows no sooner than they do, and the sums
  // are multiplied by it afterwards.
  kernels::DataType type = kernels::DataType::kFloat32;
};

// For one training thread and one generation. Each step: for its last or only micro-batch Begin,
// then Ready as the plan calls it, or not at all, then Finish; for each micro-batch before,
// Accumulate after the plan's backward. A step allocates nothing but what the communicator does.
class HostBucketReducer {
 public:
  // Collective. `communicator` and `plan` outlive the exchange; the plan's gradients are to be
  // bound to gradients(). RESOURCE_EXHAUSTED when the communicator has no memory.
  static absl::StatusOr<std::unique_ptr<HostBucketReducer>> Create(
      collectives::Communicator* communicator, nn::Plan* plan,
      const HostBucketReducerOptions& options);

  // In the device's memory.
  float* gradients() { return gradients_; }
  // Those of `rank`, where they are exchanged without a copy and this process can read them; else
  // null.
  const float* PeerGradients(uint32_t rank);

  // Keeps the gradients of a micro-batch before the last, which backward left in gradients(): of
  // the `first` of a step, or besides those of the ones before. Only calls the device.
  void Accumulate(bool first);
  // This rank's loss of all micro-batches, before the backward of the last one or after it;
  // `accumulated`: there were others.
  void Begin(const nn::LossResult& loss, bool accumulated);
  // As nn::Plan::Backward's `ready`.
  void Ready(size_t offset);
  // Waits for every bucket. OK: gradients() holds the sums over all ranks, of which any may be an
  // infinity or NaN; where they are scattered, those of this rank's share, and nothing of worth
  // besides; or, where they are not summed, all ranks have got as far. Otherwise they are worth
  // nothing and the update must not run; the error is the communicator's.
  absl::Status Finish();
  // After Finish: what the ranks' losses add up to.
  const nn::LossResult& totals() const { return totals_; }

  size_t buckets() const { return buckets_.size(); }
  // Of one step.
  size_t operations() const { return Sums() + (TailRides() ? 0 : 1); }
  size_t bytes() const;

  // Spent on adding, copying and rounding since Create: everything but waiting.
  absl::Duration kernel_time() const { return kernel_time_; }

 private:
  struct Range {
    Bucket parameters;
    // In the plan's gradients; the bucket is complete when its first offset is.
    size_t plan_begin = 0, plan_end = 0;
    size_t begin = 0, end = 0;  // in the exchanged array
  };
  HostBucketReducer(collectives::Communicator* communicator, nn::Plan* plan,
                    const HostBucketReducerOptions& options);
  void LayOut(const HostBucketReducerOptions& options);
  absl::Status Allocate(const HostBucketReducerOptions& options);
  // From gradients_ to what is reduced.
  void Pack(const Range& range);
  void* Reduced(size_t element) const;
  // And back, of elements that were reduced.
  void Unpack(size_t begin, size_t end);
  absl::Status ImportCanonical();
  // The loss and the first bucket are one array of one type.
  bool TailRides() const { return sums_ && !scatters_ && type_ == kernels::DataType::kFloat32; }
  // Operations that sum gradients.
  size_t Sums() const { return !sums_ ? 0 : (scatters_ ? 1 : buckets_.size()); }
  void ExchangeTail();

  collectives::Communicator* const communicator_;
  nn::Plan* const plan_;
  kernels::Device& device_;
  const bool canonical_;
  const bool sums_;
  const bool scatters_;
  const kernels::DataType type_;
  // Of float16's sums.
  const float postscale_, prescale_;
  std::unique_ptr<collectives::Allocation> memory_;
  void* reduced_ = nullptr;  // in memory_: elements_ of type_
  float* tail_ = nullptr;    // in memory_, behind them
  // The same in float32: reduced_ itself, gradients_ or own_exchanged_.
  float* exchanged_ = nullptr;
  size_t elements_ = 0;
  const Shares shares_;         // of the plan's array
  float* gradients_ = nullptr;  // in the plan's layout: exchanged_, or own_gradients_
  AlignedFloats own_exchanged_;
  DeviceFloats own_gradients_;
  DeviceFloats accumulated_;      // like gradients_, of the micro-batches before; null: never any
  bool has_accumulated_ = false;  // in this step
  std::vector<size_t> offsets_;   // of each parameter in exchanged_
  std::vector<Range> buckets_;
  std::shared_ptr<collectives::Work> tail_work_;  // null where the tail rides with a bucket
  size_t ready_ = 0;                              // buckets of this step, from the first on
  std::vector<std::shared_ptr<collectives::Work>>
      work_;  // of the buckets issued in this step, or of the one that scatters
  absl::Duration kernel_time_;
  nn::LossResult totals_;
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_HOST_BUCKET_REDUCER_H_
