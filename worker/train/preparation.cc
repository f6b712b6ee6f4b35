#include "worker/train/preparation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/build_id.h"
#include "common/sha256.h"
#include "common/spec/spec.h"
#include "common/status.h"
#include "common/version.h"
#include "worker/nn/graph.h"
#include "worker/nn/plan.h"
#include "worker/nn/replicated_plan.h"
#include "worker/train/data_options.h"
#include "worker/train/exit_code.h"
#include "worker/train/spec_plan.h"

namespace muster::train {
namespace {

// What this trainer does not do yet it refuses, rather than do something else.
absl::Status CheckSupported(const v1::TrainSpec& spec) {
  const auto unsupported = [](const char* field, const auto& value) {
    return absl::InvalidArgumentError(
        absl::StrCat("train.", field, ": ", value, " is not supported by this rank"));
  };
  const auto differs = [](const std::string& word, const char* known) {
    return !word.empty() && word != known;
  };
  if (differs(spec.strategy().name(), "ddp") && !spec::DrivesSeveralDevices(spec.strategy())) {
    return unsupported("strategy.name", spec.strategy().name());
  }
  return absl::OkStatus();
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

absl::StatusOr<std::unique_ptr<nn::Plan>> CompileFor(const v1::TrainSpec& spec,
                                                     const nn::Graph& graph,
                                                     nn::CompileOptions compiling,
                                                     const std::vector<kernels::Device*>& devices) {
  absl::StatusOr<std::unique_ptr<nn::Plan>> plan;
  if (spec::DrivesSeveralDevices(spec.strategy())) {
    plan = nn::ReplicatedPlan::Make(
        graph, compiling, {.devices = devices, .rows_per_sample = ViewsOf(spec.objective())});
  } else {
    compiling.device = devices.front();
    plan = nn::Compile(graph, compiling);
  }
  if (absl::IsNotFound(plan.status()) || absl::IsUnavailable(plan.status())) {
    return WithExitCode(plan.status(), kExitNoDevice);
  }
  return plan;
}

absl::StatusOr<std::unique_ptr<Preparation>> PrepareUnmarked(
    const v1::JobSpec& job, uint32_t world_size, const std::string& cache_dir,
    const std::vector<kernels::Device*>& devices) {
  const v1::TrainSpec& spec = job.train();
  RETURN_IF_ERROR(CheckSupported(spec));
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
  ASSIGN_OR_RETURN(const nn::Graph graph, GraphOf(spec, training->info()));
  ASSIGN_OR_RETURN(const TrainingPrecision precision, PrecisionOf(spec));
  ASSIGN_OR_RETURN(const nn::CompileOptions compiling, CompileOptionsOf(job, world_size));
  ASSIGN_OR_RETURN(auto plan, CompileFor(spec, graph, compiling, devices));
  kernels::Device& device = plan->device();
  ASSIGN_OR_RETURN(auto optimizer,
                   Optimizer::Create(spec.optimizer(), plan->parameters(),
                                     {.round_to = precision.weights,
                                      .device = &device,
                                      .deferred = spec.strategy().shard_optimizer()}));
  std::vector<v1::FingerprintEntry> fingerprint = Fingerprint(*training, *test, precision, device);
  return std::unique_ptr<Preparation>(
      new Preparation{spec, world_size, std::move(training), std::move(test), steps, total_steps,
                      schedule, precision, compiling.max_batch, std::move(plan),
                      std::move(optimizer), TrainingDigest(spec), std::move(fingerprint)});
}

}  // namespace

absl::StatusOr<std::unique_ptr<Preparation>> Prepare(const v1::JobSpec& spec, uint32_t world_size,
                                                     const std::string& cache_dir,
                                                     const std::vector<kernels::Device*>& devices) {
  auto preparation = PrepareUnmarked(spec, world_size, cache_dir, devices);
  if (absl::IsInvalidArgument(preparation.status())) {
    return WithExitCode(preparation.status(), kExitBadSpec);
  }
  return preparation;
}

}  // namespace muster::train
