#include "trainer/loop/spec_plan.h"

#include <algorithm>
#include <vector>

#include "common/status.h"
#include "trainer/data/sampler.h"
#include "trainer/loop/data_options.h"
#include "trainer/models/model.h"
#include "trainer/precision/training_precision.h"
#include "trainer/strategy/create_strategy.h"

namespace muster::train {

uint32_t ViewsOf(const v1::ObjectiveSpec& spec) { return spec.name() == "nt_xent" ? 2 : 1; }

uint32_t MaxSamplesOf(const v1::JobSpec& job, uint32_t world_size) {
  const v1::TrainSpec& spec = job.train();
  const uint64_t share =
      data::LargestShare(spec.global_batch(), BatchDivisionOf(job, world_size).shares);
  const uint64_t samples = data::LargestShare(share, std::max(1u, spec.accumulation_steps()));
  return static_cast<uint32_t>(samples * ViewsOf(spec.objective()));
}

absl::StatusOr<nn::Graph> GraphOf(const v1::TrainSpec& spec, const data::DatasetInfo& dataset) {
  const data::ImageSize size = InputSizeOf(spec, dataset);
  if (size.height < 1 || size.width < 1) {
    return absl::InvalidArgumentError(
        "train.image_size: is missing, and the images differ in size; set image_size");
  }
  nn::ModelHead head;
  head.classes = dataset.classes;
  if (spec.objective().name() == "nt_xent") {
    const auto& widths = spec.objective().projection();
    head.projection = std::vector<int64_t>(widths.begin(), widths.end());
  }
  return nn::BuildModel(spec.model(), {size.height, size.width, dataset.channels}, head);
}

absl::StatusOr<nn::CompileOptions> CompileOptionsOf(const v1::JobSpec& job, uint32_t world_size) {
  ASSIGN_OR_RETURN(const TrainingPrecision precision, PrecisionOf(job.train()));
  nn::CompileOptions options;
  options.max_batch = MaxSamplesOf(job, world_size);
  options.threads = std::max(1u, job.resources().threads_per_rank());
  options.synchronize_batch_norm = job.train().sync_batch_norm();
  options.precision = precision.plan;
  return options;
}

}  // namespace muster::train
