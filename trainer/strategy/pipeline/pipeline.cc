#include "trainer/strategy/pipeline/pipeline.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/pipeline/schedule.h"
#include "common/status.h"
#include "trainer/data/sampler.h"
#include "trainer/device_status.h"
#include "trainer/exit_code.h"
#include "trainer/strategy/pipeline/pipeline_stage.h"
#include "trainer/strategy/pipeline/stage_cuts.h"
#include "trainer/strategy/pipeline/stage_reducers.h"
#include "trainer/strategy/pipeline/stage_tensors.h"
#include "trainer/strategy/stopwatch.h"
#include "trainer/strategy/strategy_base.h"

namespace muster::train {
namespace {

using pipeline::PipelineStage;
using pipeline::StageTimes;

class Pipeline final : public StrategyBase {
 public:
  static absl::StatusOr<std::unique_ptr<Strategy>> Create(const StrategyContext& context,
                                                          const nn::Graph& whole_model,
                                                          std::unique_ptr<PipelineStage> stage,
                                                          std::unique_ptr<Optimizer> optimizer) {
    ASSIGN_OR_RETURN(ModelState state, ModelState::Create(&stage->plan(), optimizer.get(),
                                                          /*averages=*/context.spec->has_ema()));
    std::unique_ptr<Pipeline> strategy(
        new Pipeline(context, std::move(stage), std::move(optimizer), std::move(state)));
    RETURN_IF_ERROR(strategy->Build(whole_model));
    return strategy;
  }

  // Kernels that transfer to or from a lost stage must end before device memory is released.
  ~Pipeline() override {
    const absl::Status status = context_.groups->status();
    if (!status.ok()) context_.groups->AbortDevices(status);
  }

  BatchShare batch_share() const override {
    BatchShare share = StrategyBase::batch_share();
    share.labels_only = stage_->input() == nullptr;
    return share;
  }

  // The first replica of each stage writes the stage's tensors.
  CheckpointPart checkpoint_part() const override {
    CheckpointPart part{.count = pipeline_group().size()};
    if (replicas_.rank() == 0) part.index = pipeline_group().rank();
    return part;
  }

  // The layouts of other stages are unknown to rank 0, so that these stages convert their tensors
  // before they send them.
  absl::Status SnapshotState(uint64_t steps, StateSnapshot& snapshot) override {
    RETURN_IF_ERROR(SnapshotPart(steps, snapshot));
    if (replicas_.rank() > 0) return absl::OkStatus();
    ModelTensors own;
    if (pipeline_group().rank() > 0) own = snapshot.Convert();
    ModelTensors others;
    ASSIGN_OR_RETURN(others.model, GatherTensors(std::move(own.model)));
    ASSIGN_OR_RETURN(others.optimizer, GatherTensors(std::move(own.optimizer)));
    ASSIGN_OR_RETURN(others.average, GatherTensors(std::move(own.average)));
    snapshot.AddTensors(std::move(others));
    return absl::OkStatus();
  }

  absl::Status SnapshotPart(uint64_t steps, StateSnapshot& snapshot) override {
    return StrategyBase::SnapshotState(steps, snapshot);
  }

  absl::Status Step(const data::Batch& batch, uint64_t step, StepTimes& times) override {
    const absl::Duration computed_before = kernel_time();
    const StageTimes stage_before = stage_->times();
    const uint64_t global_samples = batch.global_samples * batch.views;
    RETURN_IF_ERROR(controller_->BeginStep(step));
    BeginState(global_samples);
    {
      const Stopwatch stopwatch(input_time_);
      RETURN_IF_ERROR(input_.Write(batch, stage_->input(), stage_->labels()));
    }
    const auto samples = static_cast<uint32_t>(batch.samples);
    stage_->BeginStep(samples, {spec().seed(), step, batch.first_sample * uint64_t{batch.views}});
    RETURN_IF_ERROR(captures_passes_ ? graphs_.Run({0, samples, global_samples},
                                                   [&] { return ForwardBackward(global_samples); })
                                     : ForwardBackward(global_samples));
    RETURN_IF_ERROR(path_.reducer->Finish(times));
    RETURN_IF_ERROR(path_.update->Run(times));
    EndState();
    controller_->FinishStep(global_samples);
    const absl::Duration computed = kernel_time() - computed_before;
    times.kernels += computed;
    RecordBusy(computed);
    RecordStage(stage_before, stage_->times());
    return absl::OkStatus();
  }

  // The tensors of the stage, because the next generation may cut the model elsewhere.
  absl::StatusOr<WholeState> CompleteState() override {
    ASSIGN_OR_RETURN(WholeState left, CompleteUpdate());
    AddFiles(state_.Export(), left);
    RETURN_IF_ERROR(device().error());
    left.part = pipeline_group().rank();
    left.parts = pipeline_group().size();
    return left;
  }

 protected:
  absl::StatusOr<nn::LossResult> EvaluateBatch(const data::Batch& batch, uint64_t global_samples,
                                               data::InputWriter& input) override {
    RETURN_IF_ERROR(input.Write(batch, stage_->input(), stage_->labels()));
    ASSIGN_OR_RETURN(
        const nn::LossResult loss,
        stage_->Evaluate(static_cast<uint32_t>(batch.samples),
                         [&](nn::Plan& plan, uint32_t samples, nn::LossResult* result) {
                           return objective_->Queue(plan, samples, global_samples,
                                                    /*training=*/false, result);
                         }));
    // Devices do not report a transfer that was cut short.
    RETURN_IF_ERROR(context_.groups->status());
    return loss;
  }

  uint32_t batches_per_step() const override {
    return spec().strategy().pipeline().micro_batches();
  }

  // Every rank reads its tensors from the root's files.
  absl::Status ReadInitialModel(const std::string& path,
                                const std::vector<std::string>& excluded) override {
    const absl::StatusOr<TensorSet> file = OpenOnAllRanks(world(), /*root=*/0, path);
    // The root reports the cause.
    if (absl::IsAborted(file.status())) return file.status();
    RETURN_IF_ERROR(WithExitCode(file.status(), kExitNoInput));
    return WithExitCode(state_.InitializeFrom(*file, excluded), kExitNoInput);
  }

  absl::Status ReadCheckpoint(const CheckpointFiles& files, uint32_t root) override {
    if (!files.parts.empty()) return ReadParts(files);
    ASSIGN_OR_RETURN(const TensorSet model, OpenOnAllRanks(world(), root, files.model));
    RETURN_IF_ERROR(state_.ImportModel(model));
    ASSIGN_OR_RETURN(const TensorSet optimizer, OpenOnAllRanks(world(), root, files.optimizer));
    RETURN_IF_ERROR(state_.ImportOptimizer(optimizer));
    uint8_t has_average = files.average.empty() ? 0 : 1;
    RETURN_IF_ERROR(
        world().Broadcast(&has_average, 1, collectives::DataType::kUint8, root)->Wait());
    if (has_average == 0) {
      state_.StartAverage();
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(const TensorSet average, OpenOnAllRanks(world(), root, files.average));
    return state_.ImportAverage(average);
  }

  absl::Status ReadParts(const CheckpointFiles& files) {
    ASSIGN_OR_RETURN(const ReadTensors tensors, ReadPartsOnAllRanks(world(), files));
    RETURN_IF_ERROR(state_.ImportModel(tensors.model));
    RETURN_IF_ERROR(state_.ImportOptimizer(tensors.optimizer));
    return state_.ImportAverage(tensors.average);
  }

  // Not needed: all replicas of a stage initialized or read the same values.
  absl::Status BroadcastState(uint32_t, bool) override { return absl::OkStatus(); }

  absl::StatusOr<std::vector<Tensor>> GatherTensors(std::vector<Tensor> own) override {
    return GatherStageTensors(pipeline_group(), std::move(own));
  }

  void DescribeRank(v1::TrainSummary& own) const override {
    StrategyBase::DescribeRank(own);
    v1::DeviceUse& device = *own.mutable_devices(0);
    device.set_gradient_bytes(device.gradient_bytes() + stage_->accumulated_bytes());
    device.set_activation_bytes(device.activation_bytes() + stage_->batch_bytes());
    const std::vector<absl::Duration> medians = stage_statistics_.TypicalMedian();
    v1::StageUse& use = *own.add_stages();
    use.set_stage(pipeline_group().rank());
    use.set_rank(world().rank());
    const std::vector<nn::OperationDescription> operations = plan_.Describe();
    use.set_first_layer(operations.front().name);
    use.set_last_layer(operations.back().name);
    use.set_forward_seconds(absl::ToDoubleSeconds(medians[0]));
    use.set_backward_seconds(absl::ToDoubleSeconds(medians[1]));
    use.set_waiting_seconds(absl::ToDoubleSeconds(medians[2]));
    use.set_span_seconds(absl::ToDoubleSeconds(medians[3]));
    use.set_activation_slots(stage_->in_flight_micro_batches());
    use.set_activation_bytes(stage_->activation_bytes());
    use.set_boundary_bytes(stage_->boundary_bytes());
  }

  void MergeRanks(const std::vector<v1::TrainSummary>& ranks, v1::TrainSummary& summary) override {
    double waiting = 0, span = 0;
    for (const v1::TrainSummary& rank : ranks) {
      for (const v1::StageUse& use : rank.stages()) {
        waiting += use.waiting_seconds();
        span += use.span_seconds();
        // Stages of the first replica only.
        if (use.rank() < pipeline_group().size()) *summary.add_stages() = use;
      }
    }
    if (span > 0) summary.set_bubble_ratio(waiting / span);
  }

 private:
  Pipeline(const StrategyContext& context, std::unique_ptr<PipelineStage> stage,
           std::unique_ptr<Optimizer> optimizer, ModelState state)
      : StrategyBase(context, context.groups->data_parallel_group.get(), &stage->plan(),
                     std::move(optimizer), std::move(state)),
        stage_(std::move(stage)),
        reduction_path_(ChooseReductionPath(context, replicas_, plan_, *optimizer_, precision_)),
        input_(*context.dataset, device()),
        // Processes cannot communicate within a captured step.
        graphs_(device(), world(),
                reduction_path_ == ReductionPath::kDevice && stage_->supports_graph_capture() &&
                    context.spec->cuda_graphs() != "never") {}

  absl::Status Build(const nn::Graph& whole_model) {
    ASSIGN_OR_RETURN(objective_,
                     Objective::Create(spec().objective(), *context_.groups, context_.max_samples,
                                       static_cast<int64_t>(plan_.logits(1).size()), device()));
    ASSIGN_OR_RETURN(
        controller_,
        StepController::Create(context_, device(), state_,
                               {.reduces_on_devices = reduction_path_ == ReductionPath::kDevice,
                                .buffer_elements = plan_.buffer_elements(),
                                .losses = stage_->micro_batches()}));
    objective_->set_loss_scale(controller_->loss_scale_factor());
    captures_passes_ = graphs_.enabled() && objective_->supports_graph_capture();
    StepParts parts = PartsOfStep();
    parts.graphs = &graphs_;
    parts.path = reduction_path_;
    parts.captures_passes = captures_passes_;
    ASSIGN_OR_RETURN(path_, CreateStagePath(parts));
    state_.BindGradients(path_.reducer->gradients());
    RETURN_IF_ERROR(KeepState());
    RETURN_IF_ERROR(path_.update->KeepOwnOptimizerStates());
    // A file of the whole model also contains the tensors of other stages.
    std::set<std::string, std::less<>> layers;
    for (const nn::Node& node : whole_model.nodes) layers.insert(node.name);
    state_.set_layers(std::move(layers));
    return absl::OkStatus();
  }

  // Forward and backward of all micro-batches, which may be captured as a graph. The last
  // micro-batch's backward completes the gradients, which are reduced over the replicas of this
  // stage as soon as they are written.
  absl::Status ForwardBackward(uint64_t global_samples) {
    controller_->BeginForward();
    path_.reducer->BeginBackward();
    RETURN_IF_ERROR(stage_->Train(
        [&](nn::Plan& plan, uint32_t samples, nn::LossResult* result) {
          return objective_->Queue(plan, samples, global_samples, /*training=*/true, result);
        },
        path_.reducer->gradients(),
        [this](size_t offset) { path_.reducer->GradientsReady(offset); }, controller_->loss(0)));
    return path_.reducer->EndBackward();
  }

  collectives::Communicator& pipeline_group() const { return *context_.groups->pipeline_group; }

  absl::Duration kernel_time() const {
    return stage_->kernel_time() + objective_->kernel_time() + path_.reducer->kernel_time() +
           path_.update->kernel_time() + input_time_;
  }

  // Records the times of one step.
  void RecordStage(const StageTimes& before, const StageTimes& after) {
    const auto micro_batches = static_cast<int64_t>(after.micro_batches - before.micro_batches);
    if (micro_batches == 0) return stage_statistics_.Add({{}, {}, {}, {}});
    stage_statistics_.Add({(after.forward - before.forward) / micro_batches,
                           (after.backward - before.backward) / micro_batches,
                           after.waiting - before.waiting, after.span - before.span});
  }

  const std::unique_ptr<PipelineStage> stage_;
  const ReductionPath reduction_path_;
  data::InputWriter input_;
  StepGraphs graphs_;
  bool captures_passes_ = false;
  // Per step: forward and backward time of a micro-batch, waiting for other stages, and total span.
  DurationStatistics stage_statistics_{4};
  absl::Duration input_time_;
};

absl::Status WithSpecExitCode(const absl::Status& status) {
  return absl::IsInvalidArgument(status) ? WithExitCode(status, kExitBadSpec) : status;
}

class PipelineSetup final : public StrategySetup {
 public:
  explicit PipelineSetup(const ModelSetup& setup)
      : setup_(setup), strategy_(setup.spec->strategy().pipeline()) {
    setup_.compiling.device = setup.devices.front();
  }

  absl::Status Check() const {
    return pipeline::CheckCuts(setup_.graph, strategy_.stages(), cuts());
  }

  // Layouts of different stages always differ; those of replicas differ if their kernels do.
  std::string layout_digest() const override { return setup_.compiling.device->kernels().name; }

  absl::StatusOr<std::unique_ptr<Strategy>> Connect(const StrategyContext& context) override {
    context.report_phase("choosing-stages");
    auto stage = CompileStage(*context.groups);
    if (!stage.ok()) return WithSpecExitCode(stage.status());
    auto optimizer = CreateOptimizer(setup_, (*stage)->plan());
    if (!optimizer.ok()) return WithSpecExitCode(optimizer.status());
    return Pipeline::Create(context, setup_.graph, *std::move(stage), *std::move(optimizer));
  }

 private:
  std::vector<std::string> cuts() const {
    return {strategy_.cuts().begin(), strategy_.cuts().end()};
  }

  absl::StatusOr<std::unique_ptr<PipelineStage>> CompileStage(const ProcessGroups& groups) const {
    collectives::Communicator& world = *groups.world;
    pipeline::PipelineOptions options;
    ASSIGN_OR_RETURN(options.place,
                     PipelinePlaceOf(world.rank(), world.size(), strategy_.stages()));
    ASSIGN_OR_RETURN(options.schedule, pipeline::ParseSchedule(strategy_.schedule()));
    options.micro_batches = strategy_.micro_batches();
    nn::CompileOptions measured = setup_.compiling;
    measured.max_batch = static_cast<uint32_t>(
        data::LargestShare(setup_.compiling.max_batch, options.micro_batches));
    const absl::StatusOr<std::vector<nn::NodeId>> begins =
        pipeline::StageBegins(setup_.graph, options.place, cuts(), measured, world);
    RETURN_IF_ERROR(WithDeviceExitCode(begins.status()));
    const uint32_t stage = options.place.stage;
    auto created = PipelineStage::Create(setup_.graph, (*begins)[stage], (*begins)[stage + 1],
                                         setup_.compiling, options, groups);
    RETURN_IF_ERROR(WithDeviceExitCode(created.status()));
    return created;
  }

  ModelSetup setup_;
  const v1::PipelineSpec& strategy_;
};

}  // namespace

BatchDivision PipelineDivision(const v1::TrainSpec& spec, uint32_t world_size) {
  const v1::PipelineSpec& pipeline = spec.strategy().pipeline();
  return {.shares = world_size / std::max(1u, pipeline.stages()),
          .micro_batches = std::max(1u, pipeline.micro_batches())};
}

RequiredGroups PipelineGroups(const v1::TrainSpec& spec) {
  return {.pipeline_stages = spec.strategy().pipeline().stages()};
}

absl::StatusOr<std::unique_ptr<StrategySetup>> SetUpPipeline(const ModelSetup& setup) {
  if (setup.spec->strategy().pipeline().stages() == 0) {
    return absl::InvalidArgumentError("train.strategy.pipeline.stages: must be at least 1, not 0");
  }
  auto pipeline = std::make_unique<PipelineSetup>(setup);
  RETURN_IF_ERROR(pipeline->Check());
  return pipeline;
}

}  // namespace muster::train
