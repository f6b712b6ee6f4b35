// Sums of gradients and losses over the ranks that have the same parameters. Which implementation a
// strategy uses is chosen once, when the ranks are connected:
//
//   HostGradientReducer          by the processes, bucket by bucket while backward runs
//   CapturedHostGradientReducer  by the processes, after passes that are captured as a CUDA graph
//   DeviceGradientReducer        between the GPUs' memories, as part of the passes
//
// Where ranks share memory and the update sums gradients itself (FusedUpdate), a
// HostGradientReducer sums the losses alone.
#ifndef MUSTER_TRAINER_STRATEGY_GRADIENT_REDUCER_H_
#define MUSTER_TRAINER_STRATEGY_GRADIENT_REDUCER_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/thread_pool.h"
#include "trainer/graph/plan.h"
#include "trainer/optim/model_state.h"
#include "trainer/optim/optimizer.h"
#include "trainer/strategy/device_bucket_reducer.h"
#include "trainer/strategy/host_bucket_reducer.h"
#include "trainer/strategy/shares.h"
#include "trainer/strategy/step_controller.h"
#include "trainer/strategy/step_graphs.h"
#include "trainer/strategy/strategy.h"

namespace muster::train {

// Where the sums of gradients are made; the same on all ranks.
enum class ReductionPath { kHost, kFusedSharedMemory, kDevice };

// What reducers and updates work on; all of it outlives them.
struct StepParts {
  const StrategyContext* context = nullptr;
  collectives::Communicator* replicas = nullptr;  // the ranks that have the same parameters
  nn::Plan* plan = nullptr;                       // of which the arrays are
  Optimizer* optimizer = nullptr;
  ModelState* state = nullptr;
  StepController* controller = nullptr;
  StepGraphs* graphs = nullptr;
  TrainingPrecision precision;
  ReductionPath path = ReductionPath::kHost;
  // Forward and backward are captured: the processes cannot communicate meanwhile.
  bool captures_passes = false;
  // Idle between passes, for the update on a device whose memory is the process's; null: there are
  // none.
  kernels::ThreadPool* threads = nullptr;
};

ReductionPath ChooseReductionPath(const StrategyContext& context,
                                  const collectives::Communicator& replicas, const nn::Plan& plan,
                                  const Optimizer& optimizer, const TrainingPrecision& precision);

// For one training thread and one generation. Each step: Accumulate after backward of each
// accumulation step before the last; around the last one's backward BeginBackward, GradientsReady
// and EndBackward; then Finish. All but Finish may be part of a captured graph where
// StepParts::captures_passes.
class GradientReducer {
 public:
  virtual ~GradientReducer() = default;

  // What backward writes, in the device's memory.
  virtual float* gradients() = 0;
  // Keeps the gradients of an accumulation step before the last: of the `first` of a step, or added
  // to those before.
  virtual void Accumulate(bool first) = 0;
  virtual void BeginBackward() = 0;
  // As the `ready` of nn::Execution::Backward.
  virtual void GradientsReady(size_t offset) = 0;
  virtual absl::Status EndBackward() = 0;
  // Collective. OK: what the device does from now on finds the sums in gradients(), and the total
  // loss and whether the sums are finite in the controller. After an error, the communicators',
  // they are worthless and the update must not run. Adds to times.exposed_communication.
  virtual absl::Status Finish(StepTimes& times) = 0;

  // Collective operations of one step, and the bytes of gradients that they reduce.
  virtual uint64_t operations() const = 0;
  virtual uint64_t bytes() const = 0;
  // Time spent on anything but waiting, since it was created.
  virtual absl::Duration kernel_time() const = 0;
};

class HostGradientReducer : public GradientReducer {
 public:
  // Collective. `scatters`: each rank gets the sums of its Shares alone.
  static absl::StatusOr<std::unique_ptr<HostBucketReducer>> MakeBuckets(const StepParts& parts,
                                                                        bool scatters);
  HostGradientReducer(const StepParts& parts, std::unique_ptr<HostBucketReducer> buckets,
                      bool scatters);

  HostBucketReducer& buckets() { return *buckets_; }

  float* gradients() override { return buckets_->gradients(); }
  void Accumulate(bool first) override { buckets_->Accumulate(first); }
  void BeginBackward() override;
  void GradientsReady(size_t offset) override { buckets_->Ready(offset); }
  absl::Status EndBackward() override { return absl::OkStatus(); }
  absl::Status Finish(StepTimes& times) override;
  uint64_t operations() const override;
  uint64_t bytes() const override { return buckets_->bytes(); }
  absl::Duration kernel_time() const override { return buckets_->kernel_time() + check_time_; }

 protected:
  // For BeginBackward and for Finish. This rank's loss travels with the first bucket.
  virtual nn::LossResult LossOfBuckets() { return controller_.OwnLoss(); }
  virtual absl::StatusOr<nn::LossResult> TotalLoss() { return buckets_->totals(); }
  StepController& controller() { return controller_; }

 private:
  StepController& controller_;
  const ProcessGroups& groups_;
  const Shares::Share summed_;  // of the gradients
  const std::unique_ptr<HostBucketReducer> buckets_;
  absl::Duration check_time_;
};

class CapturedHostGradientReducer final : public HostGradientReducer {
 public:
  using HostGradientReducer::HostGradientReducer;
  void BeginBackward() override {}
  void GradientsReady(size_t) override {}
  absl::Status Finish(StepTimes& times) override {
    HostGradientReducer::BeginBackward();
    return HostGradientReducer::Finish(times);
  }
};

class DeviceGradientReducer final : public GradientReducer {
 public:
  // Collective. `scatters` as above.
  static absl::StatusOr<std::unique_ptr<DeviceGradientReducer>> Create(const StepParts& parts,
                                                                       bool scatters);

  float* gradients() override { return buckets_->gradients(); }
  void Accumulate(bool first) override { buckets_->Accumulate(first); }
  void BeginBackward() override;
  void GradientsReady(size_t offset) override;
  absl::Status EndBackward() override;
  absl::Status Finish(StepTimes&) override { return groups_.status(); }
  uint64_t operations() const override;
  uint64_t bytes() const override { return buckets_->bytes(); }
  absl::Duration kernel_time() const override { return absl::ZeroDuration(); }

 private:
  DeviceGradientReducer(const StepParts& parts, std::unique_ptr<DeviceBucketReducer> buckets,
                        bool scatters);

  StepController& controller_;
  const ProcessGroups& groups_;
  const bool scatters_;
  const Shares::Share summed_;  // of the gradients
  const std::unique_ptr<DeviceBucketReducer> buckets_;
};

// Collective. Of parts.path.
absl::StatusOr<std::unique_ptr<GradientReducer>> CreateGradientReducer(const StepParts& parts,
                                                                       bool scatters);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_GRADIENT_REDUCER_H_
