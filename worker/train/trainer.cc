#include "worker/train/trainer.h"

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <utility>

#include "common/limits.h"
#include "common/proto_time.h"
#include "common/status.h"
#include "common/time.h"
#include "glog/logging.h"
#include "worker/data/loader.h"
#include "worker/data/resident_images.h"
#include "worker/train/data_options.h"
#include "worker/train/exit_code.h"
#include "worker/train/loss_scale.h"
#include "worker/train/spec_plan.h"
#include "worker/train/training_precision.h"

namespace muster::train {
namespace {

constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();
// Steps at the start of a generation that the summary's medians leave out.
constexpr size_t kWarmupSteps = 5;

uint32_t LoaderThreads(const v1::TrainSpec& spec) { return std::max(1u, spec.loader().threads()); }

data::LoaderOptions LoaderOptionsFor(const Preparation& preparation,
                                     const collectives::Communicator& communicator,
                                     uint64_t first_step, const kernels::DeviceMemory& resident) {
  const v1::TrainSpec& spec = preparation.spec;
  data::LoaderOptions options;
  options.rank = communicator.rank();
  options.world_size = communicator.size();
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
  const collectives::Communicator& world = *communicators.world;
  return world.size() == 1 || (world.backend() == "shm" && communicators.devices == nullptr);
}

// Of each device of a plan over several; nothing of any other.
std::vector<absl::Duration> BusyTimes(const nn::Plan& plan) {
  std::vector<absl::Duration> times;
  if (plan.parts().empty()) return times;
  for (const nn::DeviceUse& use : plan.devices()) times.push_back(use.busy);
  return times;
}

uint64_t PeakMemoryBytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace

Trainer::Trainer(std::unique_ptr<Preparation> preparation, const Communicators& communicators,
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
      saved_step_(kNever) {}

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

absl::Status Trainer::LoadInitialState() {
  uint32_t root = 0;
  if (options_.resume.has_value()) {
    root = options_.resume->rank;
    preparation_->optimizer->KeepAll();  // a checkpoint is of everything
    step_ = first_step_ = saved_step_ = options_.resume->step;
    if (communicator_->rank() == root) {
      RETURN_IF_ERROR(ReadCheckpoint());
    }
    RETURN_IF_ERROR(BroadcastLossScale(root));
  } else {
    plan_.Initialize(spec_.seed());
    if (is_first() && !spec_.init_from().empty()) {
      const std::vector<std::string> excluded(spec_.init_exclude().begin(),
                                              spec_.init_exclude().end());
      RETURN_IF_ERROR(
          WithExitCode(state_.InitializeFrom(spec_.init_from(), excluded), kExitNoInput));
    }
  }
  CountCollectives(1, 0);
  const bool resuming = options_.resume.has_value();
  RETURN_IF_ERROR(state_.Broadcast(*communicator_, root, resuming));
  training_step_->KeepOwnOptimizerStates();
  // A file may hold more digits than the weights are kept in.
  state_.RoundParameters(precision_.weights);
  // Until the first update, which is not the first step where that overflows.
  if (!resuming) state_.StartAverage();
  return absl::OkStatus();
}

absl::Status Trainer::ReadCheckpoint() {
  if (!options_.checkpoints.has_value()) {
    return absl::InternalError("told to resume from a checkpoint without a directory for any");
  }
  ASSIGN_OR_RETURN(const CheckpointState state, options_.checkpoints->Verify(step_));
  RETURN_IF_ERROR(state_.ImportModel(options_.checkpoints->ModelPath(step_)));
  RETURN_IF_ERROR(state_.ImportOptimizer(options_.checkpoints->OptimizerPath(step_)));
  if (const auto average = options_.checkpoints->AveragePath(step_)) {
    RETURN_IF_ERROR(state_.ImportAverage(*average));
  } else {
    state_.StartAverage();
  }
  if (training_step_->loss_scale() != nullptr && state.loss_scale.has_value()) {
    training_step_->RestoreLossScale(*state.loss_scale);
  }
  LOG(INFO) << "resumed from " << options_.checkpoints->ModelPath(step_);
  return absl::OkStatus();
}

absl::Status Trainer::BroadcastLossScale(uint32_t root) {
  const LossScaleState* const state = training_step_->loss_scale();
  if (state == nullptr) return absl::OkStatus();
  // Counts of steps, which a double holds exactly.
  double values[] = {state->scale, static_cast<double>(state->clean_steps),
                     static_cast<double>(state->skipped_steps),
                     static_cast<double>(state->overflows_in_row)};
  RETURN_IF_ERROR(
      communicator_->Broadcast(values, std::size(values), collectives::DataType::kFloat64, root)
          ->Wait());
  training_step_->RestoreLossScale({.scale = values[0],
                                    .clean_steps = static_cast<uint64_t>(values[1]),
                                    .skipped_steps = static_cast<uint64_t>(values[2]),
                                    .overflows_in_row = static_cast<uint64_t>(values[3])});
  CountCollectives(1, sizeof(values));
  return absl::OkStatus();
}

absl::Status Trainer::TrainAll() {
  SetPhase("training");
  const kernels::DeviceMemory resident =
      spec_.dataset().resident() == "never"
          ? kernels::DeviceMemory()
          : data::MakeResident(*preparation_->training, plan_.device());
  training_start_ = Now().steady;
  const auto loader =
      data::Loader::ForTraining(preparation_->training.get(), preparation_->steps,
                                LoaderOptionsFor(*preparation_, *communicator_, step_, resident));
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
  times.data_wait = Now().steady - start;
  const std::vector<absl::Duration> busy_before = BusyTimes(plan_);
  RETURN_IF_ERROR(training_step_->Run(**batch, step_, times));
  CountCollectives(training_step_->collectives(), training_step_->collective_bytes());
  ++step_;
  times.step = Now().steady - start;
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
    ASSIGN_OR_RETURN(const std::optional<StepOutcome> outcome, training_step_->TakeOutcome(all));
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
  for (const StepOutcome& outcome : outcomes_) {
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
    RETURN_IF_ERROR(state_.BroadcastBuffers(*communicator_, 0));
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

absl::Status Trainer::SaveCheckpoint() {
  if (!options_.checkpoints.has_value() || saved_step_ == step_) return absl::OkStatus();
  SetPhase("checkpointing");
  ASSIGN_OR_RETURN(const TrainingStep::WholeStates optimizer,
                   training_step_->GatherOptimizerStates());
  saved_step_ = step_;
  // Rank 0's buffers are the ones that count.
  if (!is_first()) return absl::OkStatus();
  Checkpoint checkpoint;
  checkpoint.state.step = step_;
  checkpoint.state.epoch = Epochs();
  checkpoint.state.epoch_samples = preparation_->steps.At(step_).first;
  checkpoint.state.seed = spec_.seed();
  checkpoint.state.global_batch = spec_.global_batch();
  checkpoint.state.world_size = communicator_->size();
  checkpoint.state.job_id = options_.job_id;
  checkpoint.state.generation = options_.generation;
  checkpoint.state.training_digest = preparation_->training_digest;
  if (training_step_->loss_scale() != nullptr) {
    checkpoint.state.loss_scale = *training_step_->loss_scale();
  }
  // Batch norm saw every part of a batch by itself, as PyTorch counts.
  const uint64_t batches =
      training_step_->Updates(step_) * std::max(1u, spec_.accumulation_steps());
  checkpoint.model = state_.ExportModel(batches);
  checkpoint.optimizer = state_.ExportOptimizer(optimizer.states());
  checkpoint.average = state_.ExportAverage(batches);
  const absl::Status written = options_.checkpoints->Write(checkpoint);
  // A stale writer is no fault of the directory's.
  if (absl::IsAborted(written)) return written;
  return WithExitCode(written, kExitCannotCreate);
}

absl::StatusOr<uint32_t> Trainer::DifferingReplicas(const std::string& digest) {
  std::string digests(communicator_->size() * digest.size(), '\0');
  RETURN_IF_ERROR(
      communicator_
          ->AllGather(digest.data(), digests.data(), digest.size(), collectives::DataType::kUint8)
          ->Wait());
  uint32_t differing = 0;
  for (uint32_t rank = 0; rank < communicator_->size(); ++rank) {
    differing +=
        digests.compare(rank * digest.size(), digest.size(), digests, 0, digest.size()) != 0;
  }
  LOG_IF(ERROR, differing > 0 && is_first()) << differing << " of " << communicator_->size()
                                             << " ranks ended with other weights than rank 0";
  return differing;
}

v1::TrainSummary Trainer::OwnDevices() const {
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
    use.set_busy_seconds(absl::ToDoubleSeconds(busy.Median(kNever).kernels));
    if (i > 0) continue;
    for (const OptimizerState& state : preparation_->optimizer->states()) {
      use.set_optimizer_bytes(use.optimizer_bytes() + state.values.bytes());
    }
  }
  return own;
}

absl::Status Trainer::GatherDevices(v1::TrainSummary& summary) {
  // All ranks send as many bytes: the longest text, its length before it.
  std::string own = OwnDevices().SerializeAsString();
  int64_t longest = static_cast<int64_t>(own.size());
  RETURN_IF_ERROR(communicator_
                      ->AllReduce(&longest, &longest, 1, collectives::DataType::kInt64,
                                  collectives::ReduceOp::kMax)
                      ->Wait());
  const auto length = static_cast<int64_t>(own.size());
  const size_t bytes = sizeof(length) + static_cast<size_t>(longest);
  own.insert(0, reinterpret_cast<const char*>(&length), sizeof(length));
  own.resize(bytes);
  std::string all(is_first() ? bytes * communicator_->size() : 0, '\0');
  RETURN_IF_ERROR(
      communicator_->Gather(own.data(), all.data(), bytes, collectives::DataType::kUint8, 0)
          ->Wait());
  for (size_t at = 0; at < all.size(); at += bytes) {
    int64_t size = 0;
    std::memcpy(&size, all.data() + at, sizeof(size));
    v1::TrainSummary of_rank;
    if (size < 0 || size > longest ||
        !of_rank.ParseFromArray(all.data() + at + sizeof(size), static_cast<int>(size))) {
      return absl::DataLossError("a rank's devices cannot be read");
    }
    for (v1::DeviceUse& use : *of_rank.mutable_devices()) {
      if (summary.devices_size() == limits::kRecordedDevices) return absl::OkStatus();
      summary.add_devices()->Swap(&use);
    }
  }
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
  summary.set_epochs(Epochs());
  StepTimes median = steady_.Median(kNever);
  // A training too short for a steady state is still worth a figure.
  if (median.step == absl::ZeroDuration()) median = recent_.Median(kNever);
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
  summary.set_first_loss_step(first_step_ + 1);
  summary.mutable_evaluations()->Add(evaluations_.begin(), evaluations_.end());
  summary.set_weights_digest(state_.WeightsDigest());
  ASSIGN_OR_RETURN(const uint32_t differing, DifferingReplicas(summary.weights_digest()));
  summary.set_differing_replicas(differing);
  summary.set_parameters(state_.parameter_count());
  RETURN_IF_ERROR(GatherDevices(summary));
  summary.set_resumed_from_step(options_.resume.has_value() ? first_step_ : 0);
  if (progress_.progress().has_first_step_time()) {
    *summary.mutable_first_step_time() = progress_.progress().first_step_time();
  }
  return summary;
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
