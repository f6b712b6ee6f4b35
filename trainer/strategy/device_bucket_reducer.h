// Reduces gradients over the ranks in device memory. The process only queues work; the devices wait
// for each other.
#ifndef MUSTER_TRAINER_STRATEGY_DEVICE_BUCKET_REDUCER_H_
#define MUSTER_TRAINER_STRATEGY_DEVICE_BUCKET_REDUCER_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collectives/communicator.h"
#include "kernels/data_type.h"
#include "kernels/device.h"
#include "kernels/device_floats.h"
#include "trainer/graph/plan.h"
#include "trainer/strategy/shares.h"

namespace muster::train {

struct DeviceBucketReducerOptions {
  size_t first_bucket_bytes = 1 << 20;
  size_t bucket_bytes = 25 << 20;
  // Whether Accumulate will be called.
  bool accumulates = false;
  // See HostBucketReducerOptions::scatters.
  bool scatters = false;
  // See HostBucketReducerOptions::type. A world of one rank rounds to it, too.
  kernels::DataType type = kernels::DataType::kFloat32;
};

// Used by one training thread in one generation. Calls of a step: Accumulate after the backward
// pass of every micro-batch but the last; for the last or only micro-batch Begin, then Ready as the
// plan calls it, then Finish; ReduceLosses in between. All of them only issue device calls, the
// same in every step, and may be captured in a graph.
class DeviceBucketReducer {
 public:
  // Collective. `communicator` connects the ranks' devices; null for a world of one rank, which
  // communicates nothing. It and `plan` outlive the reducer. The caller must bind the plan's
  // gradients to gradients(); all ranks use the same layout. RESOURCE_EXHAUSTED if out of device
  // memory.
  static absl::StatusOr<std::unique_ptr<DeviceBucketReducer>> Create(
      collectives::Communicator* communicator, nn::Plan* plan,
      const DeviceBucketReducerOptions& options);

  // Gradient array in device memory.
  float* gradients() { return gradients_; }

  // Saves the gradients of a micro-batch before the last: copies gradients() to the accumulator if
  // `first`, otherwise adds it.
  void Accumulate(bool first);
  void Begin();
  // Reduces losses [count], in device memory, in place over the ranks while backward runs.
  void ReduceLosses(nn::LossResult* losses, size_t count);
  // See the `ready` argument of nn::Plan::Backward. `accumulated`: the step had earlier
  // micro-batches.
  void Ready(size_t offset, bool accumulated);
  // Called after Ready(0). Later device work reads the sums, with `scatters` only those of this
  // rank's shard. Returns the errors of operations that could not be started; other errors are
  // reported by the communicator's status() and failed_flag().
  absl::Status Finish();

  // Collective operations per step.
  size_t operations() const {
    if (communicator_ == nullptr) return 0;
    return (scatters_ ? 1 : buckets_.size()) + 1;
  }
  // Bytes of gradients reduced per step.
  size_t bytes() const { return communicator_ == nullptr ? 0 : elements_ * kernels::SizeOf(type_); }

 private:
  struct Range {
    size_t begin = 0, end = 0;  // in the plan's gradients; complete when `begin` is ready
  };
  DeviceBucketReducer(collectives::Communicator* communicator, nn::Plan* plan,
                      const DeviceBucketReducerOptions& options);
  absl::Status Allocate(const DeviceBucketReducerOptions& options);
  void* Reduced(size_t element) const;

  collectives::Communicator* const communicator_;
  kernels::Device& device_;
  const bool scatters_;
  const kernels::DataType type_;
  const size_t elements_;
  const Shares shares_;
  // Scaling of float16 sums; see RankScale.
  const float postscale_, prescale_;
  std::vector<Range> buckets_;
  std::unique_ptr<collectives::Allocation> registered_;
  kernels::DeviceFloats own_gradients_;
  kernels::DeviceFloats own_reduced_;
  kernels::DeviceFloats accumulated_;
  float* gradients_ = nullptr;
  void* reduced_ = nullptr;  // elements_ of type_; equals gradients_ for float32
  size_t ready_ = 0;         // buckets completed in this step
  std::vector<std::shared_ptr<collectives::Work>> work_;  // operations of this step
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_DEVICE_BUCKET_REDUCER_H_
