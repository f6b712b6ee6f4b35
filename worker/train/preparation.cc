#include "worker/train/preparation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/sha256.h"
#include "common/status.h"
#include "common/version.h"
#include "worker/nn/model.h"
#include "worker/train/exit_code.h"

namespace muster::train {
namespace {

// What this trainer does not do yet it refuses, rather than do something else.
absl::Status CheckSupported(const v1::TrainSpec& spec, const data::DatasetInfo& dataset) {
  const auto unsupported = [](const char* field, const auto& value) {
    return absl::InvalidArgumentError(
        absl::StrCat("train.", field, ": ", value, " is not supported by this rank"));
  };
  const auto differs = [](const std::string& word, const char* known) {
    return !word.empty() && word != known;
  };
  if (differs(spec.optimizer().name(), "sgd")) {
    return unsupported("optimizer.name", spec.optimizer().name());
  }
  if (differs(spec.objective().name(), "cross_entropy")) {
    return unsupported("objective.name", spec.objective().name());
  }
  if (differs(spec.strategy().name(), "ddp")) {
    return unsupported("strategy.name", spec.strategy().name());
  }
  if (differs(spec.precision(), "O0")) return unsupported("precision", spec.precision());
  if (spec.image_size() != 0 &&
      (spec.image_size() != dataset.height || spec.image_size() != dataset.width)) {
    return unsupported("image_size", spec.image_size());
  }
  return absl::OkStatus();
}

// A longer training, another learning rate or another place for the data is still the same
// training.
std::string TrainingDigest(const v1::TrainSpec& spec) {
  v1::TrainSpec essential;
  *essential.mutable_model() = spec.model();
  essential.mutable_dataset()->set_name(spec.dataset().name());
  essential.set_global_batch(spec.global_batch());
  essential.set_image_size(spec.image_size());
  essential.mutable_optimizer()->set_name(spec.optimizer().name());
  essential.set_precision(spec.precision());
  *essential.mutable_objective() = spec.objective();
  *essential.mutable_augment() = spec.augment();
  essential.set_seed(spec.seed());
  essential.set_drop_last(spec.drop_last());
  // No maps in there, so that the text is the same everywhere.
  return Sha256Hex(essential.ShortDebugString());
}

std::vector<v1::FingerprintEntry> Fingerprint(const std::string& dataset,
                                              const data::ImageDataset& training,
                                              const data::ImageDataset& test) {
  // Enough digits to tell two data sets apart, few enough to be read.
  constexpr size_t kShownDigits = 16;
  const auto split = [](const data::ImageDataset& images) {
    return absl::StrCat(images.size(), " images ", images.Digest().substr(0, kShownDigits));
  };
  std::vector<v1::FingerprintEntry> entries(2);
  entries[0].set_name("version");
  entries[0].set_value(absl::StrCat("muster-rank ", kSoftwareVersion));
  entries[1].set_name("dataset");
  entries[1].set_value(
      absl::StrCat(dataset, ", ", split(training), " to train, ", split(test), " to test"));
  return entries;
}

absl::StatusOr<std::unique_ptr<nn::Plan>> CompileModel(const v1::TrainSpec& spec,
                                                       const data::DatasetInfo& dataset,
                                                       uint32_t max_rows, uint32_t threads) {
  const nn::ImageShape input{dataset.height, dataset.width, dataset.channels};
  ASSIGN_OR_RETURN(const nn::Graph graph, nn::BuildModel(spec.model(), input, dataset.classes));
  nn::CompileOptions options;
  options.max_batch = max_rows;
  options.threads = threads;
  return nn::Compile(graph, options);
}

absl::StatusOr<std::unique_ptr<Preparation>> PrepareUnmarked(const v1::JobSpec& job,
                                                             uint32_t world_size,
                                                             const std::string& cache_dir) {
  const v1::TrainSpec& spec = job.train();
  ASSIGN_OR_RETURN(const data::DatasetInfo info, data::FindDataset(spec.dataset().name()));
  RETURN_IF_ERROR(CheckSupported(spec, info));
  const auto open = [&](data::Split split) -> absl::StatusOr<data::ImageDataset> {
    auto dataset = data::ImageDataset::Open(info, spec.dataset().path(), split, cache_dir);
    if (!dataset.ok()) return WithExitCode(dataset.status(), kExitNoInput);
    return dataset;
  };
  ASSIGN_OR_RETURN(data::ImageDataset training, open(data::Split::kTrain));
  ASSIGN_OR_RETURN(data::ImageDataset test, open(data::Split::kTest));
  ASSIGN_OR_RETURN(const data::StepMap steps,
                   data::StepMap::Create(training.size(), spec.global_batch(), spec.drop_last()));
  const uint64_t total_steps = TotalSteps(spec, steps.steps_per_epoch());
  ASSIGN_OR_RETURN(Schedule schedule,
                   Schedule::Create(spec.schedule(), spec.optimizer().learning_rate(), total_steps,
                                    steps.steps_per_epoch()));
  const auto max_rows = static_cast<uint32_t>(data::LargestShare(spec.global_batch(), world_size));
  ASSIGN_OR_RETURN(auto plan, CompileModel(spec, info, max_rows,
                                           std::max(1u, job.resources().threads_per_rank())));
  std::vector<v1::FingerprintEntry> fingerprint = Fingerprint(info.name, training, test);
  return std::unique_ptr<Preparation>(new Preparation{
      spec, world_size, std::move(training), std::move(test), steps, total_steps, schedule,
      max_rows, std::move(plan), TrainingDigest(spec), std::move(fingerprint)});
}

}  // namespace

absl::StatusOr<std::unique_ptr<Preparation>> Prepare(const v1::JobSpec& spec, uint32_t world_size,
                                                     const std::string& cache_dir) {
  auto preparation = PrepareUnmarked(spec, world_size, cache_dir);
  if (absl::IsInvalidArgument(preparation.status())) {
    return WithExitCode(preparation.status(), kExitBadSpec);
  }
  return preparation;
}

}  // namespace muster::train
