#include "trainer/strategy/ddp/step.h"

#include <optional>
#include <utility>

#include "common/status.h"
#include "trainer/strategy/stopwatch.h"

namespace muster::train {
namespace {

CommunicatorReducer BatchNormStatistics(const ProcessGroups& groups, ReductionPath path,
                                        kernels::Device* device) {
  if (path != ReductionPath::kDevice) {
    return CommunicatorReducer::ByProcesses(groups.world.get(), device);
  }
  return CommunicatorReducer::ByDevices(groups.world->size() == 1 ? nullptr : groups.devices.get());
}

}  // namespace

DataParallelStrategy::DataParallelStrategy(const StrategyContext& context, nn::Plan* plan,
                                           std::unique_ptr<Optimizer> optimizer, ModelState state,
                                           nn::Execution* execution)
    : StrategyBase(context, context.groups->world.get(), plan, std::move(optimizer),
                   std::move(state)),
      execution_(*execution),
      reduction_path_(ChooseReductionPath(context, replicas_, *plan, *optimizer_, precision_)),
      batch_norm_statistics_(
          BatchNormStatistics(*context.groups, reduction_path_, &plan->device())),
      input_(*context.dataset, plan->device()),
      graphs_(plan->device(), *context.groups->world,
              execution->supports_graph_capture() && context.spec->cuda_graphs() != "never") {}

absl::Status DataParallelStrategy::Build(PathFactory create_path, kernels::ThreadPool* threads) {
  ASSIGN_OR_RETURN(objective_,
                   Objective::Create(spec().objective(), *context_.groups, context_.max_samples,
                                     static_cast<int64_t>(execution_.logits(1).size()), device()));
  const bool on_devices = reduction_path_ == ReductionPath::kDevice;
  ASSIGN_OR_RETURN(controller_, StepController::Create(context_, device(), state_,
                                                       {.reduces_on_devices = on_devices,
                                                        .buffer_elements = plan_.buffer_elements(),
                                                        .losses = slices()}));
  objective_->set_loss_scale(controller_->loss_scale_factor());
  if (spec().sync_batch_norm()) execution_.set_statistics_reducer(&batch_norm_statistics_);
  // Processes cannot reduce statistics within a captured pass.
  captures_passes_ = graphs_.enabled() && objective_->supports_graph_capture() &&
                     (on_devices || !spec().sync_batch_norm());
  StepParts parts = PartsOfStep();
  parts.graphs = &graphs_;
  parts.path = reduction_path_;
  parts.captures_passes = captures_passes_;
  parts.threads = threads;
  ASSIGN_OR_RETURN(path_, create_path(parts));
  state_.BindGradients(path_.reducer->gradients());
  RETURN_IF_ERROR(KeepState());
  return path_.update->KeepOwnOptimizerStates();
}

absl::Status DataParallelStrategy::Step(const data::Batch& batch, uint64_t step, StepTimes& times) {
  const absl::Duration computed_before = kernel_time();
  const uint64_t global_samples = batch.global_samples * batch.views;
  RETURN_IF_ERROR(controller_->BeginStep(step));
  BeginState(global_samples);
  for (uint32_t index = 0; index < slices(); ++index) {
    RETURN_IF_ERROR(RunSlice(SliceOf(batch, index), index, step, global_samples));
  }
  {
    const Stopwatch stopwatch(phases_.reduction);
    RETURN_IF_ERROR(path_.reducer->Finish(times));
    RETURN_IF_ERROR(batch_norm_statistics_.status());
  }
  {
    const Stopwatch stopwatch(phases_.update);
    RETURN_IF_ERROR(path_.update->Run(times));
  }
  EndState();
  controller_->FinishStep(global_samples);
  const absl::Duration computed = kernel_time() - computed_before;
  times.kernels += computed;
  RecordBusy(computed);
  return absl::OkStatus();
}

absl::StatusOr<WholeState> DataParallelStrategy::CompleteState() {
  ASSIGN_OR_RETURN(WholeState left, CompleteUpdate());
  if (path_.update->optimizer_shares() != nullptr) {
    left.part = replicas_.rank();
    left.parts = replicas_.size();
  }
  RETURN_IF_ERROR(AddArrays(state_.Arrays(PartRange(left.part, left.parts)), left));
  return left;
}

absl::Status DataParallelStrategy::RunSlice(const data::Batch& slice, uint32_t index, uint64_t step,
                                            uint64_t global_samples) {
  const auto samples = static_cast<uint32_t>(slice.samples);
  {
    const Stopwatch stopwatch(input_time_);
    RETURN_IF_ERROR(input_.Write(slice, execution_.input(), execution_.labels()));
  }
  execution_.SetStep({spec().seed(), step, slice.first_sample * uint64_t{slice.views}});
  if (!captures_passes_) return ForwardBackward(index, samples, global_samples);
  return graphs_.Run({index, samples, global_samples},
                     [&] { return ForwardBackward(index, samples, global_samples); });
}

absl::Status DataParallelStrategy::ForwardBackward(uint32_t index, uint32_t samples,
                                                   uint64_t global_samples) {
  const bool first = index == 0, last = index + 1 == slices();
  if (first) controller_->BeginForward();
  execution_.Forward(samples, /*training=*/true);
  {
    const Stopwatch stopwatch(phases_.loss);
    RETURN_IF_ERROR(objective_->Queue(execution_, samples, global_samples, /*training=*/true,
                                      controller_->loss(index)));
  }
  if (!last) {
    execution_.Backward(samples, nullptr);
    path_.reducer->Accumulate(first);
    return absl::OkStatus();
  }
  // A bucket of gradients is reduced as soon as backward has written it.
  path_.reducer->BeginBackward();
  execution_.Backward(samples, [this](size_t offset) { path_.reducer->GradientsReady(offset); });
  return path_.reducer->EndBackward();
}

absl::StatusOr<nn::LossResult> DataParallelStrategy::EvaluateBatch(const data::Batch& batch,
                                                                   uint64_t global_samples,
                                                                   data::InputWriter& input) {
  const auto samples = static_cast<uint32_t>(batch.samples);
  RETURN_IF_ERROR(input.Write(batch, execution_.input(), execution_.labels()));
  execution_.Forward(samples, /*training=*/false);
  return objective_->Compute(execution_, samples, global_samples, /*training=*/false);
}

absl::Duration DataParallelStrategy::kernel_time() const {
  return execution_.kernel_time() + objective_->kernel_time() + path_.reducer->kernel_time() +
         path_.update->kernel_time() + input_time_;
}

}  // namespace muster::train
