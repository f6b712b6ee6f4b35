#include "trainer/graph/plan.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status.h"
#include "common/time/now.h"
#include "common/time/time.h"
#include "kernels/dropout.h"
#include "trainer/graph/compiled_plan.h"
#include "trainer/graph/lowering.h"

namespace muster::nn {
namespace {

// Gradients that are cast at once while backward runs: 16 MiB of float32, a part of a bucket.
constexpr int64_t kCollectedPieces = (int64_t{4} << 20) / kernels::kCastPiece;

}  // namespace

CompiledPlan::CompiledPlan(Program program, const CompileOptions& options)
    : program_(std::move(program)), options_(options) {
  const auto fill = [](const std::vector<Boundary>& boundaries, std::vector<BoundaryTensor>& to) {
    for (const Boundary& boundary : boundaries) {
      to.push_back({.name = boundary.name, .sample_bytes = boundary.tensor->bytes(1)});
    }
  };
  fill(program_.inputs, boundary_inputs_);
  fill(program_.outputs, boundary_outputs_);
}

absl::StatusOr<std::unique_ptr<CompiledPlan>> CompiledPlan::Make(const Graph& graph,
                                                                 const CompileOptions& options) {
  if (options.max_batch == 0 || options.threads == 0 || options.in_flight_micro_batches == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_batch (", options.max_batch, "), threads (", options.threads,
                     ") and in_flight_micro_batches (", options.in_flight_micro_batches,
                     ") must be at least 1"));
  }
  for (const kernels::DataType type : {options.precision.activations, options.precision.compute}) {
    if (kernels::IsKernelType(type)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("precision: kernels do not support ", kernels::NameOf(type)));
  }
  ASSIGN_OR_RETURN(Program program, Lower(graph, options));
  std::unique_ptr<CompiledPlan> plan(new CompiledPlan(std::move(program), options));
  ASSIGN_OR_RETURN(plan->memory_, PlaceMemory(plan->program_, options));
  plan->keys_.resize(options.in_flight_micro_batches);
  plan->call_.workspace = plan->memory_->workspace;
  plan->UpdateSlotPointers();
  std::vector<kernels::BlockDraw> blocks;
  for (const auto& block : plan->program_.blocks) blocks.push_back(block->draw);
  plan->device().CopyToDevice(plan->memory_->blocks, blocks.data(),
                              blocks.size() * sizeof(kernels::BlockDraw));
  plan->PlanReadiness();
  RETURN_IF_ERROR(plan->AllocateCasts());
  return plan;
}

// Operations are in an order in which they can run, parameters in the graph's order: a gradient may
// be final before gradients that come after it in the flat array.
void CompiledPlan::PlanReadiness() {
  size_t end = 0;
  for (const auto& operation : program_.operations) {
    final_from_.push_back(end);
    for (const Operation::Range& range : operation->parameters()) end = std::max(end, range.end);
  }
}

absl::Status CompiledPlan::AllocateCasts() {
  const auto& operations = program_.operations;
  const size_t bytes = parameter_elements() * kernels::SizeOf(options_.precision.compute);
  const auto reads = [](const auto& operation) { return operation->reads_cast_parameters(); };
  if (std::any_of(operations.begin(), operations.end(), reads)) {
    ASSIGN_OR_RETURN(cast_parameters_, device().Allocate(bytes));
    call_.cast_parameters = cast_parameters_.data();
  }
  if (!options_.training) return absl::OkStatus();
  std::vector<kernels::CastRange> ranges;
  cast_range_.resize(operations.size() + 1);
  for (size_t i = operations.size(); i-- > 0;) {
    cast_range_[i + 1] = ranges.size();
    const Operation::Range range = operations[i]->cast_gradients();
    if (range.begin == range.end) continue;
    const auto count = static_cast<int64_t>(range.end - range.begin);
    ranges.push_back({.begin = static_cast<int64_t>(range.begin),
                      .count = count,
                      .first_piece = pieces_before_.back()});
    pieces_before_.push_back(pieces_before_.back() + kernels::CastPieces(count));
  }
  cast_range_[0] = ranges.size();
  if (ranges.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(cast_gradients_, device().Allocate(bytes));
  call_.cast_gradients = cast_gradients_.data();
  ASSIGN_OR_RETURN(cast_ranges_, device().Allocate(ranges.size() * sizeof(kernels::CastRange)));
  device().CopyToDevice(cast_ranges_.data(), ranges.data(),
                        ranges.size() * sizeof(kernels::CastRange));
  return absl::OkStatus();
}

void CompiledPlan::CastGradients(size_t end) {
  const size_t begin = cast_until_;
  cast_until_ = end;
  const int64_t pieces = pieces_before_[end] - pieces_before_[begin];
  if (pieces == 0) return;
  Kernels().cast_ranges(options_.precision.compute, call_.cast_gradients,
                        kernels::DataType::kFloat32, call_.gradients,
                        cast_ranges_.as<kernels::CastRange>() + begin,
                        static_cast<int64_t>(end - begin), pieces);
}

void CompiledPlan::SelectSlot(uint32_t slot) {
  if (slot == slot_) return;
  slot_ = slot;
  memory_->SelectSlot(slot);
  UpdateSlotPointers();
  ChooseBlocks(keys_[slot]);
}

void CompiledPlan::UpdateSlotPointers() {
  call_.draw = memory_->draw;
  const auto take = [](const std::vector<Boundary>& boundaries, std::vector<BoundaryTensor>& to) {
    for (size_t i = 0; i < boundaries.size(); ++i) {
      to[i].data = boundaries[i].tensor->data;
      to[i].gradient = boundaries[i].tensor->gradient;
    }
  };
  take(program_.inputs, boundary_inputs_);
  take(program_.outputs, boundary_outputs_);
}

std::string CompiledPlan::layout_digest() const {
  const std::string text = absl::StrCat(Kernels().name, "\n", program_.parameters.Describe(),
                                        program_.buffers.Describe());
  return absl::StrCat(absl::Hex(HashOf(text), absl::kZeroPad16));
}

std::vector<OperationDescription> CompiledPlan::Describe() const {
  std::set<const Operation*> recomputed;
  for (const auto& recomputations : memory_->recomputations) {
    for (const Recomputation& recomputation : recomputations) {
      recomputed.insert(recomputation.producer);
    }
  }
  std::vector<OperationDescription> descriptions;
  for (const auto& operation : program_.operations) {
    const Operation::Memory memory = operation->memory(options_.max_batch);
    const Tensor& output = *operation->output();
    OperationDescription description = {
        .name = operation->name(),
        .first_node = operation->first_node(),
        .last_node = operation->last_node(),
        .kind = operation->kind(),
        .kernel = operation->description(),
        .output = output.shape,
        .dtype = kernels::NameOf(output.type),
        .compute_dtype = kernels::NameOf(operation->compute_type()),
        .forward_flops = operation->forward_flops(),
        .activation_bytes = output.bytes(options_.max_batch),
        .saved_bytes = memory.saved_bytes,
        .workspace_bytes = memory.workspace_bytes,
        .arena_offset =
            static_cast<size_t>(static_cast<const char*>(output.data) - memory_->arena.as<char>())};
    for (const Tensor* input : operation->inputs()) {
      description.inputs.push_back(input->shape);
      description.input_dtypes.push_back(kernels::NameOf(input->type));
    }
    for (const Operation::Range& range : operation->parameters()) {
      description.parameters += program_.parameters.CanonicalElements(range.begin, range.end);
    }
    if (operation->evaluated_by() != nullptr) {
      description.evaluation = absl::StrCat("in ", operation->evaluated_by()->name());
    } else if (const std::string folds = operation->folds(); !folds.empty()) {
      description.evaluation = absl::StrCat("with ", folds);
    }
    if (options_.training) {
      std::vector<std::string> values = operation->recomputed();
      if (recomputed.count(operation.get()) > 0) values.insert(values.begin(), "output");
      description.recomputed = absl::StrJoin(values, ", ");
    }
    descriptions.push_back(std::move(description));
  }
  return descriptions;
}

std::vector<const Tensor*> CompiledPlan::inputs() const {
  if (program_.input != nullptr) return {program_.input};
  std::vector<const Tensor*> inputs;
  for (const Boundary& input : program_.inputs) inputs.push_back(input.tensor);
  return inputs;
}

void CompiledPlan::set_statistics_reducer(StatisticsReducer* reducer) {
  if (options_.synchronize_batch_norm) call_.reducer = reducer;
}

void CompiledPlan::Bind(float* parameters, float* gradients, float* buffers) {
  parameters_ = parameters;
  call_.parameters = parameters;
  call_.gradients = gradients;
  call_.buffers = buffers;
  // Padding between tensors is never written afterwards.
  if (gradients != nullptr) device().Zero(gradients, parameter_elements() * sizeof(float));
}

absl::Status CompiledPlan::Import(const ParameterInfo& parameter, absl::Span<const float> values) {
  if (program_.buffers.Has(parameter.name)) {
    return program_.buffers.Import(device(), call_.buffers, parameter, values);
  }
  return program_.parameters.Import(device(), parameters_, parameter, values);
}

absl::Status CompiledPlan::Export(const ParameterInfo& parameter, absl::Span<float> values) const {
  if (program_.buffers.Has(parameter.name)) {
    return program_.buffers.Export(device(), call_.buffers, parameter, values);
  }
  return program_.parameters.Export(device(), parameters_, parameter, values);
}

void CompiledPlan::Initialize(uint64_t seed) {
  program_.parameters.Initialize(seed, device(), parameters_);
  program_.buffers.Initialize(seed, device(), call_.buffers);
}

absl::Status CompiledPlan::ImportInto(float* flat, const ParameterInfo& parameter,
                                      absl::Span<const float> values) const {
  return program_.parameters.Import(device(), flat, parameter, values);
}

absl::Status CompiledPlan::ExportFrom(const float* flat, const ParameterInfo& parameter,
                                      absl::Span<float> values) const {
  return program_.parameters.Export(device(), flat, parameter, values);
}

absl::Status CompiledPlan::ExportTensor(const float* tensor, const ParameterInfo& parameter,
                                        absl::Span<float> values) const {
  const bool is_buffer = program_.buffers.Has(parameter.name);
  return (is_buffer ? program_.buffers : program_.parameters)
      .ExportTensor(tensor, parameter, values);
}

template <typename Phase>
void CompiledPlan::Measure(const Phase& phase) {
  const SteadyTime start = Now().steady;
  phase();
  kernel_time_ += Now().steady - start;
}

template <typename Pass>
void CompiledPlan::Run(Operation& operation, const char* pass_name, const Pass& pass) {
  if (observer_) observer_(operation, pass_name, false);
  Measure(pass);
  if (observer_) observer_(operation, pass_name, true);
}

void CompiledPlan::SetStep(const StepContext& context) {
  const kernels::RandomDraw draw = DrawOf(context);
  device().CopyToDevice(memory_->draw, &draw, sizeof(draw));
  keys_[slot_] = draw.key;
  ChooseBlocks(draw.key);
}

void CompiledPlan::CopyDraw(const kernels::RandomDraw* draw) {
  device().Copy(memory_->draw, draw, sizeof(*draw));
}

// If every step must make the same calls, dropped branches are computed and multiplied by 0.
void CompiledPlan::ChooseBlocks(const kernels::PhiloxKey& key) {
  if (device().supports_graph_capture()) return;
  for (const auto& block : program_.blocks) block->dropped = kernels::IsDropped(block->draw, key);
}

void CompiledPlan::Forward(uint32_t samples, bool training) {
  call_.samples = samples;
  call_.training = training;
  if (call_.cast_parameters != nullptr) {
    Kernels().cast(kernels::DataType::kFloat32, call_.parameters, 1, options_.precision.compute,
                   cast_parameters_.data(), parameter_elements());
  }
  if (training && !program_.blocks.empty()) {
    Kernels().draw_blocks(memory_->draw, static_cast<int64_t>(program_.blocks.size()),
                          memory_->blocks, memory_->block_states);
  }
  for (const auto& operation : program_.operations) {
    if (training ? operation->skipped() : operation->evaluated_by() != nullptr) continue;
    Run(*operation, "forward", [&] { operation->Forward(call_); });
  }
}

void CompiledPlan::QueueLoss(uint32_t samples, const LossOptions& options, LossResult* result) {
  const Tensor& logits = *program_.logits;
  Measure([&] {
    Kernels().softmax_cross_entropy({.samples = samples,
                                     .classes = logits.elements(),
                                     .label_smoothing = options.label_smoothing,
                                     .scale = options.scale},
                                    static_cast<const float*>(logits.data), memory_->labels,
                                    options.loss_scale, static_cast<float*>(logits.gradient),
                                    result);
  });
}

LossResult CompiledPlan::Loss(uint32_t samples, double label_smoothing, double scale) {
  QueueLoss(samples, {.label_smoothing = label_smoothing, .scale = scale}, memory_->loss);
  LossResult result;
  Measure([&] { device().CopyToHost(&result, memory_->loss, sizeof(result)); });
  return result;
}

void CompiledPlan::Backward(uint32_t samples, const std::function<void(size_t offset)>& ready) {
  call_.samples = samples;
  call_.training = true;
  cast_until_ = 0;
  for (size_t i = program_.operations.size(); i-- > 0;) {
    RecomputeBefore(i);
    BackwardOperation(i, ready);
    program_.operations[i]->output()->gradient_addend = nullptr;
  }
  CastGradients(cast_range_[0]);
  for (const auto& recomputations : memory_->recomputations) {
    for (const Recomputation& recomputation : recomputations) {
      recomputation.producer->output()->data = recomputation.kept;
    }
  }
  // A stage without parameters has no operation that reports them.
  if (ready && parameter_elements() == 0) ready(0);
}

void CompiledPlan::RecomputeBefore(size_t index) {
  for (const Recomputation& recomputation : memory_->recomputations[index]) {
    Operation& producer = *recomputation.producer;
    producer.output()->data = recomputation.again;
    if (producer.skipped()) continue;
    Run(producer, "backward recomputation", [&] { producer.Recompute(call_); });
  }
}

void CompiledPlan::BackwardOperation(size_t index,
                                     const std::function<void(size_t offset)>& ready) {
  Operation& operation = *program_.operations[index];
  // Nothing before this operation has parameters.
  if (!operation.output()->needs_gradient) return;
  const bool skipped = operation.skipped();
  if (!skipped && operation.memory(options_.max_batch).activation_in_backward) {
    Run(operation, "backward activation", [&] { operation.BackwardActivation(call_); });
  }
  if (operation.has_parameters()) {
    if (skipped) {
      for (const Operation::Range& range : operation.parameters()) {
        device().Zero(call_.gradients + range.begin, (range.end - range.begin) * sizeof(float));
      }
      ZeroCastGradients(operation.cast_gradients());
    } else {
      Run(operation, "backward parameters", [&] { operation.BackwardParameters(call_); });
    }
  }
  const auto report_ready = [&] {
    const size_t before =
        index + 1 < final_from_.size() ? final_from_[index + 1] : parameter_elements();
    if (!ready || final_from_[index] >= before) return;
    // Gradients that are to be cast are collected, and reported as ready only afterwards.
    const int64_t collected = pieces_before_[cast_range_[index]] - pieces_before_[cast_until_];
    if (collected > 0 && collected < kCollectedPieces && final_from_[index] > 0) return;
    CastGradients(cast_range_[index]);
    ready(final_from_[index]);
  };
  const bool reports = operation.has_parameters();
  if (reports && !operation.reads_parameter_gradients()) report_ready();
  if (!memory_->contributions[index].empty()) ContributeGradients(index);
  if (reports && operation.reads_parameter_gradients()) report_ready();
}

void CompiledPlan::ZeroCastGradients(const Operation::Range& range) {
  const size_t bytes = kernels::SizeOf(options_.precision.compute);
  device().Zero(cast_gradients_.as<std::byte>() + range.begin * bytes,
                (range.end - range.begin) * bytes);
}

void CompiledPlan::ContributeGradients(size_t index) {
  Operation& operation = *program_.operations[index];
  const auto contribute = [&](const Contribution& contribution) {
    // A branch that is skipped needs no gradient.
    if (contribution.producer != nullptr && contribution.producer->skipped()) return;
    const Tensor& input = *operation.inputs()[contribution.input];
    const size_t bytes = input.bytes(call_.samples);
    const auto accumulate = [&](const void* part) {
      Kernels().accumulate(input.type, call_.samples * static_cast<size_t>(input.elements()), part,
                           input.gradient);
    };
    if (operation.skipped()) {
      if (contribution.first) device().Zero(input.gradient, bytes);
    } else if (operation.PassesGradient(contribution.input)) {
      if (contribution.in_place) return;
      const void* const dy = operation.output()->gradient;
      if (contribution.first) {
        device().Copy(input.gradient, dy, bytes);
      } else {
        accumulate(dy);
      }
    } else if (contribution.first) {
      operation.BackwardData(call_, contribution.input, input.gradient);
    } else {
      operation.BackwardData(call_, contribution.input, contribution.addend);
      if (contribution.deferred) {
        Tensor& producers = *operation.inputs()[contribution.input];
        producers.gradient_addend = contribution.addend;
        producers.gradient_addend_stride = contribution.stride;
      } else {
        accumulate(contribution.addend);
      }
    }
  };
  Run(operation, "backward data", [&] {
    for (const Contribution& contribution : memory_->contributions[index]) contribute(contribution);
  });
}

absl::Span<const float> CompiledPlan::logits(uint32_t samples) const {
  if (program_.logits == nullptr) return {};
  const Tensor& logits = *program_.logits;
  return absl::MakeConstSpan(static_cast<const float*>(logits.data),
                             samples * static_cast<size_t>(logits.elements()));
}

absl::StatusOr<std::unique_ptr<Plan>> Compile(const Graph& graph, const CompileOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<CompiledPlan> plan, CompiledPlan::Make(graph, options));
  return std::unique_ptr<Plan>(std::move(plan));
}

}  // namespace muster::nn
