#include "trainer/loop/training_setup.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/build_id.h"
#include "common/pipeline/schedule.h"
#include "common/sha256.h"
#include "common/status.h"
#include "common/version.h"
#include "spec/spec.h"
#include "trainer/graph/graph.h"
#include "trainer/graph/plan.h"
#include "trainer/loop/data_options.h"
#include "trainer/loop/exit_code.h"
#include "trainer/loop/spec_plan.h"
#include "trainer/strategy/dp/replicated_plan.h"
#include "trainer/strategy/pipeline/stage_cuts.h"

namespace muster::train {
namespace {

// A strategy that this trainer does not know it refuses, rather than do something else.
absl::Status CheckStrategy(const v1::TrainSpec& spec) {
  const std::string& name = spec.strategy().name();
  const bool known = name.empty() || name == "ddp" || spec::DrivesSeveralDevices(spec.strategy()) ||
                     StagesOf(spec) > 0;
  if (known) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("train.strategy.name: ", name,
                                                 " is not supported by this rank",
                                                 name == "pipeline" ? " without stages" : ""));
}

// A longer training, another learning rate or another place for the data is still the same
// training.
std::string TrainingDigest(const v1::TrainSpec& spec) {
  v1::TrainSpec essential;
  *essential.mutable_model() = spec.model();
  *essential.mutable_dataset() = spec.dataset();
  essential.mutable_dataset()->clear_path();
  essential.mutable_dataset()->clear_center_crop();
  essential.mutable_dataset()->clear_resident();
  essential.set_global_batch(spec.global_batch());
  essential.set_image_size(spec.image_size());
  essential.mutable_optimizer()->set_name(spec.optimizer().name());
  essential.set_precision(spec.precision());
  if (spec.has_mixed_precision()) {
    essential.mutable_mixed_precision()->set_dtype(spec.mixed_precision().dtype());
  }
  *essential.mutable_objective() = spec.objective();
  *essential.mutable_augment() = spec.augment();
  essential.set_seed(spec.seed());
  essential.set_drop_last(spec.drop_last());
  essential.set_sync_batch_norm(spec.sync_batch_norm());
  essential.set_accumulation_steps(spec.accumulation_steps());
  // No maps in there, so that the text is the same everywhere.
  return Sha256Hex(essential.ShortDebugString());
}

std::vector<v1::FingerprintEntry> Fingerprint(const data::ImageDataset& training,
                                              const data::ImageDataset& test,
                                              const TrainingPrecision& precision,
                                              const kernels::Device& device) {
  // Enough digits to tell two data sets or builds apart, few enough to be read.
  constexpr size_t kShownDigits = 16;
  const auto split = [](const data::ImageDataset& images) {
    return absl::StrCat(images.size(), " images ", images.Digest().substr(0, kShownDigits));
  };
  std::vector<v1::FingerprintEntry> entries(4);
  const std::string build = BuildId().substr(0, kShownDigits);
  entries[0].set_name("muster-rank");
  entries[0].set_value(absl::StrCat(kSoftwareVersion, build.empty() ? "" : ", build ", build));
  entries[1].set_name("dataset");
  entries[1].set_value(absl::StrCat(training.info().name, ", ", split(training), " to train, ",
                                    split(test), " to test"));
  entries[2].set_name("precision");
  entries[2].set_value(PrecisionText(precision));
  entries[3].set_name("device");
  entries[3].set_value(device.host_memory() ? "cpu" : "gpu");
  return entries;
}

// A device that lacks a library says so where it is first asked for kernels.
absl::Status WithDeviceCode(const absl::Status& status) {
  const bool of_device = absl::IsNotFound(status) || absl::IsUnavailable(status);
  return of_device ? WithExitCode(status, kExitNoDevice) : status;
}

absl::Status MakeOptimizer(TrainingSetup& preparation) {
  ASSIGN_OR_RETURN(preparation.optimizer,
                   Optimizer::Create(preparation.spec.optimizer(), preparation.plan->parameters(),
                                     {.round_to = preparation.precision.weights,
                                      .device = &preparation.plan->device(),
                                      .deferred = preparation.spec.strategy().shard_optimizer()}));
  return absl::OkStatus();
}

absl::Status CompileWhole(TrainingSetup& preparation,
                          const std::vector<kernels::Device*>& devices) {
  const v1::TrainSpec& spec = preparation.spec;
  absl::StatusOr<std::unique_ptr<nn::Plan>> plan;
  if (spec::DrivesSeveralDevices(spec.strategy())) {
    plan = nn::ReplicatedPlan::Make(
        preparation.graph, preparation.compiling,
        {.devices = devices, .rows_per_sample = ViewsOf(spec.objective())});
  } else {
    plan = nn::Compile(preparation.graph, preparation.compiling);
  }
  RETURN_IF_ERROR(WithDeviceCode(plan.status()));
  preparation.plan = *std::move(plan);
  preparation.layout_digest = preparation.plan->layout_digest();
  return MakeOptimizer(preparation);
}

std::vector<std::string> CutsOf(const v1::TrainSpec& spec) {
  const auto& cuts = spec.strategy().pipeline().cuts();
  return {cuts.begin(), cuts.end()};
}

absl::StatusOr<std::unique_ptr<TrainingSetup>> PrepareUnmarked(
    const v1::JobSpec& job, uint32_t world_size, const std::string& cache_dir,
    const std::vector<kernels::Device*>& devices) {
  const v1::TrainSpec& spec = job.train();
  RETURN_IF_ERROR(CheckStrategy(spec));
  using OpenedDataset = absl::StatusOr<std::unique_ptr<data::ImageDataset>>;
  const auto open = [&](data::Split split) -> OpenedDataset {
    auto dataset = data::OpenDataset(DatasetOptionsOf(spec.dataset()), split, cache_dir);
    // What the spec alone shows is marked by the caller.
    if (dataset.ok() || absl::IsInvalidArgument(dataset.status())) return dataset;
    return WithExitCode(dataset.status(), kExitNoInput);
  };
  ASSIGN_OR_RETURN(auto training, open(data::Split::kTrain));
  ASSIGN_OR_RETURN(auto test, open(data::Split::kTest));
  ASSIGN_OR_RETURN(const data::StepMap steps,
                   data::StepMap::Create(training->size(), spec.global_batch(), spec.drop_last()));
  const uint64_t total_steps = TotalSteps(spec, steps.steps_per_epoch());
  ASSIGN_OR_RETURN(Schedule schedule,
                   Schedule::Create(spec.schedule(), spec.optimizer().learning_rate(), total_steps,
                                    steps.steps_per_epoch()));
  ASSIGN_OR_RETURN(nn::Graph graph, GraphOf(spec, training->info()));
  ASSIGN_OR_RETURN(const TrainingPrecision precision, PrecisionOf(spec));
  ASSIGN_OR_RETURN(nn::CompileOptions compiling, CompileOptionsOf(job, world_size));
  compiling.device = devices.front();
  std::vector<v1::FingerprintEntry> fingerprint =
      Fingerprint(*training, *test, precision, *compiling.device);
  auto preparation = std::make_unique<TrainingSetup>(TrainingSetup{
      .spec = spec,
      .world_size = world_size,
      .training = std::move(training),
      .test = std::move(test),
      .steps = steps,
      .total_steps = total_steps,
      .schedule = schedule,
      .precision = precision,
      .max_rows = compiling.max_batch,
      .graph = std::move(graph),
      .compiling = compiling,
      .training_digest = TrainingDigest(spec),
      .fingerprint = std::move(fingerprint),
  });
  if (StagesOf(spec) == 0) {
    RETURN_IF_ERROR(CompileWhole(*preparation, devices));
    return preparation;
  }
  // The stages' arrays differ in any case; those of replicas do where kernels do.
  preparation->layout_digest = compiling.device->kernels().name;
  RETURN_IF_ERROR(pipeline::CheckCuts(preparation->graph, StagesOf(spec), CutsOf(spec)));
  return preparation;
}

absl::Status CompileStageUnmarked(TrainingSetup& preparation, const pipeline::Groups& groups,
                                  collectives::Communicator& world) {
  const v1::TrainSpec& spec = preparation.spec;
  pipeline::PipelineOptions options;
  ASSIGN_OR_RETURN(options.place, pipeline::PlaceOf(world.rank(), world.size(), StagesOf(spec)));
  ASSIGN_OR_RETURN(options.schedule,
                   pipeline::ParseSchedule(spec.strategy().pipeline().schedule()));
  options.micro_batches = spec.strategy().pipeline().micro_batches();
  nn::CompileOptions measured = preparation.compiling;
  measured.max_batch = static_cast<uint32_t>(
      data::LargestShare(preparation.compiling.max_batch, options.micro_batches));
  const absl::StatusOr<std::vector<nn::NodeId>> begins =
      pipeline::StageBegins(preparation.graph, options.place, CutsOf(spec), measured, world);
  RETURN_IF_ERROR(WithDeviceCode(begins.status()));
  const uint32_t stage = options.place.stage;
  absl::StatusOr<std::unique_ptr<pipeline::PipelinePlan>> plan =
      pipeline::PipelinePlan::Make(preparation.graph, (*begins)[stage], (*begins)[stage + 1],
                                   preparation.compiling, options, groups);
  RETURN_IF_ERROR(WithDeviceCode(plan.status()));
  preparation.stage = plan->get();
  preparation.plan = *std::move(plan);
  return MakeOptimizer(preparation);
}

}  // namespace

absl::StatusOr<std::unique_ptr<TrainingSetup>> Prepare(
    const v1::JobSpec& spec, uint32_t world_size, const std::string& cache_dir,
    const std::vector<kernels::Device*>& devices) {
  auto preparation = PrepareUnmarked(spec, world_size, cache_dir, devices);
  if (absl::IsInvalidArgument(preparation.status())) {
    return WithExitCode(preparation.status(), kExitBadSpec);
  }
  return preparation;
}

absl::Status CompileStage(TrainingSetup& preparation, const pipeline::Groups& groups,
                          collectives::Communicator& world) {
  absl::Status status = CompileStageUnmarked(preparation, groups, world);
  return absl::IsInvalidArgument(status) ? WithExitCode(status, kExitBadSpec) : status;
}

}  // namespace muster::train
