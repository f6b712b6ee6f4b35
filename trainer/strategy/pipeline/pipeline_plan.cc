#include "trainer/strategy/pipeline/pipeline_plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/time.h"
#include "trainer/data/sampler.h"
#include "trainer/graph/cut.h"

namespace muster::pipeline {
namespace {

uint32_t LargestPart(uint32_t rows, uint32_t parts) {
  return static_cast<uint32_t>(data::LargestShare(rows, parts));
}

// One more than the schedule keeps, but never more than the first stage: a stage receives the next
// micro-batch while it computes one.
uint32_t SlotsFor(const PipelineOptions& options) {
  const Place& place = options.place;
  const uint32_t kept =
      ActivationSlots(options.schedule, place.stages, place.stage, options.micro_batches);
  const bool sequential = options.schedule == Schedule::kSequential;
  return place.is_first() || sequential ? kept : std::min(kept + 1, options.micro_batches);
}

}  // namespace

PipelinePlan::PipelinePlan(const PipelineOptions& options, const Groups& groups)
    : options_(options),
      groups_(groups),
      actions_(ActionsOf(options.schedule, options.place.stages, options.place.stage,
                         options.micro_batches)),
      slots_(SlotsFor(options)),
      backward_done_(options.micro_batches) {}

absl::StatusOr<std::unique_ptr<PipelinePlan>> PipelinePlan::Make(
    const nn::Graph& graph, nn::NodeId begin, nn::NodeId end, const nn::CompileOptions& compiling,
    const PipelineOptions& options, const Groups& groups) {
  if (options.micro_batches == 0 || compiling.synchronize_batch_norm) {
    return absl::InvalidArgumentError(
        "a pipeline needs a micro-batch, and batch norm that nobody synchronises");
  }
  ASSIGN_OR_RETURN(const nn::Graph part, nn::CutGraph(graph, begin, end));
  std::unique_ptr<PipelinePlan> plan(new PipelinePlan(options, groups));
  plan->micro_rows_ = LargestPart(compiling.max_batch, options.micro_batches);
  nn::CompileOptions own = compiling;
  own.max_batch = plan->micro_rows_;
  own.slots = plan->slots_;
  ASSIGN_OR_RETURN(plan->stage_, nn::Compile(part, own));
  ASSIGN_OR_RETURN(plan->links_,
                   StageLinks::Create(groups, plan->stage_.get(), plan->slots_, plan->micro_rows_));
  RETURN_IF_ERROR(plan->Allocate(graph, compiling));
  return plan;
}

absl::Status PipelinePlan::Allocate(const nn::Graph& graph, const nn::CompileOptions& compiling) {
  kernels::Device& device = this->device();
  const size_t rows = compiling.max_batch;
  if (options_.place.is_first()) {
    input_elements_ =
        static_cast<size_t>(graph.input.height * graph.input.width * graph.input.channels);
    ASSIGN_OR_RETURN(input_, device.Allocate(rows * input_elements_ * sizeof(float)));
  }
  ASSIGN_OR_RETURN(labels_, device.Allocate(rows * sizeof(int32_t)));
  ASSIGN_OR_RETURN(losses_, device.Allocate(options_.micro_batches * sizeof(nn::LossResult)));
  ASSIGN_OR_RETURN(own_loss_, device.Allocate(sizeof(nn::LossResult)));
  if (compiling.training && options_.micro_batches > 1) {
    ASSIGN_OR_RETURN(sum_, device.Allocate(parameter_elements() * sizeof(float)));
  }
  return absl::OkStatus();
}

void PipelinePlan::Bind(float* parameters, float* gradients, float* buffers) {
  gradients_ = gradients;
  stage_->Bind(parameters, gradients, buffers);
}

uint32_t PipelinePlan::FirstRowOf(uint32_t micro_batch) const {
  return static_cast<uint32_t>(data::Share(rows_, micro_batch, options_.micro_batches).begin);
}

uint32_t PipelinePlan::RowsOf(uint32_t micro_batch) const {
  return static_cast<uint32_t>(data::Share(rows_, micro_batch, options_.micro_batches).size());
}

void PipelinePlan::Forward(uint32_t rows, bool training) {
  rows_ = rows;
  training_ = training;
}

void PipelinePlan::QueueLoss(uint32_t, const nn::LossOptions& options, nn::LossResult* result) {
  loss_options_ = options;
  loss_ = result;
  if (training_ || !status_.ok()) return;
  status_ = Evaluate();
  SumLosses();
}

nn::LossResult PipelinePlan::Loss(uint32_t rows, double label_smoothing, double scale) {
  QueueLoss(rows, {.label_smoothing = label_smoothing, .scale = scale},
            own_loss_.as<nn::LossResult>());
  nn::LossResult result;
  device().CopyToHost(&result, own_loss_.data(), sizeof(result));
  return result;
}

void PipelinePlan::Backward(uint32_t, const std::function<void(size_t offset)>& ready) {
  if (!status_.ok()) return;
  const SteadyTime start = Now().steady;
  const absl::Duration waited_before = links_->waited();
  status_ = Train(ready);
  SumLosses();
  const SteadyTime end = Now().steady;
  // The stages at the back have ended before those at the front.
  if (status_.ok()) status_ = groups_.pipe->Barrier()->Wait();
  times_.waiting += links_->waited() - waited_before + (Now().steady - end);
  times_.span += Now().steady - start;
}

absl::Status PipelinePlan::Train(const std::function<void(size_t offset)>& ready) {
  inputs_expected_ = gradients_expected_ = 0;
  backward_done_.assign(options_.micro_batches, false);
  for (size_t i = 0; i < actions_.size(); ++i) {
    RETURN_IF_ERROR(Expect(actions_[i]));
    if (i + 1 < actions_.size() && MayExpect(actions_[i + 1])) {
      RETURN_IF_ERROR(Expect(actions_[i + 1]));
    }
    RETURN_IF_ERROR(Run(actions_[i], ready));
  }
  for (uint32_t slot = 0; slot < slots_; ++slot) RETURN_IF_ERROR(links_->AwaitSent(slot));
  return absl::OkStatus();
}

bool PipelinePlan::MayExpect(const Action& action) const {
  if (action.kind == Action::Kind::kBackward) return true;
  const bool free = action.micro_batch < slots_ || backward_done_[action.micro_batch - slots_];
  return free && links_->Sent(SlotOf(action.micro_batch));
}

absl::Status PipelinePlan::Expect(const Action& action) {
  const bool forward = action.kind == Action::Kind::kForward;
  uint32_t& expected = forward ? inputs_expected_ : gradients_expected_;
  if (action.micro_batch < expected) return absl::OkStatus();
  expected = action.micro_batch + 1;
  const uint32_t slot = SlotOf(action.micro_batch);
  if (!forward) {
    links_->ExpectGradients(slot, RowsOf(action.micro_batch));
    return absl::OkStatus();
  }
  // What the slot held may still be on its way.
  RETURN_IF_ERROR(links_->AwaitSent(slot));
  links_->ExpectActivations(slot, RowsOf(action.micro_batch));
  return absl::OkStatus();
}

absl::Status PipelinePlan::Run(const Action& action,
                               const std::function<void(size_t offset)>& ready) {
  if (action.kind == Action::Kind::kForward) {
    return ForwardOne(action.micro_batch, /*training=*/true);
  }
  return BackwardOne(action.micro_batch, ready);
}

void PipelinePlan::LoadInput(uint32_t micro_batch) {
  const size_t first = FirstRowOf(micro_batch), rows = RowsOf(micro_batch);
  if (options_.place.is_first()) {
    device().Copy(stage_->input(), input_.as<float>() + first * input_elements_,
                  rows * input_elements_ * sizeof(float));
  }
  if (options_.place.is_last()) {
    device().Copy(stage_->labels(), labels_.as<int32_t>() + first, rows * sizeof(int32_t));
  }
}

absl::Status PipelinePlan::ForwardOne(uint32_t micro_batch, bool training) {
  const uint32_t rows = RowsOf(micro_batch), slot = SlotOf(micro_batch);
  RETURN_IF_ERROR(links_->AwaitActivations(slot));
  const SteadyTime start = Now().steady;
  stage_->SelectSlot(slot);
  LoadInput(micro_batch);
  if (training) {
    nn::StepContext context = context_;
    context.first_row += FirstRowOf(micro_batch);
    stage_->SetStep(context);
  }
  stage_->Forward(rows, training);
  if (options_.place.is_last()) {
    stage_->QueueLoss(rows, loss_options_, losses_.as<nn::LossResult>() + micro_batch);
  }
  if (!device().host_memory()) RETURN_IF_ERROR(device().Synchronize());
  if (training && rows > 0) {
    times_.forward += Now().steady - start;
    ++times_.micro_batches;
  }
  links_->SendActivations(slot, rows);
  return absl::OkStatus();
}

absl::Status PipelinePlan::BackwardOne(uint32_t micro_batch,
                                       const std::function<void(size_t offset)>& ready) {
  const uint32_t rows = RowsOf(micro_batch), slot = SlotOf(micro_batch);
  const bool last = micro_batch + 1 == options_.micro_batches;
  RETURN_IF_ERROR(links_->AwaitGradients(slot));
  const SteadyTime start = Now().steady;
  stage_->SelectSlot(slot);
  if (last && micro_batch > 0) {
    // Those from `done` on are summed up.
    size_t done = parameter_elements();
    const auto sum_up = [&](size_t offset) {
      device().kernels().accumulate(kernels::DataType::kFloat32, done - offset,
                                    sum_.as<float>() + offset, gradients_ + offset);
      done = offset;
      if (ready) ready(offset);
    };
    stage_->Backward(rows, sum_up);
    if (done > 0) sum_up(0);
  } else {
    stage_->Backward(rows, last ? ready : nullptr);
    if (!last) AddUp(micro_batch);
  }
  if (!device().host_memory()) RETURN_IF_ERROR(device().Synchronize());
  if (rows > 0) times_.backward += Now().steady - start;
  backward_done_[micro_batch] = true;
  links_->SendGradients(slot, rows);
  return absl::OkStatus();
}

void PipelinePlan::AddUp(uint32_t micro_batch) {
  const SteadyTime start = Now().steady;
  const size_t count = parameter_elements();
  if (micro_batch == 0) {
    device().Copy(sum_.data(), gradients_, count * sizeof(float));
  } else {
    device().kernels().accumulate(kernels::DataType::kFloat32, count, gradients_, sum_.as<float>());
  }
  own_kernel_time_ += Now().steady - start;
}

absl::Status PipelinePlan::Evaluate() {
  for (uint32_t i = 0; i < options_.micro_batches; ++i) {
    if (i == 0) links_->ExpectActivations(SlotOf(0), RowsOf(0));
    // With one slot the next one can only come when this one is gone.
    const bool ahead = i + 1 < options_.micro_batches && slots_ > 1;
    const auto expect_next = [&]() -> absl::Status {
      RETURN_IF_ERROR(links_->AwaitSent(SlotOf(i + 1)));
      links_->ExpectActivations(SlotOf(i + 1), RowsOf(i + 1));
      return absl::OkStatus();
    };
    if (ahead) RETURN_IF_ERROR(expect_next());
    RETURN_IF_ERROR(ForwardOne(i, /*training=*/false));
    if (!ahead && i + 1 < options_.micro_batches) RETURN_IF_ERROR(expect_next());
  }
  for (uint32_t slot = 0; slot < slots_; ++slot) RETURN_IF_ERROR(links_->AwaitSent(slot));
  return absl::OkStatus();
}

void PipelinePlan::SumLosses() {
  nn::LossResult sum;
  if (options_.place.is_last() && status_.ok()) {
    std::vector<nn::LossResult> losses(options_.micro_batches);
    device().CopyToHost(losses.data(), losses_.data(), losses.size() * sizeof(nn::LossResult));
    for (const nn::LossResult& loss : losses) {
      sum.loss_sum += loss.loss_sum;
      sum.correct += loss.correct;
    }
  }
  device().CopyToDevice(loss_, &sum, sizeof(sum));
}

std::vector<nn::DeviceUse> PipelinePlan::devices() const {
  std::vector<nn::DeviceUse> uses = stage_->devices();
  nn::DeviceUse& use = uses.front();
  use.gradient_bytes += sum_.bytes();
  use.activation_bytes += input_.bytes() + labels_.bytes();
  use.busy = times_.forward + times_.backward;
  return uses;
}

}  // namespace muster::pipeline
