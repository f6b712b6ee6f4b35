#include "trainer/strategy/pipeline/stage_reducers.h"

#include <cstdint>
#include <iterator>
#include <memory>
#include <utility>

#include "common/status.h"
#include "trainer/strategy/gradient_reducer.h"

namespace muster::train {
namespace {

using collectives::DataType;
using collectives::ReduceOp;

// Reduces losses separately: only last stages have a loss, and only after backward.
class StageGradientReducer final : public HostGradientReducer {
 public:
  StageGradientReducer(const StepParts& parts, std::unique_ptr<HostBucketReducer> buckets)
      : HostGradientReducer(parts, std::move(buckets), /*scatters=*/false),
        world_(*parts.context->groups->world) {}

  uint64_t operations() const override { return HostGradientReducer::operations() + 1; }

 protected:
  nn::LossResult LossOfBuckets() override { return {}; }
  absl::StatusOr<nn::LossResult> TotalLoss() override {
    const nn::LossResult own = controller().OwnLoss();
    double sums[] = {own.loss_sum, own.correct};
    RETURN_IF_ERROR(
        world_.AllReduce(sums, sums, std::size(sums), DataType::kFloat64, ReduceOp::kSum)->Wait());
    return nn::LossResult{sums[0], sums[1]};
  }

 private:
  collectives::Communicator& world_;
};

// Replicas reduce gradients while the last micro-batch runs backward. The devices of all ranks then
// reduce the losses and, with loss scaling, whether all gradients are finite.
class StageDeviceReducer final : public GradientReducer {
 public:
  static absl::StatusOr<std::unique_ptr<StageDeviceReducer>> Create(const StepParts& parts) {
    ASSIGN_OR_RETURN(auto buckets, DeviceBucketReducer::Create(
                                       parts.context->groups->data_parallel_devices.get(),
                                       parts.plan, DeviceBucketOptions(parts, /*scatters=*/false)));
    return std::unique_ptr<StageDeviceReducer>(new StageDeviceReducer(parts, std::move(buckets)));
  }

  float* gradients() override { return buckets_->gradients(); }
  void Accumulate(bool first) override { buckets_->Accumulate(first); }
  void BeginBackward() override { buckets_->Begin(); }
  void GradientsReady(size_t offset) override { buckets_->Ready(offset, /*accumulated=*/false); }

  absl::Status EndBackward() override {
    static_assert(sizeof(nn::LossResult) == 2 * sizeof(double));
    RETURN_IF_ERROR(ReduceOnAll(controller_.loss(0), 2 * controller_.losses(), DataType::kFloat64,
                                ReduceOp::kSum));
    RETURN_IF_ERROR(buckets_->Finish());
    if (!controller_.checks_gradients()) return absl::OkStatus();
    controller_.CheckGradients(gradients(), elements_);
    static_assert(sizeof(bool) == 1);
    return ReduceOnAll(controller_.own_gradients_finite(), 1, DataType::kUint8, ReduceOp::kMin);
  }

  absl::Status Finish(StepTimes&) override { return groups_.status(); }

  uint64_t operations() const override {
    if (groups_.devices == nullptr) return 0;
    const bool has_replicas = groups_.data_parallel_devices != nullptr;
    // The buckets' number includes one for the losses.
    return (has_replicas ? buckets_->operations() : 1) + (controller_.checks_gradients() ? 1 : 0);
  }
  uint64_t bytes() const override { return buckets_->bytes(); }
  absl::Duration kernel_time() const override { return absl::ZeroDuration(); }

 private:
  StageDeviceReducer(const StepParts& parts, std::unique_ptr<DeviceBucketReducer> buckets)
      : controller_(*parts.controller),
        groups_(*parts.context->groups),
        elements_(parts.plan->parameter_elements()),
        buckets_(std::move(buckets)) {}

  absl::Status ReduceOnAll(void* values, size_t count, DataType type, ReduceOp op) {
    if (groups_.devices == nullptr) return absl::OkStatus();
    return groups_.devices->AllReduce(values, values, count, type, op)->Join();
  }

  StepController& controller_;
  const ProcessGroups& groups_;
  const size_t elements_;
  const std::unique_ptr<DeviceBucketReducer> buckets_;
};

// Clips by the gradient norm over all stages.
class StageUpdate final : public ReplicatedUpdate {
 public:
  using ReplicatedUpdate::ReplicatedUpdate;
  uint64_t operations() const override { return clips() ? 1 : 0; }

 protected:
  absl::Status ReduceSquaredNorm(double* sum) override {
    const ProcessGroups& groups = *parts_.context->groups;
    if (groups.pipeline_group->size() == 1) return absl::OkStatus();
    if (parts_.path == ReductionPath::kDevice) {
      const auto& stages =
          groups.pipeline_devices != nullptr ? groups.pipeline_devices : groups.devices;
      return stages->AllReduce(sum, sum, 1, DataType::kFloat64, ReduceOp::kSum)->Join();
    }
    kernels::Device& device = parts_.plan->device();
    double squares = 0;
    device.CopyToHost(&squares, sum, sizeof(squares));
    RETURN_IF_ERROR(
        groups.pipeline_group->AllReduce(&squares, &squares, 1, DataType::kFloat64, ReduceOp::kSum)
            ->Wait());
    device.CopyToDevice(sum, &squares, sizeof(squares));
    return absl::OkStatus();
  }
};

}  // namespace

absl::StatusOr<GradientPath> CreateStagePath(const StepParts& parts) {
  GradientPath path;
  if (parts.path == ReductionPath::kDevice) {
    ASSIGN_OR_RETURN(path.reducer, StageDeviceReducer::Create(parts));
    path.update = std::make_unique<StageUpdate>(parts, path.reducer.get());
    return path;
  }
  ASSIGN_OR_RETURN(auto buckets, HostGradientReducer::MakeBuckets(parts, /*scatters=*/false));
  if (parts.path == ReductionPath::kFusedSharedMemory) {
    ASSIGN_OR_RETURN(auto fused,
                     FusedUpdate::MakeFused(parts, buckets.get(), /*shares_states=*/true));
    path.reducer = std::make_unique<StageGradientReducer>(parts, std::move(buckets));
    path.update = std::make_unique<FusedUpdate>(parts, path.reducer.get(), std::move(fused));
    return path;
  }
  path.reducer = std::make_unique<StageGradientReducer>(parts, std::move(buckets));
  path.update = std::make_unique<StageUpdate>(parts, path.reducer.get());
  return path;
}

}  // namespace muster::train
