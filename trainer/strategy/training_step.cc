#include "trainer/strategy/training_step.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/time.h"
#include "kernels/update_rules.h"
#include "trainer/loop/exit_code.h"
#include "trainer/strategy/outcome_wait.h"
#include "trainer/strategy/stopwatch.h"

namespace muster::train {
namespace {

// Whether the ranks share the update among them; the same on all. A step whose gradients are to be
// looked at before the update needs their sums first.
bool Shards(const StepParts& parts) {
  return parts.communicators.equals()->backend() == "shm" && parts.plan->device().host_memory() &&
         !parts.canonical_layout && parts.precision.gradients == kernels::DataType::kFloat32 &&
         parts.optimizer->elementwise() &&
         parts.spec->mixed_precision().loss_scale().initial() == 0;
}

// Whether each rank keeps the optimizer's states of a share alone.
bool KeepsShares(const StepParts& parts) {
  return parts.spec->strategy().shard_optimizer() && parts.communicators.equals()->size() > 1;
}

// Whether each rank gets the sums of a share alone.
bool Scatters(const StepParts& parts) { return KeepsShares(parts) && !Shards(parts); }

// Whether gradients stay in the devices' memory; the same on all ranks.
bool OnDevices(const StepParts& parts) {
  return !parts.plan->device().host_memory() && !parts.canonical_layout &&
         parts.communicators.stages == nullptr &&
         (parts.communicators.world->size() == 1 || parts.communicators.devices != nullptr);
}

// Those that sum, where gradients stay in their memory; null: a world of one.
collectives::Communicator* DevicesOf(const StepParts& parts) {
  return parts.communicators.world->size() == 1 ? nullptr : parts.communicators.devices;
}

kernels::UpdateRules RulesOf(const v1::TrainSpec& spec) {
  kernels::UpdateRules rules = UpdateRulesOf(spec.optimizer());
  const v1::LossScaleSpec& scale = spec.mixed_precision().loss_scale();
  rules.scales_loss = scale.initial() != 0;
  rules.loss_scale = LossScaleRulesOf(scale);
  rules.average_decay = spec.ema().decay();
  return rules;
}

template <typename Options>
Options ExchangeOptionsOf(const StepParts& parts) {
  Options options;
  const v1::StrategySpec& strategy = parts.spec->strategy();
  if (strategy.first_bucket_bytes() > 0) options.first_bucket_bytes = strategy.first_bucket_bytes();
  if (strategy.bucket_bytes() > 0) options.bucket_bytes = strategy.bucket_bytes();
  options.accumulates = parts.spec->accumulation_steps() > 1;
  options.scatters = Scatters(parts);
  options.type = parts.precision.gradients;
  return options;
}

absl::Status Diverged(const std::string& what) {
  return WithExitCode(
      absl::FailedPreconditionError(absl::StrCat(
          what,
          ": the training diverged; a smaller learning rate, a warm-up or clip_norm may help")),
      kExitDiverged);
}

}  // namespace

TrainingStep::TrainingStep(const StepParts& parts, const data::DatasetInfo& dataset)
    : parts_(parts),
      device_(parts.plan->device()),
      micro_batches_(std::max(1u, parts.spec->accumulation_steps())),
      input_(dataset, device_),
      reducer_(OnDevices(parts) ? CommunicatorReducer::ByDevices(DevicesOf(parts))
                                : CommunicatorReducer::ByProcesses(parts.communicators.world,
                                                                   &parts.plan->device())),
      graphs_(device_, parts.plan->records() && parts.spec->cuda_graphs() != "never") {
  const v1::LossScaleSpec& scale = parts.spec->mixed_precision().loss_scale();
  if (scale.initial() == 0) return;
  loss_scale_ = InitialLossScale(scale);
  guard_.emplace(parts.communicators.world, device_, parts.state->buffers(),
                 parts.plan->buffer_elements());
}

absl::StatusOr<std::unique_ptr<TrainingStep>> TrainingStep::Create(
    const StepParts& parts, const data::DatasetInfo& dataset) {
  if (KeepsShares(parts) && parts.canonical_layout) {
    return absl::FailedPreconditionError(
        "train.strategy.shard_optimizer: the ranks lay parameters out differently, as on "
        "processors of several kinds, and their shares would differ");
  }
  std::unique_ptr<TrainingStep> step(new TrainingStep(parts, dataset));
  const auto output_width = static_cast<int64_t>(parts.plan->logits(1).size());
  ASSIGN_OR_RETURN(step->objective_,
                   Objective::Create(parts.spec->objective(), parts.communicators, parts.max_rows,
                                     output_width, parts.plan->device()));
  RETURN_IF_ERROR(step->CreateExchange());
  parts.state->BindGradients(step->gradients());
  if (Shards(parts)) {
    ASSIGN_OR_RETURN(step->sharded_, FusedSharedMemoryUpdate::Create(
                                         parts.communicators.equals(), step->exchange_.get(),
                                         parts.optimizer, parts.plan->parameter_elements()));
    if (step->sharded_ == nullptr) {
      return absl::InternalError("ranks of one node cannot reach each other's memory");
    }
    parts.state->BindParameters(step->sharded_->parameters());
  }
  if (Scatters(parts)) {
    const bool by_devices = OnDevices(parts);
    ASSIGN_OR_RETURN(step->shares_,
                     ShardedParameters::Create(
                         by_devices ? parts.communicators.devices : parts.communicators.equals(),
                         &parts.plan->device(), by_devices, parts.plan->parameter_elements()));
    parts.state->BindParameters(step->shares_->parameters());
  }
  step->KeepOwnOptimizerStates();
  if (parts.spec->sync_batch_norm()) parts.plan->set_statistics_reducer(&step->reducer_);
  // Where processes sum up, one loss is the sum of all parts'.
  const uint32_t losses = step->on_devices_ != nullptr ? step->micro_batches_ : 1;
  ASSIGN_OR_RETURN(step->control_,
                   UpdateController::Create(RulesOf(*parts.spec), parts.plan->device(), losses,
                                            step->micro_batches_));
  step->objective_->set_loss_scale(step->control_->loss_scale());
  if (step->loss_scale_.has_value()) step->control_->SetLossScale(*step->loss_scale_);
  // Processes cannot sum in the middle of what is recorded.
  const bool sums_in_passes = parts.spec->sync_batch_norm() && step->on_devices_ == nullptr;
  step->records_ = step->graphs_.records() && step->objective_->records() && !sums_in_passes;
  return step;
}

absl::Status TrainingStep::CreateExchange() {
  if (OnDevices(parts_)) {
    ASSIGN_OR_RETURN(on_devices_, DeviceBucketReducer::Create(
                                      DevicesOf(parts_), parts_.plan,
                                      ExchangeOptionsOf<DeviceBucketReducerOptions>(parts_)));
    return absl::OkStatus();
  }
  auto options = ExchangeOptionsOf<ExchangeOptions>(parts_);
  options.canonical = parts_.canonical_layout;
  options.sums = !Shards(parts_);
  ASSIGN_OR_RETURN(exchange_,
                   HostBucketReducer::Create(parts_.communicators.equals(), parts_.plan, options));
  return absl::OkStatus();
}

absl::Status TrainingStep::Run(const data::Batch& batch, uint64_t step, StepTimes& times) {
  const absl::Duration kernels_before = KernelTime();
  const StepPartTimes parts_before = SpentInParts();
  const double learning_rate = parts_.schedule->LearningRate(step);
  RETURN_IF_ERROR(control_->Begin(step, learning_rate));
  const uint64_t global_rows = batch.global_rows * batch.views;
  for (uint32_t part = 0; part < micro_batches_; ++part) {
    RETURN_IF_ERROR(Compute(batch.Part(part, micro_batches_), part, step, global_rows));
  }
  {
    const Stopwatch stopwatch(times.parts[kExchangePart]);
    RETURN_IF_ERROR(Exchange(times));
  }
  {
    const Stopwatch stopwatch(times.parts[kUpdatePart]);
    RETURN_IF_ERROR(Update(times));
  }
  const StepPartTimes spent = SpentInParts();
  for (size_t part = 0; part < kExchangePart; ++part) {
    times.parts[part] += spent[part] - parts_before[part];
  }
  control_->Finish();
  if (control_->pending() == 1) next_outcome_ = step;
  queued_[step % queued_.size()] = {step, global_rows, learning_rate};
  times.kernels += KernelTime() - kernels_before;
  return absl::OkStatus();
}

absl::Status TrainingStep::Compute(const data::Batch& part, uint32_t index, uint64_t step,
                                   uint64_t global_rows) {
  nn::Plan& plan = *parts_.plan;
  const auto rows = static_cast<uint32_t>(part.rows);
  {
    const Stopwatch stopwatch(own_kernel_time_);
    input_.Write(part, plan.input(), plan.labels());
  }
  plan.SetStep({parts_.spec->seed(), step, part.first_row * uint64_t{part.views}});
  if (!records_) return Pass(index, rows, global_rows);
  return graphs_.Run({index, rows, global_rows}, [&] { return Pass(index, rows, global_rows); });
}

absl::Status TrainingStep::Pass(uint32_t index, uint32_t rows, uint64_t global_rows) {
  nn::Plan& plan = *parts_.plan;
  const bool last = index + 1 == micro_batches_;
  if (index == 0 && guard_.has_value()) guard_->Begin();
  plan.Forward(rows, /*training=*/true);
  {
    const Stopwatch stopwatch(loss_time_);
    RETURN_IF_ERROR(
        objective_->Queue(plan, rows, global_rows, /*training=*/true, control_->loss(index)));
  }
  if (!last) {
    plan.Backward(rows, nullptr);
    const bool first = index == 0;
    on_devices_ != nullptr ? on_devices_->Accumulate(first) : exchange_->Accumulate(first);
    return absl::OkStatus();
  }
  if (on_devices_ != nullptr) {
    on_devices_->ReduceLosses(control_->loss(0), micro_batches_);
    plan.Backward(rows, [this, index](size_t offset) {
      on_devices_->Ready(offset, /*accumulated=*/index > 0);
    });
    return on_devices_->Finish();
  }
  if (records_) {
    plan.Backward(rows, nullptr);
    return absl::OkStatus();
  }
  // A pipeline has no loss before its backward, and its replicas have it at their ends alone.
  const bool known = parts_.communicators.stages == nullptr;
  exchange_->Begin(known ? OwnLoss() : nn::LossResult(), /*accumulated=*/index > 0);
  plan.Backward(rows, [this](size_t offset) { exchange_->Ready(offset); });
  return absl::OkStatus();
}

nn::LossResult TrainingStep::OwnLoss() const {
  nn::LossResult sum;
  for (uint32_t part = 0; part < micro_batches_; ++part) {
    nn::LossResult loss;
    device_.CopyToHost(&loss, control_->loss(part), sizeof(loss));
    sum.loss_sum += loss.loss_sum;
    sum.correct += loss.correct;
  }
  return sum;
}

absl::Status TrainingStep::Exchange(StepTimes& times) {
  if (on_devices_ != nullptr) {
    RETURN_IF_ERROR(reducer_.status());
    return GroupStatus();
  }
  if (records_) exchange_->Begin(OwnLoss(), /*accumulated=*/micro_batches_ > 1);
  RETURN_IF_ERROR(parts_.plan->status());
  const SteadyTime backward_end = Now().steady;
  const absl::Duration computed = exchange_->kernel_time();
  RETURN_IF_ERROR(exchange_->Finish());
  RETURN_IF_ERROR(reducer_.status());
  nn::LossResult totals = exchange_->totals();
  if (parts_.communicators.stages != nullptr) {
    ASSIGN_OR_RETURN(totals, SumOverRanks(OwnLoss()));
  }
  device_.CopyToDevice(control_->loss(0), &totals, sizeof(totals));
  times.exposed_communication +=
      Now().steady - backward_end - (exchange_->kernel_time() - computed);
  if (!guard_.has_value()) return absl::OkStatus();
  {
    const Stopwatch stopwatch(own_kernel_time_);
    const Shares::Share own = OwnShare();
    guard_->Check(exchange_->gradients() + own.begin, own.count());
  }
  const Stopwatch stopwatch(times.exposed_communication);
  return guard_->Agree();
}

absl::StatusOr<nn::LossResult> TrainingStep::SumOverRanks(const nn::LossResult& loss) {
  double sums[] = {loss.loss_sum, loss.correct};
  RETURN_IF_ERROR(parts_.communicators.world
                      ->AllReduce(sums, sums, std::size(sums), collectives::DataType::kFloat64,
                                  collectives::ReduceOp::kSum)
                      ->Wait());
  return nn::LossResult{sums[0], sums[1]};
}

Shares::Share TrainingStep::OwnShare() const {
  if (shares_ != nullptr) return shares_->own();
  return {0, parts_.plan->parameter_elements()};
}

absl::Status TrainingStep::SumSquares() {
  const Shares::Share own = OwnShare();
  double* const sum = control_->SumOfSquares(gradients() + own.begin, own.count());
  if (sum == nullptr) return absl::OkStatus();
  if (shares_ != nullptr) return shares_->Sum(sum);
  collectives::Communicator* const stages = parts_.communicators.stages;
  if (stages == nullptr) return absl::OkStatus();
  double squares = 0;
  device_.CopyToHost(&squares, sum, sizeof(squares));
  RETURN_IF_ERROR(stages
                      ->AllReduce(&squares, &squares, 1, collectives::DataType::kFloat64,
                                  collectives::ReduceOp::kSum)
                      ->Wait());
  device_.CopyToDevice(sum, &squares, sizeof(squares));
  return absl::OkStatus();
}

absl::Status TrainingStep::Update(StepTimes& times) {
  constexpr StepGraphs::Key kUpdate = {~uint64_t{0}};
  const Shares::Share own = OwnShare();
  // What the process has to wait for cannot be recorded.
  const bool by_process = shares_ != nullptr && on_devices_ == nullptr;
  if (by_process) {
    const Stopwatch stopwatch(times.exposed_communication);
    RETURN_IF_ERROR(SumSquares());
  }
  {
    const Stopwatch stopwatch(own_kernel_time_);
    RETURN_IF_ERROR(graphs_.Run(kUpdate, [&]() -> absl::Status {
      if (on_devices_ != nullptr && guard_.has_value()) {
        guard_->Check(gradients() + own.begin, own.count());
        // Devices that have the same sums, to the bit, have the same answer.
        if (shares_ != nullptr) RETURN_IF_ERROR(shares_->AllOf(guard_->own_finite()));
      }
      if (!by_process) RETURN_IF_ERROR(SumSquares());
      const collectives::Communicator* const devices = parts_.communicators.devices;
      control_->Decide(guard_.has_value() ? guard_->finite() : nullptr,
                       devices != nullptr ? devices->failed_flag() : nullptr);
      if (guard_.has_value()) guard_->Restore(control_->scalars());
      if (sharded_ != nullptr) return absl::OkStatus();
      Optimize(own.begin, own.end);
      if (by_process) return absl::OkStatus();
      if (shares_ != nullptr) RETURN_IF_ERROR(shares_->Gather());
      parts_.state->UpdateAverage(control_->scalars());
      return absl::OkStatus();
    }));
  }
  if (by_process) {
    {
      const Stopwatch stopwatch(times.exposed_communication);
      RETURN_IF_ERROR(shares_->Gather());
    }
    const Stopwatch stopwatch(own_kernel_time_);
    parts_.state->UpdateAverage(control_->scalars());
  }
  if (sharded_ == nullptr) return absl::OkStatus();
  const absl::Duration computed = sharded_->kernel_time();
  const SteadyTime start = Now().steady;
  RETURN_IF_ERROR(sharded_->Run(control_->scalars()));
  times.exposed_communication += Now().steady - start - (sharded_->kernel_time() - computed);
  const Stopwatch stopwatch(own_kernel_time_);
  parts_.state->UpdateAverage(control_->scalars());
  return absl::OkStatus();
}

// By the plan's threads together, where it has some and their work can be divided.
void TrainingStep::Optimize(size_t begin, size_t end) {
  constexpr size_t kLine = 16;  // elements, so that no two threads write to the same
  float* const parameters = parts_.state->parameters();
  const float* const gradients = this->gradients();
  const auto update = [&](size_t from, size_t to) {
    parts_.optimizer->StepPart(control_->scalars(), from, to - from, parameters + from,
                               gradients + from);
  };
  kernels::ThreadPool* const threads = parts_.plan->threads();
  if (threads == nullptr || !device_.host_memory() || !parts_.optimizer->elementwise()) {
    // Of everything the same as Step.
    update(begin, end);
    return;
  }
  const auto count = static_cast<size_t>(threads->threads());
  const size_t lines = (end - begin + kLine - 1) / kLine;
  threads->Run([&](int part) {
    const auto at = [&](size_t share) {
      return std::min(begin + lines * share / count * kLine, end);
    };
    update(at(static_cast<size_t>(part)), at(static_cast<size_t>(part) + 1));
  });
}

TrainingStep::StepPartTimes TrainingStep::SpentInParts() const {
  StepPartTimes spent;
  const absl::Span<const nn::PlanPart> parts = parts_.plan->parts();
  if (parts.empty()) return spent;
  for (size_t part = 0; part < parts.size(); ++part) {
    spent[part < kLossPart ? part : part + 1] = parts[part].spent;
  }
  spent[kLossPart] = loss_time_;
  return spent;
}

absl::StatusOr<std::optional<StepResult>> TrainingStep::TakeOutcome(bool wait) {
  wait |= control_->pending() == UpdateController::kStepsAhead;
  if (wait) RETURN_IF_ERROR(AwaitNextOutcome());
  ASSIGN_OR_RETURN(const std::optional<kernels::StepRecord> record, control_->Read(wait));
  if (!record.has_value()) return std::nullopt;
  // After the record of a step is written, shares are still gathered.
  if (shares_ != nullptr) RETURN_IF_ERROR(GroupStatus());
  if (record->failed != 0) {
    RETURN_IF_ERROR(GroupStatus());
    return absl::InternalError("a step whose gradients were not exchanged");
  }
  const Queued& queued = queued_[next_outcome_++ % queued_.size()];
  const auto rows = static_cast<double>(queued.global_rows);
  StepResult outcome;
  outcome.step = queued.step;
  outcome.loss = record->loss.loss_sum / rows;
  outcome.accuracy = record->loss.correct / rows;
  outcome.learning_rate = queued.learning_rate;
  outcome.skipped = record->skipped != 0;
  if (parts_.spec->optimizer().clip_norm() > 0 && !outcome.skipped) {
    outcome.gradient_norm = record->gradient_norm;
  }
  if (loss_scale_.has_value()) loss_scale_ = record->loss_scale;
  if (record->diverged != 0) return DivergedAt(outcome);
  return outcome;
}

absl::Status TrainingStep::GroupStatus() const {
  RETURN_IF_ERROR(parts_.communicators.world->status());
  if (parts_.communicators.devices == nullptr) return absl::OkStatus();
  return parts_.communicators.devices->status();
}

absl::Status TrainingStep::AwaitNextOutcome() {
  collectives::Communicator* const devices = parts_.communicators.devices;
  if (on_devices_ == nullptr || devices == nullptr || control_->pending() == 0) {
    return absl::OkStatus();
  }
  return AwaitOutcome([this] { return control_->Known(); }, [this] { return GroupStatus(); },
                      *devices, devices->timeout(),
                      queued_[next_outcome_ % queued_.size()].step + 1);
}

void TrainingStep::KeepOwnOptimizerStates() {
  if (!KeepsShares(parts_)) {
    parts_.optimizer->KeepAll();
    return;
  }
  const Shares& shares = sharded_ != nullptr ? sharded_->shares() : shares_->shares();
  const Shares::Share own = shares.of(parts_.communicators.equals()->rank());
  parts_.optimizer->KeepShare(own.begin, own.count());
}

absl::StatusOr<TrainingStep::WholeStates> TrainingStep::GatherOptimizerStates() {
  if (KeepsShares(parts_)) {
    const Shares& shares = sharded_ != nullptr ? sharded_->shares() : shares_->shares();
    ASSIGN_OR_RETURN(
        std::vector<OptimizerState> gathered,
        GatherStates(*parts_.communicators.equals(), device_, *parts_.optimizer, shares));
    return WholeStates(std::move(gathered));
  }
  if (sharded_ != nullptr) RETURN_IF_ERROR(sharded_->GatherStates());
  return WholeStates(parts_.optimizer->states());
}

absl::Status TrainingStep::DivergedAt(const StepResult& outcome) const {
  if (!loss_scale_.has_value()) {
    return Diverged(absl::StrCat("the loss of step ", outcome.step + 1, " is ", outcome.loss));
  }
  return Diverged(absl::StrCat(
      "the loss of step ", outcome.step + 1, ", which is ", outcome.loss,
      ", or its gradients overflowed, as in the ", kernels::kLossScalePatience - 1,
      " steps before, with a loss scale of ", loss_scale_->scale, " that cannot fall"));
}

void TrainingStep::RestoreLossScale(const LossScaleState& state) {
  loss_scale_ = RestoredLossScale(parts_.spec->mixed_precision().loss_scale(), state);
  control_->SetLossScale(*loss_scale_);
}

uint64_t TrainingStep::Updates(uint64_t steps) const {
  return loss_scale_.has_value() ? steps - std::min(steps, loss_scale_->skipped_steps) : steps;
}

uint64_t TrainingStep::collectives() const {
  const bool clips = parts_.spec->optimizer().clip_norm() > 0;
  const uint64_t of_shares = shares_ == nullptr ? 0 : (clips ? 2 : 1);
  if (on_devices_ != nullptr) {
    const bool agree = shares_ != nullptr && guard_.has_value();
    return on_devices_->operations() + of_shares + (agree ? 1 : 0);
  }
  const bool agrees = guard_.has_value() && parts_.communicators.world->size() > 1;
  // The loss, and the sum of squares.
  const uint64_t of_stages = parts_.communicators.stages == nullptr ? 0 : (clips ? 2 : 1);
  return exchange_->operations() + (agrees ? 1 : 0) + (sharded_ != nullptr ? 1 : 0) + of_shares +
         of_stages;
}

absl::Duration TrainingStep::KernelTime() const {
  return parts_.plan->kernel_time() + objective_->kernel_time() +
         (exchange_ != nullptr ? exchange_->kernel_time() : absl::ZeroDuration()) +
         (sharded_ != nullptr ? sharded_->kernel_time() : absl::ZeroDuration()) + own_kernel_time_;
}

}  // namespace muster::train
