// What a training tells at its end.
#include <sys/resource.h>

#include <utility>
#include <variant>

#include "common/limits.h"
#include "common/status.h"
#include "glog/logging.h"
#include "trainer/loop/gather_summaries.h"
#include "trainer/loop/trainer.h"
#include "trainer/precision/loss_scale.h"

namespace muster::train {
namespace {

uint64_t PeakMemoryBytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace

v1::TrainSummary Trainer::OwnSummary() const {
  v1::TrainSummary own;
  const std::vector<nn::DeviceUse> devices = plan_.devices();
  for (size_t i = 0; i < devices.size(); ++i) {
    v1::DeviceUse& use = *own.add_devices();
    use.set_rank(communicator_->rank());
    use.set_node(options_.node_name);
    use.set_device(devices[i].device);
    use.set_parameter_bytes(devices[i].parameter_bytes);
    use.set_gradient_bytes(devices[i].gradient_bytes);
    use.set_activation_bytes(devices[i].activation_bytes);
    use.set_gathered_bytes(devices[i].gathered_bytes);
    const StepStatistics& busy = device_steady_.empty() ? steady_ : device_steady_[i];
    use.set_busy_seconds(absl::ToDoubleSeconds(busy.Median().kernels));
    if (i > 0) continue;
    for (const OptimizerState& state : preparation_->optimizer->states()) {
      use.set_optimizer_bytes(use.optimizer_bytes() + state.values.bytes());
    }
  }
  if (is_stage()) AddStage(own);
  return own;
}

void Trainer::AddStage(v1::TrainSummary& own) const {
  const pipeline::PipelinePlan& stage = *preparation_->stage;
  const StepTimes median = SteadyMedian();
  v1::StageUse& use = *own.add_stages();
  use.set_stage(communicators_.stages->rank());
  use.set_rank(communicator_->rank());
  const std::vector<nn::OperationDescription> operations = stage.Describe();
  use.set_first_layer(operations.front().name);
  use.set_last_layer(operations.back().name);
  use.set_forward_seconds(absl::ToDoubleSeconds(median.stage_forward));
  use.set_backward_seconds(absl::ToDoubleSeconds(median.stage_backward));
  use.set_waiting_seconds(absl::ToDoubleSeconds(median.stage_waiting));
  use.set_span_seconds(absl::ToDoubleSeconds(median.stage_span));
  use.set_activation_slots(stage.slots());
  use.set_activation_bytes(stage.activation_bytes());
  use.set_boundary_bytes(stage.boundary_bytes());
}

absl::Status Trainer::GatherOwn(v1::TrainSummary& summary) {
  ASSIGN_OR_RETURN(std::vector<v1::TrainSummary> of_ranks,
                   GatherSummaries(*communicator_, OwnSummary()));
  double waiting = 0, span = 0;
  for (v1::TrainSummary& of_rank : of_ranks) {
    for (v1::DeviceUse& use : *of_rank.mutable_devices()) {
      if (summary.devices_size() < limits::kRecordedDevices) summary.add_devices()->Swap(&use);
    }
    for (v1::StageUse& use : *of_rank.mutable_stages()) {
      waiting += use.waiting_seconds();
      span += use.span_seconds();
      // The first replica's.
      if (use.rank() < communicators_.stages->size()) summary.add_stages()->Swap(&use);
    }
  }
  if (span > 0) summary.set_bubble_ratio(waiting / span);
  return absl::OkStatus();
}

absl::Status Trainer::SummarizeWeights(v1::TrainSummary& summary) {
  std::vector<Tensor> parameters = state_.ExportParameters();
  const std::string own = ModelState::WeightsDigest(parameters);
  ASSIGN_OR_RETURN(const uint32_t differing,
                   CountDiffering(*communicator_, *communicators_.equals(), own));
  LOG_IF(ERROR, differing > 0 && is_first())
      << differing << " of " << communicator_->size()
      << " ranks ended with other weights than the first that has the same";
  summary.set_differing_replicas(differing);
  summary.set_weights_digest(own);
  if (is_stage() && communicators_.replicas->rank() == 0) {
    ASSIGN_OR_RETURN(parameters, WholeModel(std::move(parameters)));
    summary.set_weights_digest(ModelState::WeightsDigest(parameters));
  }
  uint64_t count = 0;
  for (const Tensor& tensor : parameters) {
    count += std::get<std::vector<float>>(tensor.values).size();
  }
  summary.set_parameters(count);
  return absl::OkStatus();
}

StepTimes Trainer::SteadyMedian() const {
  const StepTimes median = steady_.Median();
  // A training too short for a steady state is still worth a figure.
  return median.step == absl::ZeroDuration() ? recent_.Median() : median;
}

absl::StatusOr<v1::TrainSummary> Trainer::Summarize() {
  auto peak_memory_bytes = static_cast<double>(PeakMemoryBytes());
  RETURN_IF_ERROR(communicator_
                      ->AllReduce(&peak_memory_bytes, &peak_memory_bytes, 1,
                                  collectives::DataType::kFloat64, collectives::ReduceOp::kMax)
                      ->Wait());
  v1::TrainSummary summary;
  summary.set_steps(step_);
  summary.set_epochs(Epochs());
  const StepTimes median = SteadyMedian();
  if (median.step > absl::ZeroDuration()) {
    summary.set_images_per_second(spec_.global_batch() / absl::ToDoubleSeconds(median.step));
  }
  summary.set_median_step_seconds(absl::ToDoubleSeconds(median.step));
  summary.set_data_wait_seconds(absl::ToDoubleSeconds(median.data_wait));
  summary.set_exposed_communication_seconds(absl::ToDoubleSeconds(median.exposed_communication));
  if (plan_.device().host_memory()) {
    summary.set_kernel_seconds(absl::ToDoubleSeconds(median.kernels));
  } else {
    summary.set_queue_seconds(absl::ToDoubleSeconds(median.kernels));
  }
  for (size_t part = 0; part < median.parts.size() && !plan_.parts().empty(); ++part) {
    v1::StepPart& shown = *summary.add_parts();
    shown.set_name(kStepPartNames[part]);
    shown.set_seconds(absl::ToDoubleSeconds(median.parts[part]));
  }
  summary.set_evaluation_seconds(absl::ToDoubleSeconds(last_evaluation_));
  summary.set_strategy(spec_.strategy().name().empty() ? "ddp" : spec_.strategy().name());
  summary.set_precision(PrecisionText(precision_));
  summary.set_device(plan_.device().name());
  if (const LossScaleState* const scale = training_step_->loss_scale(); scale != nullptr) {
    summary.set_loss_scale(scale->scale);
    summary.set_skipped_steps(scale->skipped_steps);
  }
  summary.set_final_loss(loss_);
  summary.set_test_accuracy(evaluation_.accuracy);
  summary.set_test_loss(evaluation_.loss);
  summary.set_stall_seconds(absl::ToDoubleSeconds(stall_));
  summary.set_peak_memory_bytes(static_cast<uint64_t>(peak_memory_bytes));
  summary.mutable_losses()->Add(losses_.begin(), losses_.end());
  summary.mutable_step_end_seconds()->Add(step_ends_.begin(), step_ends_.end());
  summary.set_first_loss_step(first_step_ + 1);
  summary.mutable_evaluations()->Add(evaluations_.begin(), evaluations_.end());
  RETURN_IF_ERROR(SummarizeWeights(summary));
  RETURN_IF_ERROR(GatherOwn(summary));
  summary.set_resumed_from_step(options_.resume.has_value() ? first_step_ : 0);
  if (progress_.progress().has_first_step_time()) {
    *summary.mutable_first_step_time() = progress_.progress().first_step_time();
  }
  return summary;
}

}  // namespace muster::train
