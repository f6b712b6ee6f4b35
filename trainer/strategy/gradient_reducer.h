// Reduces gradients and losses over the ranks that have the same parameters. The implementation is
// chosen once, when the ranks are connected:
//
//   HostGradientReducer          by the processes, bucket by bucket while backward runs
//   CapturedHostGradientReducer  by the processes, after passes that are captured as a CUDA graph
//   DeviceGradientReducer        between GPU memories, as part of the passes
//
// If ranks share memory and the update reduces the gradients itself (FusedUpdate),
// HostGradientReducer reduces the losses only.
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

// Where gradients are reduced; the same on all ranks.
enum class ReductionPath { kHost, kFusedSharedMemory, kDevice };

// Objects that reducers and updates work on; all outlive them.
struct StepParts {
  const StrategyContext* context = nullptr;
  collectives::Communicator* replicas = nullptr;  // ranks that have the same parameters
  nn::Plan* plan = nullptr;                       // describes the arrays
  Optimizer* optimizer = nullptr;
  ModelState* state = nullptr;
  StepController* controller = nullptr;
  StepGraphs* graphs = nullptr;
  TrainingPrecision precision;
  ReductionPath path = ReductionPath::kHost;
  // Forward and backward are captured as a graph, so processes cannot communicate during them.
  bool captures_passes = false;
  // Worker threads that the update may use between passes on a device with host memory; null if
  // there are none.
  kernels::ThreadPool* threads = nullptr;
};

ReductionPath ChooseReductionPath(const StrategyContext& context,
                                  const collectives::Communicator& replicas, const nn::Plan& plan,
                                  const Optimizer& optimizer, const TrainingPrecision& precision);

// Used by one training thread in one generation. Calls of a step: Accumulate after the backward
// pass of every accumulation step but the last; BeginBackward, GradientsReady and EndBackward
// around the last one's backward pass; then Finish. With StepParts::captures_passes, all but Finish
// may be captured in a graph.
class GradientReducer {
 public:
  virtual ~GradientReducer() = default;

  // Gradient array that backward writes, in device memory.
  virtual float* gradients() = 0;
  // Saves the gradients of an accumulation step before the last: overwrites the accumulator if
  // `first`, otherwise adds to it.
  virtual void Accumulate(bool first) = 0;
  virtual void BeginBackward() = 0;
  // See the `ready` argument of nn::Execution::Backward.
  virtual void GradientsReady(size_t offset) = 0;
  virtual absl::Status EndBackward() = 0;
  // Collective. On success, later device work reads the sums from gradients(), and the controller
  // has the total loss and whether the sums are finite. After an error (the communicators') their
  // values are undefined and the update must not run. Adds to times.exposed_communication.
  virtual absl::Status Finish(StepTimes& times) = 0;

  // Collective operations per step, and bytes of gradients that they reduce.
  virtual uint64_t operations() const = 0;
  virtual uint64_t bytes() const = 0;
  // Compute time since construction, without waiting.
  virtual absl::Duration kernel_time() const = 0;
};

class HostGradientReducer : public GradientReducer {
 public:
  // Collective. With `scatters`, each rank receives only the sums of its shard (see Shares).
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
  // Loss that BeginBackward sends along with the first bucket, and total loss after Finish.
  virtual nn::LossResult LossOfBuckets() { return controller_.OwnLoss(); }
  virtual absl::StatusOr<nn::LossResult> TotalLoss() { return buckets_->totals(); }
  StepController& controller() { return controller_; }

 private:
  StepController& controller_;
  const ProcessGroups& groups_;
  const Shares::Share summed_;  // elements whose sums this rank has
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
  // Collective. `scatters`: see HostGradientReducer::MakeBuckets.
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
  const Shares::Share summed_;  // elements whose sums this rank has
  const std::unique_ptr<DeviceBucketReducer> buckets_;
};

// Options of the buckets that the job's spec sets. `scatters`: see
// HostGradientReducer::MakeBuckets.
DeviceBucketReducerOptions DeviceBucketOptions(const StepParts& parts, bool scatters);

// Collective. Creates the reducer selected by parts.path.
absl::StatusOr<std::unique_ptr<GradientReducer>> CreateGradientReducer(const StepParts& parts,
                                                                       bool scatters);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_GRADIENT_REDUCER_H_
