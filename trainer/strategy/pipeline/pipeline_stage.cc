#include "trainer/strategy/pipeline/pipeline_stage.h"

#include <algorithm>
#include <utility>

#include "common/status.h"
#include "common/time/now.h"
#include "common/time/time.h"
#include "trainer/data/sampler.h"
#include "trainer/graph/cut.h"
#include "trainer/strategy/stopwatch.h"

namespace muster::pipeline {
namespace {

uint32_t LargestMicroBatch(uint32_t samples, uint32_t micro_batches) {
  return static_cast<uint32_t>(data::LargestShare(samples, micro_batches));
}

// Slots of a stage: one more than the schedule requires, so that the stage can receive the next
// micro-batch while it computes one. The first stage receives nothing.
uint32_t SlotsFor(const PipelineOptions& options) {
  const PipelinePlace& place = options.place;
  const uint32_t kept =
      ActivationSlots(options.schedule, place.stages, place.stage, options.micro_batches);
  const bool sequential = options.schedule == Schedule::kSequential;
  return place.is_first() || sequential ? kept : std::min(kept + 1, options.micro_batches);
}

}  // namespace

PipelineStage::PipelineStage(const PipelineOptions& options, const ProcessGroups& groups)
    : options_(options),
      groups_(groups),
      actions_(ActionsOf(options.schedule, options.place.stages, options.place.stage,
                         options.micro_batches)),
      slots_(SlotsFor(options)),
      backward_done_(options.micro_batches) {}

absl::StatusOr<std::unique_ptr<PipelineStage>> PipelineStage::Create(
    const nn::Graph& graph, nn::NodeId begin, nn::NodeId end, const nn::CompileOptions& compiling,
    const PipelineOptions& options, const ProcessGroups& groups) {
  if (options.micro_batches == 0 || compiling.synchronize_batch_norm) {
    return absl::InvalidArgumentError(
        "a pipeline needs at least one micro-batch and does not support synchronized batch norm");
  }
  ASSIGN_OR_RETURN(const nn::Graph stage_graph, nn::CutGraph(graph, begin, end));
  std::unique_ptr<PipelineStage> stage(new PipelineStage(options, groups));
  stage->micro_batch_samples_ = LargestMicroBatch(compiling.max_batch, options.micro_batches);
  nn::CompileOptions own = compiling;
  own.max_batch = stage->micro_batch_samples_;
  own.in_flight_micro_batches = stage->slots_;
  ASSIGN_OR_RETURN(stage->plan_, nn::Compile(stage_graph, own));
  ASSIGN_OR_RETURN(stage->links_, StageLinks::Create(groups, stage->plan_.get(), stage->slots_,
                                                     stage->micro_batch_samples_));
  RETURN_IF_ERROR(stage->Allocate(graph, compiling));
  return stage;
}

absl::Status PipelineStage::Allocate(const nn::Graph& graph, const nn::CompileOptions& compiling) {
  const size_t samples = compiling.max_batch;
  if (options_.place.is_first()) {
    input_elements_ =
        static_cast<size_t>(graph.input.height * graph.input.width * graph.input.channels);
    ASSIGN_OR_RETURN(input_,
                     device().Allocate(samples * input_elements_ * sizeof(float), "a batch"));
  }
  ASSIGN_OR_RETURN(labels_, device().Allocate(samples * sizeof(int32_t), "labels"));
  ASSIGN_OR_RETURN(losses_,
                   device().Allocate(options_.micro_batches * sizeof(nn::LossResult), "losses"));
  ASSIGN_OR_RETURN(
      draws_, device().Allocate(options_.micro_batches * sizeof(kernels::RandomDraw), "a step"));
  if (compiling.training && options_.micro_batches > 1) {
    ASSIGN_OR_RETURN(
        sum_, device().Allocate(plan_->parameter_elements() * sizeof(float), "summed gradients"));
  }
  return absl::OkStatus();
}

uint32_t PipelineStage::FirstSampleOf(uint32_t micro_batch) const {
  return static_cast<uint32_t>(data::Share(samples_, micro_batch, options_.micro_batches).begin);
}

uint32_t PipelineStage::SamplesOf(uint32_t micro_batch) const {
  return static_cast<uint32_t>(data::Share(samples_, micro_batch, options_.micro_batches).size());
}

void PipelineStage::BeginStep(uint32_t samples, const nn::StepContext& context) {
  samples_ = samples;
  context_ = context;
  if (!plan_->supports_graph_capture()) return;
  std::vector<kernels::RandomDraw> draws;
  for (uint32_t i = 0; i < options_.micro_batches; ++i) draws.push_back(DrawOf(ContextOf(i)));
  device().CopyToDevice(draws_.data(), draws.data(), draws.size() * sizeof(draws.front()));
}

nn::StepContext PipelineStage::ContextOf(uint32_t micro_batch) const {
  nn::StepContext context = context_;
  context.first_sample += FirstSampleOf(micro_batch);
  return context;
}

absl::Status PipelineStage::Train(LossFunction loss, float* gradients, const Ready& ready,
                                  nn::LossResult* losses) {
  const SteadyTime start = Now().steady;
  const absl::Duration waited_before = links_->waited();
  gradients_ = gradients;
  device().Zero(losses, options_.micro_batches * sizeof(nn::LossResult));
  RETURN_IF_ERROR(RunActions(loss, ready, losses));
  if (!waits()) return absl::OkStatus();
  const SteadyTime end = Now().steady;
  // Last stages finish before first stages.
  RETURN_IF_ERROR(groups_.pipeline_group->Barrier()->Wait());
  times_.waiting += links_->waited() - waited_before + (Now().steady - end);
  times_.span += Now().steady - start;
  return absl::OkStatus();
}

absl::Status PipelineStage::RunActions(LossFunction loss, const Ready& ready,
                                       nn::LossResult* losses) {
  inputs_posted_ = gradients_posted_ = 0;
  backward_done_.assign(options_.micro_batches, false);
  for (size_t i = 0; i < actions_.size(); ++i) {
    const Action& action = actions_[i];
    RETURN_IF_ERROR(PostReceives(action));
    if (i + 1 < actions_.size() && MayPost(actions_[i + 1])) {
      RETURN_IF_ERROR(PostReceives(actions_[i + 1]));
    }
    RETURN_IF_ERROR(action.kind == Action::Kind::kForward
                        ? Forward(action.micro_batch, /*training=*/true, loss, losses)
                        : Backward(action.micro_batch, ready));
  }
  return AwaitAllSent();
}

absl::Status PipelineStage::AwaitAllSent() {
  for (uint32_t slot = 0; slot < slots_; ++slot) RETURN_IF_ERROR(links_->AwaitSent(slot));
  return absl::OkStatus();
}

bool PipelineStage::MayPost(const Action& action) const {
  if (action.kind == Action::Kind::kBackward) return true;
  const bool free = action.micro_batch < slots_ || backward_done_[action.micro_batch - slots_];
  return free && links_->Sent(SlotOf(action.micro_batch));
}

absl::Status PipelineStage::PostReceives(const Action& action) {
  const bool forward = action.kind == Action::Kind::kForward;
  uint32_t& posted = forward ? inputs_posted_ : gradients_posted_;
  if (action.micro_batch < posted) return absl::OkStatus();
  posted = action.micro_batch + 1;
  const uint32_t slot = SlotOf(action.micro_batch);
  if (!forward) {
    links_->PostRecvGradients(slot, SamplesOf(action.micro_batch));
    return absl::OkStatus();
  }
  // Previous data in the slot may still be in flight.
  RETURN_IF_ERROR(links_->AwaitSent(slot));
  links_->PostRecvActivations(slot, SamplesOf(action.micro_batch));
  return absl::OkStatus();
}

void PipelineStage::LoadInput(uint32_t micro_batch) {
  const size_t first = FirstSampleOf(micro_batch), samples = SamplesOf(micro_batch);
  if (options_.place.is_first()) {
    device().Copy(plan_->input(), input_.as<float>() + first * input_elements_,
                  samples * input_elements_ * sizeof(float));
  }
  if (options_.place.is_last()) {
    device().Copy(plan_->labels(), labels_.as<int32_t>() + first, samples * sizeof(int32_t));
  }
}

absl::Status PipelineStage::Forward(uint32_t micro_batch, bool training, LossFunction loss,
                                    nn::LossResult* losses) {
  const uint32_t samples = SamplesOf(micro_batch), slot = SlotOf(micro_batch);
  RETURN_IF_ERROR(links_->AwaitActivations(slot));
  const SteadyTime start = Now().steady;
  plan_->SelectSlot(slot);
  LoadInput(micro_batch);
  if (training && plan_->supports_graph_capture()) {
    plan_->CopyDraw(draws_.as<kernels::RandomDraw>() + micro_batch);
  } else if (training) {
    plan_->SetStep(ContextOf(micro_batch));
  }
  plan_->Forward(samples, training);
  if (options_.place.is_last()) RETURN_IF_ERROR(loss(*plan_, samples, losses + micro_batch));
  if (waits() && !device().host_memory()) RETURN_IF_ERROR(device().Synchronize());
  if (waits() && training && samples > 0) {
    times_.forward += Now().steady - start;
    ++times_.micro_batches;
  }
  links_->SendActivations(slot, samples);
  return absl::OkStatus();
}

absl::Status PipelineStage::Backward(uint32_t micro_batch, const Ready& ready) {
  const uint32_t samples = SamplesOf(micro_batch), slot = SlotOf(micro_batch);
  const bool last = micro_batch + 1 == options_.micro_batches;
  RETURN_IF_ERROR(links_->AwaitGradients(slot));
  const SteadyTime start = Now().steady;
  plan_->SelectSlot(slot);
  if (last && micro_batch > 0) {
    // Elements from `done` on are summed already.
    size_t done = plan_->parameter_elements();
    const auto sum_up = [&](size_t offset) {
      device().kernels().accumulate(kernels::DataType::kFloat32, done - offset,
                                    sum_.as<float>() + offset, gradients_ + offset);
      done = offset;
      if (ready) ready(offset);
    };
    plan_->Backward(samples, sum_up);
    if (done > 0) sum_up(0);
  } else {
    plan_->Backward(samples, last ? ready : nullptr);
    if (!last) Accumulate(micro_batch);
  }
  if (waits() && !device().host_memory()) RETURN_IF_ERROR(device().Synchronize());
  if (waits() && samples > 0) times_.backward += Now().steady - start;
  backward_done_[micro_batch] = true;
  links_->SendGradients(slot, samples);
  return absl::OkStatus();
}

void PipelineStage::Accumulate(uint32_t micro_batch) {
  const train::Stopwatch stopwatch(own_kernel_time_);
  const size_t count = plan_->parameter_elements();
  if (micro_batch == 0) {
    device().Copy(sum_.data(), gradients_, count * sizeof(float));
  } else {
    device().kernels().accumulate(kernels::DataType::kFloat32, count, gradients_, sum_.as<float>());
  }
}

absl::StatusOr<nn::LossResult> PipelineStage::Evaluate(uint32_t samples, LossFunction loss) {
  samples_ = samples;
  const auto post = [this](uint32_t micro_batch) -> absl::Status {
    RETURN_IF_ERROR(links_->AwaitSent(SlotOf(micro_batch)));
    links_->PostRecvActivations(SlotOf(micro_batch), SamplesOf(micro_batch));
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(post(0));
  for (uint32_t i = 0; i < options_.micro_batches; ++i) {
    const bool has_next = i + 1 < options_.micro_batches;
    // With a single slot, the next micro-batch can be received only after this one was sent.
    const bool ahead = has_next && slots_ > 1;
    if (ahead) RETURN_IF_ERROR(post(i + 1));
    RETURN_IF_ERROR(Forward(i, /*training=*/false, loss, losses_.as<nn::LossResult>()));
    if (has_next && !ahead) RETURN_IF_ERROR(post(i + 1));
  }
  RETURN_IF_ERROR(AwaitAllSent());
  return SumLosses();
}

nn::LossResult PipelineStage::SumLosses() const {
  nn::LossResult sum;
  if (!options_.place.is_last()) return sum;
  std::vector<nn::LossResult> losses(options_.micro_batches);
  device().CopyToHost(losses.data(), losses_.data(), losses.size() * sizeof(nn::LossResult));
  for (const nn::LossResult& loss : losses) {
    sum.loss_sum += loss.loss_sum;
    sum.correct += loss.correct;
  }
  return sum;
}

}  // namespace muster::pipeline
