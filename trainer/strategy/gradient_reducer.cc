#include "trainer/strategy/gradient_reducer.h"

#include <utility>

#include "common/status.h"
#include "common/time/now.h"
#include "common/time/time.h"
#include "trainer/strategy/stopwatch.h"

namespace muster::train {
namespace {

template <typename Options>
Options BucketOptionsOf(const StepParts& parts, bool scatters) {
  Options options;
  const v1::StrategySpec& strategy = parts.context->spec->strategy();
  if (strategy.first_bucket_bytes() > 0) options.first_bucket_bytes = strategy.first_bucket_bytes();
  if (strategy.bucket_bytes() > 0) options.bucket_bytes = strategy.bucket_bytes();
  options.accumulates = parts.controller->accumulation_steps() > 1;
  options.scatters = scatters;
  options.type = parts.precision.gradients;
  return options;
}

Shares::Share SummedShare(const StepParts& parts, bool scatters) {
  const size_t elements = parts.plan->parameter_elements();
  if (!scatters) return {0, elements};
  return Shares(elements, parts.replicas->size()).of(parts.replicas->rank());
}

}  // namespace

ReductionPath ChooseReductionPath(const StrategyContext& context,
                                  const collectives::Communicator& replicas, const nn::Plan& plan,
                                  const Optimizer& optimizer, const TrainingPrecision& precision) {
  const bool host_memory = plan.device().host_memory();
  if (context.canonical_layout) return ReductionPath::kHost;
  // A step whose gradients are looked at before the update needs their sums first.
  if (replicas.backend() == "shm" && host_memory &&
      precision.gradients == kernels::DataType::kFloat32 && optimizer.elementwise() &&
      context.spec->mixed_precision().loss_scale().initial() == 0) {
    return ReductionPath::kFusedSharedMemory;
  }
  const ProcessGroups& groups = *context.groups;
  const bool on_devices = !host_memory && (groups.world->size() == 1 || groups.devices != nullptr);
  return on_devices ? ReductionPath::kDevice : ReductionPath::kHost;
}

DeviceBucketReducerOptions DeviceBucketOptions(const StepParts& parts, bool scatters) {
  return BucketOptionsOf<DeviceBucketReducerOptions>(parts, scatters);
}

absl::StatusOr<std::unique_ptr<HostBucketReducer>> HostGradientReducer::MakeBuckets(
    const StepParts& parts, bool scatters) {
  auto options = BucketOptionsOf<HostBucketReducerOptions>(parts, scatters);
  options.canonical = parts.context->canonical_layout;
  options.sums = parts.path != ReductionPath::kFusedSharedMemory;
  return HostBucketReducer::Create(parts.replicas, parts.plan, options);
}

HostGradientReducer::HostGradientReducer(const StepParts& parts,
                                         std::unique_ptr<HostBucketReducer> buckets, bool scatters)
    : controller_(*parts.controller),
      groups_(*parts.context->groups),
      summed_(SummedShare(parts, scatters)),
      buckets_(std::move(buckets)) {}

void HostGradientReducer::BeginBackward() {
  buckets_->Begin(LossOfBuckets(), /*accumulated=*/controller_.accumulation_steps() > 1);
}

absl::Status HostGradientReducer::Finish(StepTimes& times) {
  const SteadyTime backward_end = Now().steady;
  const absl::Duration computed = buckets_->kernel_time();
  RETURN_IF_ERROR(buckets_->Finish());
  ASSIGN_OR_RETURN(const nn::LossResult total, TotalLoss());
  controller_.SetTotalLoss(total);
  times.exposed_communication += Now().steady - backward_end - (buckets_->kernel_time() - computed);
  if (!controller_.checks_gradients()) return absl::OkStatus();
  {
    const Stopwatch stopwatch(check_time_);
    controller_.CheckGradients(gradients() + summed_.begin, summed_.count());
  }
  const Stopwatch stopwatch(times.exposed_communication);
  return controller_.AgreeOnGradients();
}

uint64_t HostGradientReducer::operations() const {
  const bool agrees = controller_.checks_gradients() && groups_.world->size() > 1;
  return buckets_->operations() + (agrees ? 1 : 0);
}

absl::StatusOr<std::unique_ptr<DeviceGradientReducer>> DeviceGradientReducer::Create(
    const StepParts& parts, bool scatters) {
  // A world of one has nothing to sum.
  const ProcessGroups& groups = *parts.context->groups;
  ASSIGN_OR_RETURN(auto buckets, DeviceBucketReducer::Create(
                                     groups.world->size() == 1 ? nullptr : groups.devices.get(),
                                     parts.plan, DeviceBucketOptions(parts, scatters)));
  return std::unique_ptr<DeviceGradientReducer>(
      new DeviceGradientReducer(parts, std::move(buckets), scatters));
}

DeviceGradientReducer::DeviceGradientReducer(const StepParts& parts,
                                             std::unique_ptr<DeviceBucketReducer> buckets,
                                             bool scatters)
    : controller_(*parts.controller),
      groups_(*parts.context->groups),
      scatters_(scatters),
      summed_(SummedShare(parts, scatters)),
      buckets_(std::move(buckets)) {}

void DeviceGradientReducer::BeginBackward() {
  buckets_->Begin();
  buckets_->ReduceLosses(controller_.loss(0), controller_.losses());
}

void DeviceGradientReducer::GradientsReady(size_t offset) {
  buckets_->Ready(offset, /*accumulated=*/controller_.accumulation_steps() > 1);
}

absl::Status DeviceGradientReducer::EndBackward() {
  RETURN_IF_ERROR(buckets_->Finish());
  if (!controller_.checks_gradients()) return absl::OkStatus();
  controller_.CheckGradients(gradients() + summed_.begin, summed_.count());
  // Devices that have the same sums, to the bit, have the same answer.
  if (!scatters_) return absl::OkStatus();
  static_assert(sizeof(bool) == 1);
  bool* const finite = controller_.own_gradients_finite();
  return groups_.devices
      ->AllReduce(finite, finite, 1, collectives::DataType::kUint8, collectives::ReduceOp::kMin)
      ->Join();
}

uint64_t DeviceGradientReducer::operations() const {
  return buckets_->operations() + (scatters_ && controller_.checks_gradients() ? 1 : 0);
}

absl::StatusOr<std::unique_ptr<GradientReducer>> CreateGradientReducer(const StepParts& parts,
                                                                       bool scatters) {
  if (parts.path == ReductionPath::kDevice) return DeviceGradientReducer::Create(parts, scatters);
  ASSIGN_OR_RETURN(auto buckets, HostGradientReducer::MakeBuckets(parts, scatters));
  if (parts.captures_passes) {
    return std::make_unique<CapturedHostGradientReducer>(parts, std::move(buckets), scatters);
  }
  return std::make_unique<HostGradientReducer>(parts, std::move(buckets), scatters);
}

}  // namespace muster::train
