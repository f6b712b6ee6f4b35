#include "trainer/graph/plan_report.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/time.h"

namespace muster::nn {
namespace {

v1::PlanShape ToProto(const ImageShape& shape) {
  v1::PlanShape proto;
  proto.set_height(shape.height);
  proto.set_width(shape.width);
  proto.set_channels(shape.channels);
  return proto;
}

// Backward computes the forward's work again for the gradient of the parameters, and once more for
// that of the inputs.
int64_t TrainingFlops(const Operation& operation) {
  const int64_t forward = operation.forward_flops();
  const bool data = std::any_of(operation.inputs().begin(), operation.inputs().end(),
                                [](const Tensor* input) { return input->needs_gradient; });
  return forward * (1 + (operation.has_parameters() ? 1 : 0) + (data ? 1 : 0));
}

double Microseconds(absl::Duration duration) { return absl::ToDoubleMicroseconds(duration); }

// Images of a step.
double ImagesOf(const v1::PlanReport& report) {
  return static_cast<double>(report.rows()) * report.accumulation_steps() / report.views();
}

void AddPhase(const v1::PlanPhaseWork& phase, v1::PlanPhaseWork& total) {
  total.set_nodes(total.nodes() + phase.nodes());
  total.set_bytes(total.bytes() + phase.bytes());
  total.set_flops(total.flops() + phase.flops());
  total.set_us(total.us() + phase.us());
}

void AddKernels(const LaunchCounter::Launches& launches, const kernels::GpuModel* model,
                kernels::DataType compute, v1::PlanPhaseWork& phase) {
  for (const kernels::Launch& launch : launches) {
    v1::PlanKernel& kernel = *phase.add_kernels();
    kernel.set_name(launch.kernel);
    kernel.set_bytes(static_cast<uint64_t>(launch.bytes));
    kernel.set_flops(static_cast<uint64_t>(launch.flops));
    if (model != nullptr) kernel.set_us(model->Microseconds({&launch, 1}, compute));
  }
}

}  // namespace

v1::PlanReport DescribePlan(const CompiledPlan& plan, const PlanUse& use) {
  v1::PlanReport report;
  report.set_rows(use.samples);
  report.set_accumulation_steps(use.accumulation_steps);
  report.set_views(use.views);
  report.set_arena_bytes(plan.arena_bytes());
  const int64_t samples_of_step = int64_t{use.samples} * use.accumulation_steps;
  std::map<std::string, uint64_t> bytes_of_type;
  for (const Tensor* input : plan.inputs()) {
    bytes_of_type[kernels::NameOf(input->type)] += input->bytes(plan.max_batch());
  }
  const std::vector<OperationDescription> descriptions = plan.Describe();
  for (size_t i = 0; i < descriptions.size(); ++i) {
    const OperationDescription& description = descriptions[i];
    v1::PlanOperation& operation = *report.add_operations();
    operation.set_name(description.name);
    operation.set_kind(description.kind);
    for (const ImageShape& input : description.inputs) *operation.add_inputs() = ToProto(input);
    *operation.mutable_output() = ToProto(description.output);
    for (const std::string& dtype : description.input_dtypes) operation.add_input_dtypes(dtype);
    operation.set_dtype(description.dtype);
    operation.set_compute_dtype(description.compute_dtype);
    operation.set_evaluation(description.evaluation);
    operation.set_recomputed(description.recomputed);
    bytes_of_type[description.dtype] += description.activation_bytes;
    operation.set_kernel(description.kernel);
    operation.set_parameters(description.parameters);
    operation.set_forward_flops(description.forward_flops * samples_of_step);
    operation.set_activation_bytes(description.activation_bytes);
    operation.set_saved_bytes(description.saved_bytes);
    operation.set_workspace_bytes(description.workspace_bytes);
    operation.set_arena_offset(description.arena_offset);
    report.set_parameters(report.parameters() + description.parameters);
    report.set_forward_flops_per_image(report.forward_flops_per_image() +
                                       description.forward_flops * use.views);
    report.set_training_flops_per_image(report.training_flops_per_image() +
                                        TrainingFlops(*plan.operations()[i]) * use.views);
  }
  for (const auto& [dtype, bytes] : bytes_of_type) {
    v1::PlanTypeBytes& entry = *report.add_activation_bytes();
    entry.set_dtype(dtype);
    entry.set_bytes(bytes);
  }
  return report;
}

void AddTimes(const PlanTimer& timer, v1::PlanReport& report) {
  const PlanTimer::Times medians = timer.Medians();
  absl::Duration sum = medians.objective + medians.optimizer;
  for (const absl::Duration time : medians.forward) sum += time;
  for (const absl::Duration time : medians.backward) sum += time;
  const auto share = [sum](absl::Duration time) { return 100 * absl::FDivDuration(time, sum); };

  for (int i = 0; i < report.operations_size(); ++i) {
    v1::PlanOperation& operation = *report.mutable_operations(i);
    operation.set_forward_us(Microseconds(medians.forward[i]));
    operation.set_backward_us(Microseconds(medians.backward[i]));
    operation.set_share(share(medians.forward[i] + medians.backward[i]));
  }
  v1::PlanTimes& times = *report.mutable_times();
  times.set_steps(static_cast<uint32_t>(timer.steps()));
  times.set_step_us(Microseconds(medians.step));
  times.set_images_per_second(ImagesOf(report) / absl::ToDoubleSeconds(medians.step));
  times.set_objective_us(Microseconds(medians.objective));
  times.set_objective_share(share(medians.objective));
  times.set_optimizer_us(Microseconds(medians.optimizer));
  times.set_optimizer_share(share(medians.optimizer));
}

void AddWork(const LaunchCounter& counter, const kernels::GpuModel* model,
             kernels::DataType compute, WorkDetail detail, v1::PlanReport& report) {
  v1::PlanWork& work = *report.mutable_work();
  const auto add = [&](const LaunchCounter::Launches& launches, v1::PlanPhaseWork& phase) {
    double bytes = 0, flops = 0;
    for (const kernels::Launch& launch : launches) {
      bytes += launch.bytes;
      flops += launch.flops;
    }
    if (detail == WorkDetail::kKernels) AddKernels(launches, model, compute, phase);
    phase.set_nodes(launches.size());
    phase.set_bytes(static_cast<uint64_t>(bytes));
    phase.set_flops(static_cast<uint64_t>(flops));
    if (model != nullptr) phase.set_us(model->Microseconds(launches, compute));
    AddPhase(phase, *work.mutable_total());
  };
  uint64_t convolution_bytes = 0;
  for (int i = 0; i < report.operations_size(); ++i) {
    v1::PlanOperation& operation = *report.mutable_operations(i);
    add(counter.forward()[i], *operation.mutable_forward_work());
    add(counter.backward()[i], *operation.mutable_backward_work());
    if (absl::StartsWith(operation.kind(), "conv2d")) {
      convolution_bytes += operation.activation_bytes() * report.accumulation_steps();
    }
  }
  add(counter.objective(), *work.mutable_objective());
  add(counter.optimizer(), *work.mutable_optimizer());
  add(counter.other(), *work.mutable_other());
  if (convolution_bytes > 0) {
    work.set_bytes_per_convolution_output(static_cast<double>(work.total().bytes()) /
                                          static_cast<double>(convolution_bytes));
  }
  if (model == nullptr) return;
  work.set_gpu(model->name);
  work.set_images_per_second(ImagesOf(report) / (work.total().us() * 1e-6));
}

}  // namespace muster::nn
