#include "worker/nn/plan.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "worker/nn/arena.h"
#include "worker/nn/compiled_plan.h"

namespace muster::nn {
namespace {

// When a tensor is written and read. Operation i runs forward at time i and backward at 2n - i; the
// loss between them at n.
class Schedule {
 public:
  Schedule(int64_t operations, bool training) : loss_(operations), training_(training) {}

  int64_t forward(int64_t operation) const { return operation; }
  int64_t backward(int64_t operation) const {
    return training_ ? 2 * loss_ - operation : forward(operation);
  }
  int64_t loss() const { return loss_; }
  int64_t end() const { return 2 * loss_ + 1; }

 private:
  const int64_t loss_;
  const bool training_;
};

}  // namespace

CompiledPlan::CompiledPlan(Program program, const CompileOptions& options)
    : program_(std::move(program)), options_(options) {}

absl::StatusOr<std::unique_ptr<CompiledPlan>> CompiledPlan::Make(const Graph& graph,
                                                                 const CompileOptions& options) {
  if (options.max_batch == 0 || options.threads == 0) {
    return absl::InvalidArgumentError("a plan needs at least one row and one thread");
  }
  ASSIGN_OR_RETURN(Program program, Lower(graph, options));
  std::unique_ptr<CompiledPlan> plan(new CompiledPlan(std::move(program), options));
  RETURN_IF_ERROR(plan->PlaceMemory());
  return plan;
}

absl::Status CompiledPlan::PlaceMemory() {
  const auto& operations = program_.operations;
  const Schedule schedule(static_cast<int64_t>(operations.size()), options_.training);
  const size_t rows = options_.max_batch;
  std::map<const Tensor*, int64_t> producer;
  std::map<const Tensor*, int64_t> consumer;
  for (size_t i = 0; i < operations.size(); ++i) {
    producer[operations[i]->output()] = static_cast<int64_t>(i);
    consumer[operations[i]->input()] = static_cast<int64_t>(i);
  }

  ArenaPlanner planner;
  std::vector<std::pair<size_t, std::function<void(char*)>>> places;  // by buffer of the planner
  const auto place = [&](size_t bytes, int64_t first, int64_t last, auto assign) {
    places.emplace_back(planner.Add(bytes, first, last), std::move(assign));
  };

  for (size_t t = 0; t < program_.tensors.size(); ++t) {
    Tensor* const tensor = program_.tensors[t].get();
    const size_t bytes = rows * static_cast<size_t>(tensor->elements()) * sizeof(float);
    const bool is_input = t == 0;
    const bool is_logits = t + 1 == program_.tensors.size();
    const auto reader = consumer.find(tensor);
    int64_t first = 0;
    int64_t last = is_input || is_logits ? schedule.end() : 0;
    bool gradient_in_place = false;
    if (!is_input) {
      const int64_t writer = producer.at(tensor);
      first = schedule.forward(writer);
      if (operations[writer]->memory(options_.max_batch).output_in_backward) {
        last = std::max(last, schedule.backward(writer));
      }
    }
    if (reader != consumer.end()) {
      const Operation::Memory memory = operations[reader->second]->memory(options_.max_batch);
      last = std::max(last, schedule.forward(reader->second));
      if (memory.input_in_backward) last = std::max(last, schedule.backward(reader->second));
      // The producer must not read in backward what the gradient overwrites.
      gradient_in_place =
          memory.gradient_over_input && !is_input &&
          !operations[producer.at(tensor)]->memory(options_.max_batch).output_in_backward;
    }
    const bool has_gradient = options_.training && program_.needs_gradient[t];
    if (has_gradient) {
      const int64_t written = is_logits ? schedule.loss() : schedule.backward(reader->second);
      const int64_t read = schedule.backward(producer.at(tensor));
      if (gradient_in_place) {
        last = std::max(last, read);
      } else {
        place(bytes, written, read,
              [tensor](char* at) { tensor->gradient = reinterpret_cast<float*>(at); });
      }
    }
    place(bytes, first, last, [=](char* at) {
      tensor->data = reinterpret_cast<float*>(at);
      if (has_gradient && gradient_in_place) tensor->gradient = tensor->data;
    });
  }

  size_t workspace_bytes = 0;
  for (size_t i = 0; i < operations.size(); ++i) {
    Operation* const operation = operations[i].get();
    const Operation::Memory memory = operation->memory(options_.max_batch);
    workspace_bytes = std::max(workspace_bytes, memory.workspace_bytes);
    place(memory.saved_bytes, schedule.forward(i), schedule.backward(i),
          [operation](char* at) { operation->set_saved(at); });
  }
  place(workspace_bytes, 0, schedule.end(), [this](char* at) { call_.workspace = at; });
  place(rows * sizeof(int32_t), 0, schedule.end(),
        [this](char* at) { labels_ = reinterpret_cast<int32_t*>(at); });

  planner.Place();
  arena_bytes_ = std::max(planner.bytes(), ArenaPlanner::kAlignment);
  arena_.reset(static_cast<char*>(std::aligned_alloc(ArenaPlanner::kAlignment, arena_bytes_)));
  if (arena_ == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the activations of a batch of ", rows, " need ", arena_bytes_, " bytes"));
  }
  // Touched here, so that the first step takes no page faults, and the same in every run.
  std::memset(arena_.get(), 0, arena_bytes_);
  for (const auto& [buffer, assign] : places) assign(arena_.get() + planner.offset(buffer));
  return absl::OkStatus();
}

std::string CompiledPlan::layout_digest() const {
  const std::string text = absl::StrCat(Kernels().name, "\n", program_.parameters.Describe(),
                                        program_.buffers.Describe());
  return absl::StrCat(absl::Hex(HashOf(text), absl::kZeroPad16));
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

void CompiledPlan::Forward(uint32_t rows, bool training, const StepContext& context) {
  call_.rows = rows;
  call_.training = training;
  call_.step = context;
  for (const auto& operation : program_.operations) {
    Run(*operation, "forward", [&] { operation->Forward(call_); });
  }
}

LossResult CompiledPlan::Loss(uint32_t rows, double label_smoothing, float scale) {
  const Tensor& logits = Logits();
  const kernels::CrossEntropyResult result =
      Kernels().softmax_cross_entropy({.rows = rows,
                                       .classes = logits.elements(),
                                       .label_smoothing = label_smoothing,
                                       .scale = scale},
                                      logits.data, labels_, logits.gradient);
  return {.loss_sum = result.loss_sum, .correct = result.correct};
}

void CompiledPlan::Backward(uint32_t rows, const std::function<void(size_t offset)>& ready) {
  call_.rows = rows;
  for (size_t i = program_.operations.size(); i-- > 0;) {
    Operation& operation = *program_.operations[i];
    const int64_t offset = operation.parameter_offset();
    if (offset >= 0) {
      Run(operation, "backward parameters", [&] { operation.BackwardParameters(call_); });
      if (ready) ready(static_cast<size_t>(offset));
    }
    if (operation.input()->gradient != nullptr) {
      Run(operation, "backward data", [&] { operation.BackwardData(call_); });
    }
  }
}

absl::Span<const float> CompiledPlan::logits(uint32_t rows) const {
  return absl::MakeConstSpan(Logits().data, rows * static_cast<size_t>(Logits().elements()));
}

absl::StatusOr<std::unique_ptr<Plan>> Compile(const Graph& graph, const CompileOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<CompiledPlan> plan, CompiledPlan::Make(graph, options));
  return std::unique_ptr<Plan>(std::move(plan));
}

}  // namespace muster::nn
