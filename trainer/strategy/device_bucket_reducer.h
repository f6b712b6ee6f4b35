// Gradients summed over the ranks in the memory of the ranks' devices, which wait for each other:
// the process only queues.
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
#include "trainer/graph/plan.h"
#include "trainer/strategy/device_floats.h"
#include "trainer/strategy/shares.h"

namespace muster::train {

struct DeviceBucketReducerOptions {
  size_t first_bucket_bytes = 1 << 20;
  size_t bucket_bytes = 25 << 20;
  // Accumulate will be called.
  bool accumulates = false;
  // As HostBucketReducerOptions::scatters.
  bool scatters = false;
  // As HostBucketReducerOptions::type. A world of one rounds to it too.
  kernels::DataType type = kernels::DataType::kFloat32;
};

// For one training thread and one generation. Each step: for its last or only micro-batch
// ReduceLosses, then Ready as the plan calls it, then Finish; for each micro-batch before,
// Accumulate after the plan's backward. All of it only calls the device, alike in every step, and
// may be recorded.
class DeviceBucketReducer {
 public:
  // Collective. `communicator`, of the ranks' devices, and `plan` outlive the exchange; null: a
  // world of one, whose gradients stay where they are. The plan's gradients are to be bound to
  // gradients(), and all ranks' are laid out alike. RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<DeviceBucketReducer>> Create(
      collectives::Communicator* communicator, nn::Plan* plan,
      const DeviceBucketReducerOptions& options);

  // In the device's memory.
  float* gradients() { return gradients_; }

  // Keeps the gradients of a micro-batch before the last, which backward left in gradients(): of
  // the `first` of a step, or besides those of the ones before.
  void Accumulate(bool first);
  // losses [count], in the device's memory, become the sums over the ranks while backward runs.
  void ReduceLosses(nn::LossResult* losses, size_t count);
  // As nn::Plan::Backward's `ready`. `accumulated`: there were micro-batches before.
  void Ready(size_t offset, bool accumulated);
  // After Ready(0). What the device does from now on finds the sums, of this rank's share where
  // they are scattered. Errors: those of operations that could not begin; of what happens to the
  // others the communicator's status() and failed_flag() tell.
  absl::Status Finish();

  // Of one step.
  size_t operations() const {
    if (communicator_ == nullptr) return 0;
    return (scatters_ ? 1 : buckets_.size()) + 1;
  }
  size_t bytes() const { return communicator_ == nullptr ? 0 : elements_ * kernels::SizeOf(type_); }

 private:
  struct Range {
    size_t begin = 0, end = 0;  // in the plan's gradients; complete when its first offset is
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
  // Of float16's sums.
  const float postscale_, prescale_;
  std::vector<Range> buckets_;
  std::unique_ptr<collectives::Allocation> registered_;
  DeviceFloats own_gradients_;
  DeviceFloats own_reduced_;
  DeviceFloats accumulated_;
  float* gradients_ = nullptr;
  void* reduced_ = nullptr;  // elements_ of type_; gradients_ itself in float32
  size_t ready_ = 0;         // buckets of this step, from the first on
  std::vector<std::shared_ptr<collectives::Work>> work_;  // of this step
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_DEVICE_BUCKET_REDUCER_H_
