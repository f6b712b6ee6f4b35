#include "trainer/loop/trainer.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <utility>

#include "common/limits.h"
#include "common/proto_time.h"
#include "common/status.h"
#include "common/time.h"
#include "glog/logging.h"
#include "trainer/data/loader.h"
#include "trainer/data/resident_images.h"
#include "trainer/loop/data_options.h"
#include "trainer/loop/exit_code.h"
#include "trainer/loop/spec_plan.h"
#include "trainer/precision/loss_scale.h"
#include "trainer/precision/training_precision.h"

namespace muster::train {
namespace {

constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();
// Steps at the start of a generation that the summary's medians leave out.
constexpr size_t kWarmupSteps = 5;

uint32_t LoaderThreads(const v1::TrainSpec& spec) { return std::max(1u, spec.loader().threads()); }

data::LoaderOptions LoaderOptionsFor(const TrainingSetup& preparation,
                                     const collectives::Communicator& replicas, uint64_t first_step,
                                     const kernels::DeviceMemory& resident) {
  const v1::TrainSpec& spec = preparation.spec;
  data::LoaderOptions options;
  options.rank = replicas.rank();
  options.world_size = replicas.size();
  options.labels_only = preparation.plan->input() == nullptr;
  options.seed = spec.seed();
  options.first_step = first_step;
  options.end_step = preparation.total_steps;
  options.views = ViewsOf(spec.objective());
  options.threads = LoaderThreads(spec);
  if (spec.loader().prefetch() > 0) options.prefetch = spec.loader().prefetch();
  options.transform = TrainingTransformOf(spec, preparation.training->info());
  options.device = &preparation.plan->device();
  options.resident = resident.as<uint8_t>();
  return options;
}

bool SharesMemory(const Communicators& communicators) {
  const collectives::Communicator& equals = *communicators.equals();
  return equals.size() == 1 || (equals.backend() == "shm" && communicators.devices == nullptr);
}

// Of each device of a plan over several; nothing of any other.
std::vector<absl::Duration> BusyTimes(const nn::Plan& plan) {
  std::vector<absl::Duration> times;
  if (plan.parts().empty()) return times;
  for (const nn::DeviceUse& use : plan.devices()) times.push_back(use.busy);
  return times;
}

pipeline::StageTimes TimesOf(const pipeline::PipelinePlan* stage) {
  return stage != nullptr ? stage->times() : pipeline::StageTimes();
}

// Of one step.
void AddStageTimes(const pipeline::StageTimes& before, const pipeline::StageTimes& after,
                   StepTimes& times) {
  const uint64_t micro_batches = after.micro_batches - before.micro_batches;
  if (micro_batches == 0) return;
  const auto parts = static_cast<int64_t>(micro_batches);
  times.stage_forward = (after.forward - before.forward) / parts;
  times.stage_backward = (after.backward - before.backward) / parts;
  times.stage_waiting = after.waiting - before.waiting;
  times.stage_span = after.span - before.span;
}

}  // namespace

Trainer::Trainer(std::unique_ptr<TrainingSetup> preparation, const Communicators& communicators,
                 TrainerOptions options)
    : preparation_(std::move(preparation)),
      spec_(preparation_->spec),
      plan_(*preparation_->plan),
      communicators_(communicators),
      communicator_(communicators.world),
      options_(std::move(options)),
      precision_(ChooseGradients(preparation_->precision, SharesMemory(communicators))),
      state_(&plan_, preparation_->optimizer.get(), spec_.has_ema()),
      progress_(options_.progress),
      recent_(0),
      steady_(kWarmupSteps),
      device_steady_(BusyTimes(plan_).size(), StepStatistics(kWarmupSteps)),
      saved_step_(kNever) {
  if (!is_stage()) return;
  std::set<std::string, std::less<>> layers;
  for (const nn::Node& node : preparation_->graph.nodes) layers.insert(node.name);
  state_.set_layers(std::move(layers));
}

Trainer::~Trainer() = default;

absl::StatusOr<v1::TrainSummary> Trainer::Run() {
  progress_.progress().set_total_steps(preparation_->total_steps);
  *progress_.progress().mutable_precision() = PrecisionInfoOf(precision_);
  StepParts parts;
  parts.spec = &spec_;
  parts.plan = &plan_;
  parts.optimizer = preparation_->optimizer.get();
  parts.schedule = &preparation_->schedule;
  parts.state = &state_;
  parts.communicators = communicators_;
  parts.precision = precision_;
  parts.max_rows = preparation_->max_rows;
  parts.canonical_layout = options_.canonical_layout;
  ASSIGN_OR_RETURN(training_step_, TrainingStep::Create(parts, preparation_->training->info()));

  RETURN_IF_ERROR(LoadInitialState());
  if (is_first() && !options_.tensorboard_directory.empty()) {
    ASSIGN_OR_RETURN(tensorboard_,
                     TensorBoardWriter::Create(options_.tensorboard_directory, step_ + 1));
  }
  RETURN_IF_ERROR(TrainAll());
  RETURN_IF_ERROR(SaveCheckpoint());
  RETURN_IF_ERROR(EvaluateModel());
  ASSIGN_OR_RETURN(v1::TrainSummary summary, Summarize());
  SetPhase("finished");
  return summary;
}

absl::Status Trainer::TrainAll() {
  SetPhase("training");
  const kernels::DeviceMemory resident =
      spec_.dataset().resident() == "never" || plan_.input() == nullptr
          ? kernels::DeviceMemory()
          : data::MakeResident(*preparation_->training, plan_.device());
  training_start_ = Now().steady;
  const auto loader = data::Loader::ForTraining(
      preparation_->training.get(), preparation_->steps,
      LoaderOptionsFor(*preparation_, *communicators_.equals(), step_, resident));
  const uint64_t evaluate_every =
      spec_.evaluate_every_epochs() * preparation_->steps.steps_per_epoch();
  const uint64_t save_every = spec_.checkpoint().every_steps();
  while (step_ < preparation_->total_steps) {
    RETURN_IF_ERROR(TrainStep(*loader));
    // The end has a checkpoint and an evaluation of its own.
    if (step_ == preparation_->total_steps) break;
    const bool save = save_every > 0 && step_ % save_every == 0;
    const bool evaluate = evaluate_every > 0 && step_ % evaluate_every == 0;
    // Nothing is kept of a step that nobody has looked at.
    if (save || evaluate) RETURN_IF_ERROR(Settle());
    if (save) RETURN_IF_ERROR(SaveCheckpoint());
    if (evaluate) RETURN_IF_ERROR(EvaluateModel());
    if (save || evaluate) SetPhase("training");
  }
  return Settle();
}

absl::Status Trainer::TrainStep(data::Loader& loader) {
  StepTimes times;
  const SteadyTime start = Now().steady;
  const absl::StatusOr<const data::Batch*> batch = loader.Next();
  if (!batch.ok()) return WithExitCode(batch.status(), kExitNoInput);
  times.data_wait = loader.waited();
  const std::vector<absl::Duration> busy_before = BusyTimes(plan_);
  const pipeline::StageTimes stage_before = TimesOf(preparation_->stage);
  RETURN_IF_ERROR(training_step_->Run(**batch, step_, times));
  CountCollectives(training_step_->collectives(), training_step_->collective_bytes());
  ++step_;
  times.step = Now().steady - start;
  AddStageTimes(stage_before, TimesOf(preparation_->stage), times);
  if (spec_.record_losses() && step_ends_.size() < limits::kRecordedLosses) {
    step_ends_.push_back(
        static_cast<float>(absl::ToDoubleSeconds(Now().steady - training_start_ - evaluating_)));
  }
  recent_.Add(times);
  steady_.Add(times);
  const std::vector<absl::Duration> busy = BusyTimes(plan_);
  for (size_t i = 0; i < busy.size(); ++i) {
    StepTimes of_device;
    of_device.kernels = busy[i] - busy_before[i];
    device_steady_[i].Add(of_device);
  }
  stall_ += times.data_wait;
  RETURN_IF_ERROR(TakeOutcomes(/*all=*/false));
  v1::Progress& progress = progress_.progress();
  progress.set_step(step_);
  progress.set_epoch(Epochs());
  progress.set_samples(preparation_->steps.SamplesBefore(step_));
  progress.set_stall_seconds(absl::ToDoubleSeconds(stall_));
  progress_.StepDone(recent_, Now());
  return WriteScalars();
}

absl::Status Trainer::Settle() {
  RETURN_IF_ERROR(TakeOutcomes(/*all=*/true));
  return WriteScalars();
}

absl::Status Trainer::TakeOutcomes(bool all) {
  v1::Progress& progress = progress_.progress();
  outcomes_.clear();
  while (true) {
    ASSIGN_OR_RETURN(const std::optional<StepResult> outcome, training_step_->TakeOutcome(all));
    if (!outcome.has_value()) return absl::OkStatus();
    // That of a step which overflowed says nothing.
    if (std::isfinite(outcome->loss)) loss_ = outcome->loss;
    if (spec_.record_losses() && losses_.size() < limits::kRecordedLosses) {
      losses_.push_back(static_cast<float>(outcome->loss));
    }
    progress.set_loss(loss_);
    progress.set_train_accuracy(outcome->accuracy);
    progress.set_learning_rate(outcome->learning_rate);
    if (const LossScaleState* const scale = training_step_->loss_scale(); scale != nullptr) {
      progress.set_loss_scale(scale->scale);
      progress.set_skipped_steps(scale->skipped_steps);
    }
    outcomes_.push_back(*outcome);
    outcomes_.back().loss = loss_;
  }
}

absl::Status Trainer::WriteScalars() {
  if (tensorboard_ == nullptr) return absl::OkStatus();
  const v1::Progress& progress = progress_.progress();
  const uint64_t every = std::max<uint64_t>(1, spec_.tensorboard().every_steps());
  for (const StepResult& outcome : outcomes_) {
    const uint64_t steps = outcome.step + 1;
    if (steps % every != 0 && steps != preparation_->total_steps) continue;
    std::vector<TensorBoardWriter::Scalar> scalars = {
        {"train/loss", outcome.loss},
        {"train/accuracy", outcome.accuracy},
        {"train/learning_rate", outcome.learning_rate},
        {"train/images_per_second", progress.images_per_second()},
        {"train/stall_seconds", progress.data_wait_seconds()}};
    if (outcome.gradient_norm.has_value()) {
      scalars.emplace_back("train/gradient_norm", *outcome.gradient_norm);
    }
    if (progress.loss_scale() > 0) {
      scalars.emplace_back("train/loss_scale", progress.loss_scale());
      scalars.emplace_back("train/skipped_steps", progress.skipped_steps());
    }
    RETURN_IF_ERROR(tensorboard_->AddScalars(steps, scalars));
  }
  return absl::OkStatus();
}

absl::StatusOr<Evaluation> Trainer::Evaluated() {
  const data::DatasetInfo& info = preparation_->test->info();
  Objective& objective = training_step_->objective();
  if (objective.views() == 1) {
    EvaluationOptions options;
    options.transform = EvaluationTransformOf(spec_, info);
    options.max_rows = preparation_->max_rows;
    options.part = communicators_.equals()->rank();
    options.parts = communicators_.equals()->size();
    options.threads = LoaderThreads(spec_);
    return Evaluate(*preparation_->test, plan_, *communicator_, options);
  }
  ContrastiveEvaluationOptions options;
  options.transform = TrainingTransformOf(spec_, info);
  options.global_batch = spec_.global_batch();
  options.parts = std::max(1u, spec_.accumulation_steps());
  options.seed = spec_.seed();
  options.threads = LoaderThreads(spec_);
  return EvaluateContrastive(*preparation_->test, plan_, objective, *communicator_, options);
}

absl::Status Trainer::EvaluateModel() {
  SetPhase("evaluating");
  RETURN_IF_ERROR(plan_.device().Synchronize());
  const SteadyTime begin = Now().steady;
  RETURN_IF_ERROR(state_.WithAverage([this]() -> absl::Status {
    RETURN_IF_ERROR(state_.BroadcastBuffers(*communicators_.equals(), 0));
    ASSIGN_OR_RETURN(evaluation_, Evaluated());
    return absl::OkStatus();
  }));
  CountCollectives(2, 0);
  RecordEvaluation(begin);
  progress_.progress().set_test_accuracy(evaluation_.accuracy);
  progress_.progress().set_test_loss(evaluation_.loss);
  if (!is_first()) return absl::OkStatus();
  LOG(INFO) << "after step " << step_ << ": test accuracy " << evaluation_.accuracy
            << ", test loss " << evaluation_.loss;
  if (tensorboard_ == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(tensorboard_->AddScalars(
      step_, {{"test/accuracy", evaluation_.accuracy}, {"test/loss", evaluation_.loss}}));
  return tensorboard_->Flush();
}

void Trainer::RecordEvaluation(SteadyTime begin) {
  if (evaluations_.size() < limits::kRecordedEvaluations) {
    v1::Evaluation& record = evaluations_.emplace_back();
    record.set_step(step_);
    record.set_test_accuracy(evaluation_.accuracy);
    record.set_test_loss(evaluation_.loss);
    record.set_training_seconds(absl::ToDoubleSeconds(begin - training_start_ - evaluating_));
  }
  last_evaluation_ = Now().steady - begin;
  evaluating_ += last_evaluation_;
}

double Trainer::Epochs() const {
  return static_cast<double>(step_) / static_cast<double>(preparation_->steps.steps_per_epoch());
}

void Trainer::SetPhase(const std::string& phase) { progress_.SetPhase(phase); }

void Trainer::CountCollectives(uint64_t operations, uint64_t bytes) {
  v1::Progress& progress = progress_.progress();
  progress.set_collective_sequence(progress.collective_sequence() + operations);
  progress.set_collective_bytes(progress.collective_bytes() + bytes);
}

}  // namespace muster::train
