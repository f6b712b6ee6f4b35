#include "worker/nn/plan.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "kernels/philox.h"
#include "worker/nn/compiled_plan.h"
#include "worker/nn/lowering.h"

namespace muster::nn {
CompiledPlan::CompiledPlan(Program program, const CompileOptions& options)
    : program_(std::move(program)), options_(options) {}

absl::StatusOr<std::unique_ptr<CompiledPlan>> CompiledPlan::Make(const Graph& graph,
                                                                 const CompileOptions& options) {
  if (options.max_batch == 0 || options.threads == 0) {
    return absl::InvalidArgumentError("a plan needs at least one row and one thread");
  }
  ASSIGN_OR_RETURN(Program program, Lower(graph, options));
  std::unique_ptr<CompiledPlan> plan(new CompiledPlan(std::move(program), options));
  ASSIGN_OR_RETURN(plan->memory_, PlaceMemory(plan->program_, options.max_batch, options.training));
  plan->call_.workspace = plan->memory_.workspace;
  return plan;
}

std::string CompiledPlan::layout_digest() const {
  const std::string text = absl::StrCat(Kernels().name, "\n", program_.parameters.Describe(),
                                        program_.buffers.Describe());
  return absl::StrCat(absl::Hex(HashOf(text), absl::kZeroPad16));
}

std::vector<OperationDescription> CompiledPlan::Describe() const {
  std::vector<OperationDescription> descriptions;
  for (const auto& operation : program_.operations) {
    const Operation::Memory memory = operation->memory(options_.max_batch);
    const Tensor& output = *operation->output();
    OperationDescription description = {
        .name = operation->name(),
        .kind = operation->kind(),
        .kernel = operation->description(),
        .dtype = "float32",
        .output = output.shape,
        .parameters = program_.parameters.CanonicalElements(operation->parameters_begin(),
                                                            operation->parameters_end()),
        .forward_flops = operation->forward_flops(),
        .activation_bytes = options_.max_batch * output.elements() * sizeof(float),
        .saved_bytes = memory.saved_bytes,
        .workspace_bytes = memory.workspace_bytes,
        .arena_offset =
            static_cast<size_t>(reinterpret_cast<const char*>(output.data) - memory_.arena.get())};
    for (const Tensor* input : operation->inputs()) description.inputs.push_back(input->shape);
    descriptions.push_back(std::move(description));
  }
  return descriptions;
}

void CompiledPlan::set_statistics_reducer(StatisticsReducer* reducer) {
  if (options_.synchronize_batch_norm) call_.reducer = reducer;
}

void CompiledPlan::Bind(float* parameters, float* gradients, float* buffers) {
  parameters_ = parameters;
  call_.parameters = parameters;
  call_.gradients = gradients;
  call_.buffers = buffers;
  // Padding between tensors is never written again.
  if (gradients != nullptr) std::fill_n(gradients, parameter_elements(), 0.0f);
}

absl::Status CompiledPlan::Import(const ParameterInfo& parameter, absl::Span<const float> values) {
  if (program_.buffers.Has(parameter.name)) {
    return program_.buffers.Import(call_.buffers, parameter, values);
  }
  return program_.parameters.Import(parameters_, parameter, values);
}

absl::Status CompiledPlan::Export(const ParameterInfo& parameter, absl::Span<float> values) const {
  if (program_.buffers.Has(parameter.name)) {
    return program_.buffers.Export(call_.buffers, parameter, values);
  }
  return program_.parameters.Export(parameters_, parameter, values);
}

void CompiledPlan::Initialize(uint64_t seed) {
  program_.parameters.Initialize(seed, parameters_);
  program_.buffers.Initialize(seed, call_.buffers);
}

absl::Status CompiledPlan::ImportInto(float* flat, const ParameterInfo& parameter,
                                      absl::Span<const float> values) const {
  return program_.parameters.Import(flat, parameter, values);
}

absl::Status CompiledPlan::ExportFrom(const float* flat, const ParameterInfo& parameter,
                                      absl::Span<float> values) const {
  return program_.parameters.Export(flat, parameter, values);
}

const kernels::KernelTable& CompiledPlan::Kernels() const {
  return options_.reference ? kernels::ReferenceKernels() : kernels::CpuKernels();
}

template <typename Pass>
void CompiledPlan::Run(Operation& operation, const char* pass_name, const Pass& pass) {
  if (observer_) observer_(operation, pass_name, false);
  pass();
  if (observer_) observer_(operation, pass_name, true);
}

void CompiledPlan::DrawBlocks() {
  const kernels::PhiloxKey key = kernels::DerivePhiloxKey(call_.step.seed, call_.step.step);
  for (const auto& block : program_.blocks) {
    // A counter that no dropout uses: those have the numbers of other nodes.
    const uint32_t word = kernels::Philox4x32({0, 0, 0, block->node}, key)[0];
    block->dropped =
        call_.training && static_cast<double>(kernels::Uniform01(word)) < block->probability;
  }
}

void CompiledPlan::Forward(uint32_t rows, bool training, const StepContext& context) {
  call_.rows = rows;
  call_.training = training;
  call_.step = context;
  DrawBlocks();
  for (const auto& operation : program_.operations) {
    if (operation->skipped()) continue;
    Run(*operation, "forward", [&] { operation->Forward(call_); });
  }
}

LossResult CompiledPlan::Loss(uint32_t rows, double label_smoothing, float scale) {
  const Tensor& logits = *program_.logits;
  const kernels::CrossEntropyResult result =
      Kernels().softmax_cross_entropy({.rows = rows,
                                       .classes = logits.elements(),
                                       .label_smoothing = label_smoothing,
                                       .scale = scale},
                                      logits.data, memory_.labels, logits.gradient);
  return {.loss_sum = result.loss_sum, .correct = result.correct};
}

void CompiledPlan::Backward(uint32_t rows, const std::function<void(size_t offset)>& ready) {
  call_.rows = rows;
  for (size_t i = program_.operations.size(); i-- > 0;) BackwardOperation(i, ready);
}

void CompiledPlan::BackwardOperation(size_t index,
                                     const std::function<void(size_t offset)>& ready) {
  Operation& operation = *program_.operations[index];
  // Before the first parameter.
  if (!operation.output()->needs_gradient) return;
  const bool skipped = operation.skipped();
  if (!skipped && operation.memory(options_.max_batch).activation_in_backward) {
    Run(operation, "backward activation", [&] { operation.BackwardActivation(call_); });
  }
  if (operation.has_parameters()) {
    const size_t begin = operation.parameters_begin();
    if (skipped) {
      std::fill(call_.gradients + begin, call_.gradients + operation.parameters_end(), 0.0f);
    } else {
      Run(operation, "backward parameters", [&] { operation.BackwardParameters(call_); });
    }
    if (ready) ready(begin);
  }
  if (!memory_.contributions[index].empty()) ContributeGradients(index);
}

void CompiledPlan::ContributeGradients(size_t index) {
  Operation& operation = *program_.operations[index];
  const auto contribute = [&](const Contribution& contribution) {
    // A branch that is left out needs no gradient.
    if (contribution.producer->skipped()) return;
    const Tensor& input = *operation.inputs()[contribution.input];
    const size_t count = call_.rows * static_cast<size_t>(input.elements());
    if (operation.skipped()) {
      if (contribution.first) std::fill_n(input.gradient, count, 0.0f);
    } else if (operation.PassesGradient(contribution.input)) {
      if (contribution.in_place) return;
      const float* const dy = operation.output()->gradient;
      if (contribution.first) {
        std::copy_n(dy, count, input.gradient);
      } else {
        Kernels().accumulate(count, dy, input.gradient);
      }
    } else if (contribution.first) {
      operation.BackwardData(call_, contribution.input, input.gradient);
    } else {
      operation.BackwardData(call_, contribution.input, contribution.addend);
      Kernels().accumulate(count, contribution.addend, input.gradient);
    }
  };
  Run(operation, "backward data", [&] {
    for (const Contribution& contribution : memory_.contributions[index]) contribute(contribution);
  });
}

absl::Span<const float> CompiledPlan::logits(uint32_t rows) const {
  const Tensor& logits = *program_.logits;
  return absl::MakeConstSpan(logits.data, rows * static_cast<size_t>(logits.elements()));
}

absl::StatusOr<std::unique_ptr<Plan>> Compile(const Graph& graph, const CompileOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<CompiledPlan> plan, CompiledPlan::Make(graph, options));
  return std::unique_ptr<Plan>(std::move(plan));
}

}  // namespace muster::nn
