#include "trainer/strategy/strategy_base.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/limits.h"
#include "common/status.h"
#include "common/time/deadline.h"
#include "glog/logging.h"
#include "trainer/exit_code.h"
#include "trainer/strategy/gather_summaries.h"
#include "trainer/strategy/shares.h"

namespace muster::train {
namespace {

// Whether the replicas share memory. Summing float32 through shared memory is faster than rounding
// it first.
bool SharesMemory(const ProcessGroups& groups, const collectives::Communicator& replicas) {
  return replicas.size() == 1 || (replicas.backend() == "shm" && groups.devices == nullptr);
}

// Time for a device to end its work once a peer is lost, and the pause between two looks at it.
constexpr absl::Duration kDevicePatience = absl::Seconds(2);
constexpr absl::Duration kDevicePoll = absl::Milliseconds(1);

}  // namespace

absl::StatusOr<std::unique_ptr<Optimizer>> CreateOptimizer(const ModelSetup& setup,
                                                           const nn::Plan& plan) {
  return Optimizer::Create(setup.spec->optimizer(), plan.parameters(),
                           {.round_to = setup.precision.weights,
                            .device = &plan.device(),
                            .deferred = setup.spec->strategy().shard_optimizer()});
}

StrategyBase::StrategyBase(const StrategyContext& context, collectives::Communicator* replicas,
                           nn::Plan* plan, std::unique_ptr<Optimizer> optimizer, ModelState state)
    : context_(context),
      precision_(ChooseGradients(context.precision, SharesMemory(*context.groups, *replicas))),
      replicas_(*replicas),
      plan_(*plan),
      optimizer_(std::move(optimizer)),
      state_(std::move(state)) {}

BatchShare StrategyBase::batch_share() const {
  return {.index = replicas_.rank(), .count = replicas_.size()};
}

StepParts StrategyBase::PartsOfStep() {
  StepParts parts;
  parts.context = &context_;
  parts.replicas = &replicas_;
  parts.plan = &plan_;
  parts.optimizer = optimizer_.get();
  parts.state = &state_;
  parts.controller = controller_.get();
  parts.precision = precision_;
  return parts;
}

absl::Status StrategyBase::InitializeState() {
  plan_.Initialize(spec().seed());
  if (!spec().init_from().empty()) {
    RETURN_IF_ERROR(ReadInitialModel(spec().init_from(),
                                     {spec().init_exclude().begin(), spec().init_exclude().end()}));
  }
  return FinishState(/*root=*/0, /*resuming=*/false);
}

absl::Status StrategyBase::RestoreState(const CheckpointFiles& files, uint32_t root) {
  RETURN_IF_ERROR(optimizer_->KeepAll());  // checkpoints contain all states
  if (world().rank() == root && loss_scale() != nullptr && files.loss_scale.has_value()) {
    controller_->RestoreLossScale(*files.loss_scale);
  }
  RETURN_IF_ERROR(ReadCheckpoint(files, root));
  LOG_IF(INFO, world().rank() == root)
      << "resumed from " << (files.parts.empty() ? files.model : "memory");
  RETURN_IF_ERROR(controller_->BroadcastLossScale(root));
  return FinishState(root, /*resuming=*/true);
}

absl::Status StrategyBase::FinishState(uint32_t root, bool resuming) {
  RETURN_IF_ERROR(BroadcastState(root, resuming));
  RETURN_IF_ERROR(path_.update->KeepOwnOptimizerStates());
  // The file may have a higher precision than the weights.
  RETURN_IF_ERROR(state_.RoundParameters(precision_.weights));
  // Initial value until the first update. If the first step overflows, a later one updates first.
  if (!resuming) state_.StartAverage();
  return absl::OkStatus();
}

absl::Status StrategyBase::ReadInitialModel(const std::string& path,
                                            const std::vector<std::string>& excluded) {
  if (world().rank() != 0) return absl::OkStatus();
  return WithExitCode(state_.InitializeFrom(path, excluded), kExitNoInput);
}

absl::Status StrategyBase::ReadCheckpoint(const CheckpointFiles& files, uint32_t root) {
  if (!files.parts.empty()) return GatherParts(files, root);
  if (world().rank() != root) return absl::OkStatus();
  RETURN_IF_ERROR(state_.ImportModel(files.model));
  RETURN_IF_ERROR(state_.ImportOptimizer(files.optimizer));
  if (!files.average.empty()) return state_.ImportAverage(files.average);
  state_.StartAverage();
  return absl::OkStatus();
}

absl::Status StrategyBase::GatherParts(const CheckpointFiles& files, uint32_t root) {
  const uint32_t own = world().rank();
  const auto parts = static_cast<uint32_t>(files.parts.size());
  for (uint32_t index = 0; index < parts; ++index) {
    const MemoryPart& part = files.parts[index];
    const std::vector<StateArray> arrays = state_.Arrays(PartRange(index, parts));
    if (own == part.rank) RETURN_IF_ERROR(ReadArrays(files, part, arrays));
    if (part.rank == root || (own != part.rank && own != root)) continue;
    for (const StateArray& array : arrays) {
      if (array.bytes == 0) continue;
      constexpr auto kType = collectives::DataType::kUint8;
      RETURN_IF_ERROR(own == root ? world().Recv(array.data, array.bytes, kType, part.rank)->Wait()
                                  : world().Send(array.data, array.bytes, kType, root)->Wait());
    }
  }
  return absl::OkStatus();
}

absl::Status StrategyBase::ReadArrays(const CheckpointFiles& files, const MemoryPart& part,
                                      const std::vector<StateArray>& arrays) {
  if (device().host_memory()) return files.memory->Read(part.checkpoint, arrays);
  std::vector<std::vector<uint8_t>> copies;
  std::vector<StateArray> on_host = arrays;
  for (StateArray& array : on_host) array.data = copies.emplace_back(array.bytes).data();
  RETURN_IF_ERROR(files.memory->Read(part.checkpoint, on_host));
  for (size_t i = 0; i < arrays.size(); ++i) {
    device().CopyToDevice(arrays[i].data, on_host[i].data, arrays[i].bytes);
  }
  return device().Synchronize();
}

TensorRange StrategyBase::PartRange(uint32_t part, uint32_t parts) const {
  const Shares::Share share = Shares(plan_.parameter_elements(), parts).of(part);
  return {.begin = share.begin, .end = share.end, .buffers = part == 0};
}

absl::Status StrategyBase::KeepState() {
  // A strategy that drives several devices has arrays on all of them.
  keeps_complete_state_ = world().size() > 1 && path_.update->keeps_complete_state() &&
                          (device().host_memory() || devices().size() == 1);
  return keeps_complete_state_ ? state_.PrepareToKeepBuffers() : absl::OkStatus();
}

void StrategyBase::BeginState(uint64_t global_samples) {
  step_samples_ = global_samples;
  if (keeps_complete_state_) state_.KeepBuffers();
  in_step_ = true;
}

absl::StatusOr<WholeState> StrategyBase::CompleteUpdate() {
  if (!keeps_complete_state_) return Strategy::CompleteState();
  WholeState state;
  if (!device().host_memory()) RETURN_IF_ERROR(DrainDevice());
  const std::optional<bool> updated = path_.update->CompleteState();
  if (!updated.has_value()) {
    return absl::FailedPreconditionError("its update was interrupted where it cannot be completed");
  }
  if (in_step_ && !*updated) state_.RestoreBuffers();
  state.after_failed_step = *updated;
  if (*updated) controller_->FinishStep(step_samples_);
  ASSIGN_OR_RETURN(state.unfinished_steps, controller_->TakeResults(state.results));
  return state;
}

absl::Status StrategyBase::DrainDevice() {
  // Ends kernels that wait for a peer. Updates that are queued behind them see the failure.
  absl::Status failure = context_.groups->status();
  if (failure.ok()) failure = absl::AbortedError("a peer was lost");
  context_.groups->AbortDevices(failure);
  const std::unique_ptr<kernels::DeviceEvent> end = device().MakeEvent();
  end->Record();
  const Deadline patience(kDevicePatience);
  while (!end->Done()) {
    RETURN_IF_ERROR(device().error());
    if (patience.passed()) {
      return absl::DeadlineExceededError(absl::StrCat(device().name(), " has not answered for ",
                                                      absl::FormatDuration(kDevicePatience)));
    }
    absl::SleepFor(kDevicePoll);
  }
  return device().error();
}

absl::Status StrategyBase::AddArrays(const std::vector<StateArray>& arrays, WholeState& state) {
  state.arrays = arrays;
  if (device().host_memory()) return absl::OkStatus();
  state.files.reserve(arrays.size());
  for (StateArray& array : state.arrays) {
    std::string& copy = state.files.emplace_back(array.bytes, '\0');
    device().CopyToHost(copy.data(), array.data, array.bytes);
    array.data = copy.data();
  }
  return device().error();
}

absl::Status StrategyBase::BroadcastState(uint32_t root, bool resuming) {
  return state_.Broadcast(world(), root,
                          {.resuming = resuming, .canonical = context_.canonical_layout});
}

absl::Status StrategyBase::SnapshotState(uint64_t steps, StateSnapshot& snapshot) {
  return SnapshotRange(
      steps, CheckpointRanges::AllOnFirst(plan_.parameter_elements(), replicas_.size()), snapshot);
}

CheckpointPart StrategyBase::checkpoint_part() const {
  CheckpointPart part;
  if (world().rank() == 0) part.index = 0;
  return part;
}

absl::Status StrategyBase::SnapshotRange(uint64_t steps, const CheckpointRanges& ranges,
                                         StateSnapshot& snapshot) {
  const Shares::Share own = ranges.of(replicas_.rank());
  snapshot.Begin(&plan_, {.begin = own.begin, .end = own.end, .buffers = replicas_.rank() == 0},
                 TrainedBatches(steps));
  RETURN_IF_ERROR(state_.CopyTo(snapshot));
  RETURN_IF_ERROR(path_.update->CopyOptimizerStates(ranges, snapshot));
  // Returns the error of a copy that failed.
  return device().Synchronize();
}

absl::StatusOr<Evaluation> StrategyBase::Evaluate(const data::ImageDataset& dataset,
                                                  const data::TransformOptions& transform) {
  data::InputWriter input(dataset.info(), device());
  const auto loss = [&](const data::Batch& batch, uint64_t global_samples) {
    return EvaluateBatch(batch, global_samples, input);
  };
  const uint32_t threads = std::max(1u, spec().loader().threads());
  const auto evaluate = [&]() -> absl::StatusOr<Evaluation> {
    if (objective_->views() == 1) {
      const BatchShare share = batch_share();
      EvaluationOptions options;
      options.transform = transform;
      options.max_samples = context_.max_samples;
      options.slice = share.index;
      options.slices = share.count;
      options.own_slices = share.slices;
      options.labels_only = share.labels_only;
      options.threads = threads;
      options.stop_requested = context_.stop_requested;
      options.progress = context_.evaluation_progress;
      const auto sum = [&](absl::Span<const nn::LossResult> own) { return SumLosses(own); };
      return EvaluateDataset(dataset, options, device(), world(), loss, sum);
    }
    ContrastiveEvaluationOptions options;
    options.transform = transform;
    options.global_batch = spec().global_batch();
    options.slices = controller_->accumulation_steps();
    options.views = objective_->views();
    options.seed = spec().seed();
    options.threads = threads;
    options.stop_requested = context_.stop_requested;
    options.progress = context_.evaluation_progress;
    return EvaluateContrastive(dataset, options, device(), world(), loss);
  };
  Evaluation evaluation;
  RETURN_IF_ERROR(state_.WithAverage([&]() -> absl::Status {
    RETURN_IF_ERROR(state_.BroadcastBuffers(replicas_, 0));
    ASSIGN_OR_RETURN(evaluation, evaluate());
    return absl::OkStatus();
  }));
  return evaluation;
}

v1::DeviceUse& StrategyBase::AddDevice(v1::TrainSummary& own, const nn::Plan& plan,
                                       absl::Duration busy) const {
  v1::DeviceUse& use = *own.add_devices();
  use.set_rank(world().rank());
  use.set_node(context_.node_name);
  use.set_device(plan.device().name());
  use.set_parameter_bytes(plan.parameter_elements() * sizeof(float));
  use.set_gradient_bytes(use.parameter_bytes());
  use.set_activation_bytes(plan.arena_bytes());
  use.set_busy_seconds(absl::ToDoubleSeconds(busy));
  if (own.devices_size() > 1) return use;
  for (const OptimizerState& state : optimizer_->states()) {
    use.set_optimizer_bytes(use.optimizer_bytes() + state.values.bytes());
  }
  return use;
}

void StrategyBase::DescribeRank(v1::TrainSummary& own) const {
  AddDevice(own, plan_, busy_.SteadyMedian()[0]);
}

absl::Status StrategyBase::Summarize(v1::TrainSummary& summary) {
  RETURN_IF_ERROR(SummarizeWeights(summary));
  v1::TrainSummary own;
  DescribeRank(own);
  ASSIGN_OR_RETURN(const std::vector<v1::TrainSummary> ranks, GatherSummaries(world(), own));
  for (const v1::TrainSummary& rank : ranks) {
    for (const v1::DeviceUse& use : rank.devices()) {
      if (summary.devices_size() < limits::kRecordedDevices) *summary.add_devices() = use;
    }
  }
  MergeRanks(ranks, summary);
  return absl::OkStatus();
}

absl::Status StrategyBase::SummarizeWeights(v1::TrainSummary& summary) {
  std::vector<Tensor> parameters = state_.ExportParameters();
  const std::string own = ModelState::WeightsDigest(parameters);
  ASSIGN_OR_RETURN(const uint32_t differing, CountDiffering(world(), replicas_, own));
  LOG_IF(ERROR, differing > 0 && world().rank() == 0)
      << differing << " of " << world().size()
      << " ranks ended with weights that differ from those of their first replica";
  summary.set_differing_replicas(differing);
  summary.set_weights_digest(own);
  if (replicas_.rank() == 0) {
    const size_t own_tensors = parameters.size();
    ASSIGN_OR_RETURN(parameters, GatherTensors(std::move(parameters)));
    if (parameters.size() != own_tensors) {
      summary.set_weights_digest(ModelState::WeightsDigest(parameters));
    }
  }
  uint64_t count = 0;
  for (const Tensor& tensor : parameters) {
    count += std::get<std::vector<float>>(tensor.values).size();
  }
  summary.set_parameters(count);
  return absl::OkStatus();
}

}  // namespace muster::train
