#include "trainer/strategy/strategy_base.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "common/limits.h"
#include "common/status.h"
#include "glog/logging.h"
#include "trainer/exit_code.h"
#include "trainer/strategy/gather_summaries.h"

namespace muster::train {
namespace {

// Whether the replicas share memory. Summing float32 through shared memory is faster than rounding
// it first.
bool SharesMemory(const ProcessGroups& groups, const collectives::Communicator& replicas) {
  return replicas.size() == 1 || (replicas.backend() == "shm" && groups.devices == nullptr);
}

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
      << "resumed from " << (files.read_arrays ? "the memory of this node" : files.model);
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
  if (world().rank() != root) return absl::OkStatus();
  if (files.read_arrays) return files.read_arrays(state_.Arrays());
  RETURN_IF_ERROR(state_.ImportModel(files.model));
  RETURN_IF_ERROR(state_.ImportOptimizer(files.optimizer));
  if (!files.average.empty()) return state_.ImportAverage(files.average);
  state_.StartAverage();
  return absl::OkStatus();
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
