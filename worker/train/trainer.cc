#include "worker/train/trainer.h"

#include <sys/resource.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "common/limits.h"
#include "common/proto_time.h"
#include "common/status.h"
#include "common/time.h"
#include "glog/logging.h"
#include "worker/train/evaluate.h"
#include "worker/train/exit_code.h"

namespace muster::train {
namespace {

constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();
// Steps at the start of a generation that the summary's medians leave out.
constexpr size_t kWarmupSteps = 5;

data::LoaderOptions LoaderOptionsFor(const Preparation& preparation,
                                     const collectives::Communicator& communicator,
                                     uint64_t first_step) {
  const v1::TrainSpec& spec = preparation.spec;
  data::LoaderOptions options;
  options.rank = communicator.rank();
  options.world_size = communicator.size();
  options.seed = spec.seed();
  options.first_step = first_step;
  options.end_step = preparation.total_steps;
  options.threads = std::max(1u, spec.loader().threads());
  if (spec.loader().prefetch() > 0) options.prefetch = spec.loader().prefetch();
  options.augment = {spec.augment().crop_padding(), spec.augment().flip(), spec.seed()};
  return options;
}

uint64_t PeakMemoryBytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace

Trainer::Trainer(std::unique_ptr<Preparation> preparation, collectives::Communicator* communicator,
                 TrainerOptions options)
    : preparation_(std::move(preparation)),
      spec_(preparation_->spec),
      plan_(*preparation_->plan),
      communicator_(communicator),
      options_(std::move(options)),
      normalizer_(preparation_->training.info()),
      optimizer_(spec_.optimizer(), plan_.parameters()),
      state_(&plan_),
      progress_(options_.progress),
      recent_(0),
      steady_(kWarmupSteps),
      saved_step_(kNever) {}

Trainer::~Trainer() = default;

absl::StatusOr<v1::TrainSummary> Trainer::Run() {
  progress_.progress().set_total_steps(preparation_->total_steps);
  ExchangeOptions exchange;
  if (spec_.strategy().first_bucket_bytes() > 0) {
    exchange.first_bucket_bytes = spec_.strategy().first_bucket_bytes();
  }
  if (spec_.strategy().bucket_bytes() > 0) exchange.bucket_bytes = spec_.strategy().bucket_bytes();
  exchange.canonical = options_.canonical_layout;
  ASSIGN_OR_RETURN(exchange_, GradientExchange::Create(communicator_, &plan_, exchange));
  state_.BindGradients(exchange_->gradients());

  RETURN_IF_ERROR(LoadInitialState());
  RETURN_IF_ERROR(TrainAll());
  RETURN_IF_ERROR(SaveCheckpoint());
  RETURN_IF_ERROR(EvaluateModel());
  ASSIGN_OR_RETURN(v1::TrainSummary summary, Summarize());
  SetPhase("finished");
  return summary;
}

absl::Status Trainer::LoadInitialState() {
  uint32_t root = 0;
  if (options_.resume.has_value()) {
    root = options_.resume->rank;
    step_ = first_step_ = saved_step_ = options_.resume->step;
    if (communicator_->rank() == root) {
      if (!options_.checkpoints.has_value()) {
        return absl::InternalError("told to resume from a checkpoint without a directory for any");
      }
      RETURN_IF_ERROR(options_.checkpoints->Verify(step_).status());
      RETURN_IF_ERROR(state_.ImportModel(options_.checkpoints->ModelPath(step_)));
      RETURN_IF_ERROR(state_.ImportMomentum(options_.checkpoints->OptimizerPath(step_)));
      LOG(INFO) << "resumed from " << options_.checkpoints->ModelPath(step_);
    }
  } else {
    plan_.Initialize(spec_.seed());
    if (is_first() && !spec_.init_from().empty()) {
      RETURN_IF_ERROR(WithExitCode(state_.ImportModel(spec_.init_from()), kExitNoInput));
    }
  }
  CountCollectives(1, 0);
  return state_.Broadcast(*communicator_, root, /*with_momentum=*/options_.resume.has_value());
}

absl::Status Trainer::TrainAll() {
  SetPhase("training");
  data::Loader loader(&preparation_->training, preparation_->steps,
                      LoaderOptionsFor(*preparation_, *communicator_, step_));
  const uint64_t evaluate_every =
      spec_.evaluate_every_epochs() * preparation_->steps.steps_per_epoch();
  const uint64_t save_every = spec_.checkpoint().every_steps();
  while (step_ < preparation_->total_steps) {
    StepTimes times;
    const SteadyTime start = Now().steady;
    const data::Batch& batch = loader.Next();
    times.data_wait = Now().steady - start;
    RETURN_IF_ERROR(TrainStep(batch, times));
    times.step = Now().steady - start;
    recent_.Add(times);
    steady_.Add(times);
    ReportStep();
    // The end has a checkpoint and an evaluation of its own.
    if (step_ == preparation_->total_steps) break;
    const bool save = save_every > 0 && step_ % save_every == 0;
    const bool evaluate = evaluate_every > 0 && step_ % evaluate_every == 0;
    if (save) RETURN_IF_ERROR(SaveCheckpoint());
    if (evaluate) RETURN_IF_ERROR(EvaluateModel());
    if (save || evaluate) SetPhase("training");
  }
  return absl::OkStatus();
}

absl::Status Trainer::TrainStep(const data::Batch& batch, StepTimes& times) {
  const auto rows = static_cast<uint32_t>(batch.rows);
  normalizer_.Apply(batch.pixels, plan_.input());
  std::copy(batch.labels.begin(), batch.labels.end(), plan_.labels());
  plan_.Forward(rows, /*training=*/true, {spec_.seed(), step_, batch.first_row});
  const auto global_rows = static_cast<double>(batch.global_rows);
  exchange_->Begin(
      plan_.Loss(rows, spec_.objective().label_smoothing(), static_cast<float>(1.0 / global_rows)));
  plan_.Backward(rows, [this](size_t offset) { exchange_->Ready(offset); });

  const SteadyTime backward_end = Now().steady;
  RETURN_IF_ERROR(exchange_->Finish());
  times.exposed_communication = Now().steady - backward_end;
  CountCollectives(exchange_->buckets(), exchange_->bytes());

  const double learning_rate = preparation_->schedule.LearningRate(step_);
  optimizer_.Step(learning_rate, state_.parameters(), state_.momentum(), exchange_->gradients());
  ++step_;
  loss_ = exchange_->totals().loss_sum / global_rows;
  if (spec_.record_losses() && losses_.size() < limits::kRecordedLosses) {
    losses_.push_back(static_cast<float>(loss_));
  }
  progress_.progress().set_learning_rate(learning_rate);
  return absl::OkStatus();
}

void Trainer::ReportStep() {
  v1::Progress& progress = progress_.progress();
  progress.set_step(step_);
  progress.set_epoch(static_cast<double>(step_) /
                     static_cast<double>(preparation_->steps.steps_per_epoch()));
  progress.set_samples(preparation_->steps.SamplesBefore(step_));
  progress.set_loss(loss_);
  progress_.StepDone(recent_, Now());
}

absl::Status Trainer::EvaluateModel() {
  SetPhase("evaluating");
  RETURN_IF_ERROR(state_.BroadcastBuffers(*communicator_, 0));
  ASSIGN_OR_RETURN(const Evaluation evaluation,
                   Evaluate(preparation_->test, preparation_->max_rows, plan_, *communicator_));
  CountCollectives(2, 0);
  test_accuracy_ = evaluation.accuracy;
  progress_.progress().set_test_accuracy(test_accuracy_);
  if (is_first()) {
    LOG(INFO) << "after step " << step_ << ": test accuracy " << evaluation.accuracy
              << ", test loss " << evaluation.loss;
  }
  return absl::OkStatus();
}

absl::Status Trainer::SaveCheckpoint() {
  // Rank 0's buffers are the ones that count, so it needs nobody else.
  if (!is_first() || !options_.checkpoints.has_value() || saved_step_ == step_) {
    return absl::OkStatus();
  }
  SetPhase("checkpointing");
  Checkpoint checkpoint;
  checkpoint.state.step = step_;
  checkpoint.state.epoch =
      static_cast<double>(step_) / static_cast<double>(preparation_->steps.steps_per_epoch());
  checkpoint.state.epoch_samples = preparation_->steps.At(step_).first;
  checkpoint.state.seed = spec_.seed();
  checkpoint.state.global_batch = spec_.global_batch();
  checkpoint.state.world_size = communicator_->size();
  checkpoint.state.job_id = options_.job_id;
  checkpoint.state.generation = options_.generation;
  checkpoint.state.training_digest = preparation_->training_digest;
  checkpoint.model = state_.ExportModel(step_);
  checkpoint.optimizer = state_.ExportMomentum();
  const absl::Status written = options_.checkpoints->Write(checkpoint);
  // A stale writer is no fault of the directory's.
  if (absl::IsAborted(written)) return written;
  RETURN_IF_ERROR(WithExitCode(written, kExitCannotCreate));
  saved_step_ = step_;
  return absl::OkStatus();
}

absl::StatusOr<v1::TrainSummary> Trainer::Summarize() {
  auto peak_memory_bytes = static_cast<double>(PeakMemoryBytes());
  RETURN_IF_ERROR(communicator_
                      ->AllReduce(&peak_memory_bytes, &peak_memory_bytes, 1,
                                  collectives::DataType::kFloat64, collectives::ReduceOp::kMax)
                      ->Wait());
  v1::TrainSummary summary;
  summary.set_steps(step_);
  summary.set_epochs(static_cast<double>(step_) /
                     static_cast<double>(preparation_->steps.steps_per_epoch()));
  StepTimes median = steady_.Median(kNever);
  // A training too short for a steady state is still worth a figure.
  if (median.step == absl::ZeroDuration()) median = recent_.Median(kNever);
  if (median.step > absl::ZeroDuration()) {
    summary.set_images_per_second(spec_.global_batch() / absl::ToDoubleSeconds(median.step));
  }
  summary.set_median_step_seconds(absl::ToDoubleSeconds(median.step));
  summary.set_data_wait_seconds(absl::ToDoubleSeconds(median.data_wait));
  summary.set_exposed_communication_seconds(absl::ToDoubleSeconds(median.exposed_communication));
  summary.set_final_loss(loss_);
  summary.set_test_accuracy(test_accuracy_);
  summary.set_peak_memory_bytes(static_cast<uint64_t>(peak_memory_bytes));
  summary.mutable_losses()->Add(losses_.begin(), losses_.end());
  summary.set_first_loss_step(first_step_ + 1);
  summary.set_weights_digest(state_.WeightsDigest());
  summary.set_parameters(state_.parameter_count());
  summary.set_resumed_from_step(options_.resume.has_value() ? first_step_ : 0);
  if (progress_.progress().has_first_step_time()) {
    *summary.mutable_first_step_time() = progress_.progress().first_step_time();
  }
  return summary;
}

void Trainer::SetPhase(const std::string& phase) { progress_.SetPhase(phase); }

void Trainer::CountCollectives(uint64_t operations, uint64_t bytes) {
  v1::Progress& progress = progress_.progress();
  progress.set_collective_sequence(progress.collective_sequence() + operations);
  progress.set_collective_bytes(progress.collective_bytes() + bytes);
}

}  // namespace muster::train
