#include "trainer/loop/training_setup.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/process/build_id.h"
#include "common/status.h"
#include "common/version.h"
#include "trainer/device_status.h"
#include "trainer/exit_code.h"
#include "trainer/loop/data_options.h"
#include "trainer/loop/spec_plan.h"
#include "trainer/strategy/create_strategy.h"

namespace muster::train {
namespace {

std::vector<v1::FingerprintEntry> Fingerprint(const data::ImageDataset& training,
                                              const data::ImageDataset& test,
                                              const TrainingPrecision& precision,
                                              const kernels::Device& device) {
  // Enough digits to distinguish datasets and builds, and short enough to read.
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

absl::StatusOr<std::unique_ptr<TrainingSetup>> SetUpWithoutExitCode(
    const v1::JobSpec& job, uint32_t world_size, const data::Cache& cache,
    const std::vector<kernels::Device*>& devices) {
  const v1::TrainSpec& spec = job.train();
  using OpenedDataset = absl::StatusOr<std::unique_ptr<data::ImageDataset>>;
  const auto open = [&](data::Split split) -> OpenedDataset {
    auto dataset = data::OpenDataset(DatasetOptionsOf(spec.dataset()), split, cache);
    // The caller adds the exit code for errors in the spec itself. That another process holds a
    // lock is not permanent.
    if (dataset.ok() || absl::IsInvalidArgument(dataset.status()) ||
        absl::IsDeadlineExceeded(dataset.status())) {
      return dataset;
    }
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
  const uint32_t shares = BatchDivisionOf(job, world_size).shares;
  std::vector<v1::FingerprintEntry> fingerprint =
      Fingerprint(*training, *test, precision, *devices.front());
  auto setup = std::make_unique<TrainingSetup>(TrainingSetup{
      .spec = spec,
      .world_size = world_size,
      .training = std::move(training),
      .test = std::move(test),
      .steps = steps,
      .total_steps = total_steps,
      .schedule = schedule,
      .precision = precision,
      .max_samples = compiling.max_batch,
      .shares = shares,
      .identity = TrainingIdentityOf(spec, shares),
      .fingerprint = std::move(fingerprint),
  });
  ModelSetup model;
  model.spec = &setup->spec;
  model.graph = std::move(graph);
  model.compiling = compiling;
  model.precision = precision;
  model.views = ViewsOf(spec.objective());
  model.devices = devices;
  ASSIGN_OR_RETURN(setup->strategy, SetUpStrategy(model));
  return setup;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TrainingSetup>> SetUpTraining(
    const v1::JobSpec& spec, uint32_t world_size, const data::Cache& cache,
    const std::vector<kernels::Device*>& devices) {
  auto setup = SetUpWithoutExitCode(spec, world_size, cache, devices);
  if (setup.ok()) return setup;
  if (absl::IsInvalidArgument(setup.status())) return WithExitCode(setup.status(), kExitBadSpec);
  return WithMemoryAdvice(setup.status());
}

}  // namespace muster::train
