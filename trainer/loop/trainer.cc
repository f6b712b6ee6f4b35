#include "trainer/loop/trainer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/limits.h"
#include "common/status.h"
#include "common/time/now.h"
#include "common/time/proto_time.h"
#include "common/time/time.h"
#include "trainer/data/loader.h"
#include "trainer/data/resident_images.h"
#include "trainer/device_status.h"
#include "trainer/loop/data_options.h"
#include "trainer/loop/spec_plan.h"
#include "trainer/precision/training_precision.h"

namespace muster::train {
namespace {

constexpr auto kRecordedLosses = static_cast<int>(limits::kRecordedLosses);
constexpr auto kRecordedEvaluations = static_cast<int>(limits::kRecordedEvaluations);

}  // namespace

Trainer::Trainer(std::unique_ptr<TrainingSetup> setup, const ProcessGroups* groups,
                 TrainerOptions options)
    : setup_(std::move(setup)),
      spec_(setup_->spec),
      groups_(*groups),
      world_(*groups->world),
      options_(std::move(options)),
      requests_(options_.requests != nullptr ? *options_.requests : no_requests_),
      progress_(options_.progress),
      log_(is_first(), setup_->steps, setup_->total_steps),
      agreement_(groups->world.get()),
      newest_(options_.newest_checkpoint) {}

Trainer::~Trainer() = default;

absl::StatusOr<v1::TrainSummary> Trainer::Run() {
  absl::StatusOr<v1::TrainSummary> summary = RunToEnd();
  if (!summary.ok()) LeaveState(summary.status());
  requests_.SetLeavesState(false);
  if (summary.ok()) return summary;
  FinishWriting();
  // The failure of a device may appear first as another error, such as a loss that is not finite.
  const absl::Status device = DeviceError();
  return WithMemoryAdvice(device.ok() ? summary.status() : device);
}

absl::StatusOr<v1::TrainSummary> Trainer::RunToEnd() {
  progress_.progress().set_total_steps(setup_->total_steps);
  RETURN_IF_ERROR(CreateStrategy());
  RETURN_IF_ERROR(LoadInitialState());
  has_state_ = true;
  RETURN_IF_ERROR(PrepareSnapshots());
  if (is_first() && !options_.tensorboard_directory.empty()) {
    ASSIGN_OR_RETURN(tensorboard_,
                     TensorBoardWriter::Create(options_.tensorboard_directory, step_ + 1));
  }
  requests_.AcceptStops();
  requests_.SetLeavesState(LeavesState());
  RETURN_IF_ERROR(TrainAll());
  ForgetEarlierState();
  // A checkpoint that may be the best one contains its evaluation; otherwise, saving comes first.
  const bool evaluate_first = !spec_.checkpoint().keep_best().empty();
  if (evaluate_first) RETURN_IF_ERROR(EvaluateModel().status());
  const SteadyTime trained = SteadyNow();
  RETURN_IF_ERROR(SaveFinal());
  not_training_ += SteadyNow() - trained;
  requests_.RefuseStops();
  RETURN_IF_ERROR(CheckStop());
  RETURN_IF_ERROR(EvaluateModel().status());
  ASSIGN_OR_RETURN(v1::TrainSummary summary, Summarize());
  RETURN_IF_ERROR(AwaitDevices());
  SetPhase("finished");
  return summary;
}

absl::Status Trainer::CreateStrategy() {
  StrategyContext context;
  context.spec = &spec_;
  context.schedule = &setup_->schedule;
  context.dataset = &setup_->training->info();
  context.groups = &groups_;
  context.precision = setup_->precision;
  context.max_samples = setup_->max_samples;
  context.shares = setup_->shares;
  context.canonical_layout = options_.canonical_layout;
  context.node_name = options_.node_name;
  context.report_phase = [this](const std::string& phase) { SetPhase(phase); };
  context.stop_requested = [this] { return requests_.stop_requested(); };
  context.evaluation_progress = [this](uint64_t samples) {
    progress_.SetPhaseProgress(samples, setup_->test->size(), "images",
                               SteadyNow() - evaluation_start_);
  };
  ASSIGN_OR_RETURN(strategy_, setup_->strategy->Connect(context));
  *progress_.progress().mutable_precision() = PrecisionInfoOf(strategy_->precision());
  // Ranks of a pipeline do different work in different stages.
  const uint32_t stage = groups_.pipeline_group == nullptr ? 0 : groups_.pipeline_group->rank();
  windows_.emplace(stage, strategy_->device().host_memory());
  return absl::OkStatus();
}

data::LoaderOptions Trainer::LoaderOptionsFor(const kernels::DeviceMemory& resident) const {
  const BatchShare share = strategy_->batch_share();
  data::LoaderOptions options;
  options.rank = share.index;
  options.world_size = share.count;
  options.slices = share.slices;
  options.labels_only = share.labels_only;
  options.seed = spec_.seed();
  options.first_step = step_;
  options.end_step = setup_->total_steps;
  options.views = ViewsOf(spec_.objective());
  options.threads = std::max(1u, spec_.loader().threads());
  if (spec_.loader().prefetch() > 0) options.prefetch = spec_.loader().prefetch();
  options.transform = TrainingTransformOf(spec_, setup_->training->info());
  options.device = &strategy_->device();
  options.resident = resident.as<uint8_t>();
  // This rank may have to leave its state.
  options.cancelled = [this] { return requests_.aborted(); };
  return options;
}

absl::Status Trainer::TrainAll() {
  SetPhase("training");
  const kernels::DeviceMemory resident =
      spec_.dataset().resident() == "never" || strategy_->batch_share().labels_only
          ? kernels::DeviceMemory()
          : data::MakeResident(*setup_->training, strategy_->device());
  training_start_ = last_snapshot_ = SteadyNow();
  log_.Started(step_, training_start_);
  agreement_.Start(training_start_);
  const auto loader =
      data::Loader::ForTraining(setup_->training.get(), setup_->steps, LoaderOptionsFor(resident));
  const uint64_t evaluate_every = spec_.evaluate_every_epochs() * setup_->steps.steps_per_epoch();
  RETURN_IF_ERROR(MakeUpEvaluation(evaluate_every));
  while (step_ < setup_->total_steps) {
    RETURN_IF_ERROR(TrainStep(*loader));
    // The final checkpoint and evaluation are made after the loop.
    if (step_ == setup_->total_steps) break;
    ASSIGN_OR_RETURN(AgreedRequests agreed, AgreeAfterStep());
    if (agreed.window_steps > 0) windows_->SetLength(agreed.window_steps);
    // Only some ranks write.
    if (agreed.writing) windows_->Discard();
    const bool evaluate = evaluate_every > 0 && step_ % evaluate_every == 0 && !agreed.stop;
    if (!evaluate && !agreed.stop && !agreed.checkpoint) continue;
    // Save and evaluate only after the results of all steps are known to be good.
    RETURN_IF_ERROR(Settle());
    if (evaluate) {
      ASSIGN_OR_RETURN(const bool evaluated, EvaluateModel());
      agreed.stop = !evaluated;
      RETURN_IF_ERROR(SaveIfBest());
    }
    if (agreed.stop) {
      RETURN_IF_ERROR(agreed.in_memory ? LeaveAtStop() : SaveAndWait());
      RETURN_IF_ERROR(CheckStop());
    } else if (agreed.checkpoint) {
      RETURN_IF_ERROR(SaveCheckpoint());
    }
    windows_->Discard();
    SetPhase("training");
  }
  return Settle();
}

absl::Status Trainer::MakeUpEvaluation(uint64_t evaluate_every) {
  const bool continues = record_.first_loss_step() <= step_;
  if (!continues || step_ == setup_->total_steps || evaluate_every == 0 ||
      step_ % evaluate_every != 0 || evaluated_step_ == step_) {
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const bool evaluated, EvaluateModel());
  if (!evaluated) {
    RETURN_IF_ERROR(SaveAndWait());
    return CheckStop();
  }
  saved_step_.reset();  // the checkpoint of this step has no evaluation
  RETURN_IF_ERROR(SaveIfBest());
  SetPhase("training");
  return absl::OkStatus();
}

absl::Status Trainer::TrainStep(data::Loader& loader) {
  StepTimes times;
  const SteadyTime start = Now().steady;
  ASSIGN_OR_RETURN(const data::Batch* batch, loader.Next());
  times.data_wait = loader.waited();
  RETURN_IF_ERROR(strategy_->Step(*batch, step_, times));
  CountCollectives(strategy_->collectives_per_step(), strategy_->collective_bytes_per_step());
  ++step_;
  if (step_ == first_step_ + 1) ForgetEarlierState();
  const Time end = Now();
  times.step = end.steady - start;
  if (options_.trace != nullptr) options_.trace->AddStep(step_, times, end);
  trained_ = TrainingTime(end.steady);
  if (spec_.record_losses() && record_.step_end_seconds_size() < kRecordedLosses) {
    record_.add_step_end_seconds(static_cast<float>(absl::ToDoubleSeconds(trained_)));
  }
  statistics_.Add(times);
  stall_ += times.data_wait;
  record_.set_stall_seconds(record_.stall_seconds() + absl::ToDoubleSeconds(times.data_wait));
  if (windows_->Add(step_, static_cast<uint32_t>(batch->samples), times)) {
    *progress_.progress().mutable_step_windows() = windows_->windows();
  }
  RETURN_IF_ERROR(PollStepResults(/*all=*/false));
  v1::Progress& progress = progress_.progress();
  progress.set_step(step_);
  progress.set_epoch(Epochs());
  progress.set_samples(setup_->steps.SamplesBefore(step_));
  progress.set_stall_seconds(absl::ToDoubleSeconds(stall_));
  const Time now = Now();
  progress_.StepDone(statistics_, now);
  log_.StepDone(times.data_wait, now.steady);
  return WriteScalars();
}

absl::Status Trainer::Settle() {
  RETURN_IF_ERROR(PollStepResults(/*all=*/true));
  return WriteScalars();
}

absl::Status Trainer::DeviceError() const {
  if (strategy_ == nullptr) return absl::OkStatus();
  for (kernels::Device* const device : strategy_->devices()) {
    RETURN_IF_ERROR(WithDeviceExitCode(device->error()));
  }
  return absl::OkStatus();
}

absl::Status Trainer::AwaitDevices() const {
  for (kernels::Device* const device : strategy_->devices()) {
    RETURN_IF_ERROR(WithDeviceExitCode(device->Synchronize()));
  }
  return absl::OkStatus();
}

absl::Status Trainer::PollStepResults(bool all) {
  v1::Progress& progress = progress_.progress();
  results_.clear();
  while (true) {
    ASSIGN_OR_RETURN(const std::optional<StepResult> result, strategy_->PollStepResult(all));
    if (!result.has_value()) return DeviceError();
    // A failed device may compute such a loss.
    if (!result->diverged.ok()) RETURN_IF_ERROR(DeviceError());
    MonitorLoss(*result);
    RETURN_IF_ERROR(result->diverged);
    Record(*result);
    progress.set_loss(record_.final_loss());
    progress.set_train_accuracy(result->accuracy);
    progress.set_learning_rate(result->learning_rate);
    if (const LossScaleState* const scale = strategy_->loss_scale(); scale != nullptr) {
      progress.set_loss_scale(scale->scale);
      progress.set_skipped_steps(scale->skipped_steps);
    }
    log_.OnResult(*result, strategy_->loss_scale(), Now().steady);
    results_.push_back(*result);
    results_.back().loss = record_.final_loss();
  }
}

void Trainer::Record(const StepResult& result) {
  // The loss of a step that overflowed is meaningless.
  if (std::isfinite(result.loss)) record_.set_final_loss(result.loss);
  if (spec_.record_losses() && record_.losses_size() < kRecordedLosses) {
    record_.add_losses(static_cast<float>(result.loss));
  }
}

void Trainer::MonitorLoss(const StepResult& result) {
  // A loss that is not finite may end the job, and any rank may be the first to fail.
  if (!is_first() && std::isfinite(result.loss)) return;
  const std::optional<v1::LossAnomaly> anomaly = loss_monitor_.Add(result.step + 1, result.loss);
  if (!anomaly.has_value()) return;
  auto& anomalies = *progress_.progress().mutable_loss_anomalies();
  // Spikes must not use up the space for losses that are not finite.
  const bool finite = std::isfinite(anomaly->loss());
  const auto same_kind = std::count_if(
      anomalies.begin(), anomalies.end(),
      [finite](const v1::LossAnomaly& earlier) { return std::isfinite(earlier.loss()) == finite; });
  if (same_kind == limits::kLossAnomalies / 2) return;
  *anomalies.Add() = *anomaly;
  // The training may end with this step.
  progress_.Send();
}

absl::Status Trainer::WriteScalars() {
  if (tensorboard_ == nullptr) return absl::OkStatus();
  const v1::Progress& progress = progress_.progress();
  const uint64_t every = std::max<uint64_t>(1, spec_.tensorboard().every_steps());
  for (const StepResult& result : results_) {
    const uint64_t steps = result.step + 1;
    if (steps % every != 0 && steps != setup_->total_steps) continue;
    std::vector<TensorBoardWriter::Scalar> scalars = {
        {"train/loss", result.loss},
        {"train/accuracy", result.accuracy},
        {"train/learning_rate", result.learning_rate},
        {"train/images_per_second", progress.images_per_second()},
        {"train/stall_seconds", progress.data_wait_seconds()}};
    if (result.gradient_norm.has_value()) {
      scalars.emplace_back("train/gradient_norm", *result.gradient_norm);
    }
    if (progress.loss_scale() > 0) {
      scalars.emplace_back("train/loss_scale", progress.loss_scale());
      scalars.emplace_back("train/skipped_steps", progress.skipped_steps());
    }
    RETURN_IF_ERROR(tensorboard_->AddScalars(steps, scalars));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Trainer::EvaluateModel() {
  if (evaluated_step_ == step_) return true;
  SetPhase("evaluating");
  RETURN_IF_ERROR(AwaitDevices());
  evaluation_start_ = SteadyNow();
  const data::DatasetInfo& info = setup_->test->info();
  // An objective that compares views uses augmentation as in training.
  const data::TransformOptions transform = ViewsOf(spec_.objective()) == 1
                                               ? EvaluationTransformOf(spec_, info)
                                               : TrainingTransformOf(spec_, info);
  const absl::StatusOr<Evaluation> evaluation = strategy_->Evaluate(*setup_->test, transform);
  if (absl::IsCancelled(evaluation.status())) return false;
  RETURN_IF_ERROR(evaluation.status());
  RETURN_IF_ERROR(AwaitDevices());
  evaluation_ = *evaluation;
  evaluated_step_ = step_;
  CountCollectives(2, 0);
  RecordEvaluation();
  progress_.progress().set_test_accuracy(evaluation_.accuracy);
  progress_.progress().set_test_loss(evaluation_.loss);
  log_.Evaluated(step_, evaluation_, absl::Seconds(record_.evaluation_seconds()));
  if (tensorboard_ == nullptr) return true;
  RETURN_IF_ERROR(tensorboard_->AddScalars(
      step_, {{"test/accuracy", evaluation_.accuracy}, {"test/loss", evaluation_.loss}}));
  RETURN_IF_ERROR(tensorboard_->Flush());
  return true;
}

void Trainer::RecordEvaluation() {
  if (record_.evaluations_size() < kRecordedEvaluations) {
    v1::Evaluation& record = *record_.add_evaluations();
    record.set_step(step_);
    record.set_test_accuracy(evaluation_.accuracy);
    record.set_test_loss(evaluation_.loss);
    record.set_training_seconds(absl::ToDoubleSeconds(TrainingTime(evaluation_start_)));
  }
  const absl::Duration taken = SteadyNow() - evaluation_start_;
  record_.set_evaluation_seconds(absl::ToDoubleSeconds(taken));
  not_training_ += taken;
}

double Trainer::Epochs() const {
  return static_cast<double>(step_) / static_cast<double>(setup_->steps.steps_per_epoch());
}

void Trainer::SetPhase(const std::string& phase) { progress_.SetPhase(phase); }

void Trainer::CountCollectives(uint64_t operations, uint64_t bytes) {
  v1::Progress& progress = progress_.progress();
  progress.set_collective_sequence(progress.collective_sequence() + operations);
  progress.set_collective_bytes(progress.collective_bytes() + bytes);
}

}  // namespace muster::train
