#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/proto_time.h"
#include "spec/spec.h"

namespace muster::spec {
namespace {

constexpr absl::Duration kFailureTimeout = absl::Seconds(30);
constexpr absl::Duration kGracePeriod = absl::Seconds(30);
constexpr uint32_t kRestarts = 3;
constexpr uint32_t kGlobalBatch = 128;
constexpr double kFolderCenterCrop = 0.875;
constexpr double kMobileNetDropout = 0.2;
constexpr uint32_t kHiddenWidths[] = {256, 128};
constexpr uint64_t kBucketBytes = 25 << 20;
constexpr uint32_t kMicroBatchesPerStage = 4;
constexpr uint64_t kFirstBucketBytes = 1 << 20;
constexpr uint32_t kCheckpointsKept = 3;
constexpr uint32_t kLoaderThreads = 1;
constexpr uint32_t kBatchesReady = 4;
constexpr uint64_t kScalarSteps = 10;
constexpr double kLossScale = 65536;
constexpr uint32_t kLossScaleGrowthInterval = 2000;

// Lower-case letters, digits and single '-', the last not at an end.
std::string SanitizedName(absl::string_view text) {
  std::string name;
  for (const unsigned char c : text) {
    if (absl::ascii_isalnum(c)) {
      name += absl::ascii_tolower(c);
    } else if (!name.empty() && name.back() != '-') {
      name += '-';
    }
  }
  name.resize(std::min(name.size(), limits::kNameLength));
  while (!name.empty() && name.back() == '-') name.pop_back();
  return name.empty() ? "job" : name;
}

std::string DefaultName(const v1::JobSpec& spec) {
  if (spec.has_train()) {
    return SanitizedName(
        absl::StrCat(spec.train().model().name(), "-", spec.train().dataset().name()));
  }
  if (spec.command().empty()) return SanitizedName("");
  const absl::string_view program = spec.command(0);
  return SanitizedName(program.substr(program.rfind('/') + 1));
}

void ApplyResourceDefaults(v1::Resources& resources) {
  if (!resources.has_nodes()) {
    resources.mutable_nodes()->set_min(1);
    resources.mutable_nodes()->set_max(1);
  }
  v1::NodeCount& nodes = *resources.mutable_nodes();
  if (nodes.min() == 0 && nodes.max() > 0) nodes.set_min(1);
  if (nodes.max() == 0) nodes.set_max(nodes.min());
  if (resources.ranks_per_node() == 0) resources.set_ranks_per_node(1);
  if (resources.device().empty()) resources.set_device("auto");
  if (resources.devices_per_rank().empty()) resources.set_devices_per_rank("1");
  if (resources.threads_per_rank() == 0) resources.set_threads_per_rank(1);
}

using Layers = google::protobuf::RepeatedPtrField<v1::LayerSpec>;

void ApplyLayerDefaults(Layers& layers) {
  for (v1::LayerSpec& layer : layers) {
    if (layer.has_conv2d()) {
      v1::Conv2dSpec& conv2d = *layer.mutable_conv2d();
      if (conv2d.stride() == 0) conv2d.set_stride(1);
      if (conv2d.groups() == 0) conv2d.set_groups(1);
      if (!conv2d.has_bias()) conv2d.set_bias(true);
    } else if (layer.has_batch_norm2d()) {
      v1::BatchNorm2dSpec& batch_norm = *layer.mutable_batch_norm2d();
      if (batch_norm.epsilon() == 0) batch_norm.set_epsilon(1e-5);
      if (batch_norm.momentum() == 0) batch_norm.set_momentum(0.1);
    } else if (layer.has_max_pool2d() || layer.has_avg_pool2d()) {
      v1::PoolSpec& pool =
          layer.has_max_pool2d() ? *layer.mutable_max_pool2d() : *layer.mutable_avg_pool2d();
      if (pool.stride() == 0) pool.set_stride(pool.kernel());
    } else if (layer.has_linear()) {
      if (!layer.linear().has_bias()) layer.mutable_linear()->set_bias(true);
    } else if (layer.has_residual()) {
      ApplyLayerDefaults(*layer.mutable_residual()->mutable_layers());
      ApplyLayerDefaults(*layer.mutable_residual()->mutable_shortcut());
    }
  }
}

void ApplyModelDefaults(v1::ModelSpec& model) {
  if (model.name() == "small_cnn" && !model.has_batch_norm()) model.set_batch_norm(true);
  if (model.name() == "mlp" && model.hidden().empty()) {
    for (const uint32_t width : kHiddenWidths) model.add_hidden(width);
  }
  if (!model.has_dropout()) {
    if (model.name() == "small_cnn" || model.name() == "mlp") model.set_dropout(0);
    if (model.name() == "mobilenet_v2") model.set_dropout(kMobileNetDropout);
  }
  ApplyLayerDefaults(*model.mutable_layers());
}

uint32_t DefaultImageSize(const std::string& dataset) {
  if (dataset == "cifar10" || dataset == "cifar100") return 32;
  return dataset == "image_folder" ? 224 : 28;
}

void ApplyDataDefaults(v1::TrainSpec& train) {
  const bool folder = train.dataset().name() == "image_folder";
  if (train.image_size() == 0) train.set_image_size(DefaultImageSize(train.dataset().name()));
  if (train.dataset().center_crop() == 0) {
    train.mutable_dataset()->set_center_crop(folder ? kFolderCenterCrop : 1);
  }
  if (train.dataset().resident().empty()) train.mutable_dataset()->set_resident("auto");
  v1::AugmentSpec& augment = *train.mutable_augment();
  if (augment.has_random_resized_crop()) {
    v1::RandomResizedCropSpec& crop = *augment.mutable_random_resized_crop();
    if (crop.min_scale() == 0) crop.set_min_scale(0.08);
    if (crop.max_scale() == 0) crop.set_max_scale(1);
    if (crop.min_ratio() == 0) crop.set_min_ratio(3.0 / 4);
    if (crop.max_ratio() == 0) crop.set_max_ratio(4.0 / 3);
  }
  if (augment.has_random_erasing()) {
    v1::RandomErasingSpec& erasing = *augment.mutable_random_erasing();
    if (erasing.probability() == 0) erasing.set_probability(0.5);
    if (erasing.min_scale() == 0) erasing.set_min_scale(0.02);
    if (erasing.max_scale() == 0) erasing.set_max_scale(0.33);
    if (erasing.min_ratio() == 0) erasing.set_min_ratio(0.3);
    if (erasing.max_ratio() == 0) erasing.set_max_ratio(3.3);
  }
  v1::LoaderSpec& loader = *train.mutable_loader();
  if (loader.threads() == 0) loader.set_threads(kLoaderThreads);
  if (loader.prefetch() == 0) loader.set_prefetch(kBatchesReady);
}

// Those of the optimizer, schedule and objective that were chosen: an option of another one is the
// user's mistake, and Validate says so.
void ApplyLearningDefaults(v1::TrainSpec& train) {
  v1::OptimizerSpec& optimizer = *train.mutable_optimizer();
  if (optimizer.name().empty()) optimizer.set_name("sgd");
  if (optimizer.name() == "adamw") {
    if (optimizer.beta1() == 0) optimizer.set_beta1(0.9);
    if (optimizer.beta2() == 0) optimizer.set_beta2(0.999);
    if (optimizer.epsilon() == 0) optimizer.set_epsilon(1e-8);
  }
  if (optimizer.name() == "lars" && optimizer.trust_coefficient() == 0) {
    optimizer.set_trust_coefficient(0.001);
  }
  v1::ScheduleSpec& schedule = *train.mutable_schedule();
  if (schedule.name().empty()) schedule.set_name("constant");
  if (schedule.name() == "step" && schedule.factor() == 0) schedule.set_factor(0.1);
  v1::ObjectiveSpec& objective = *train.mutable_objective();
  if (objective.name().empty()) objective.set_name("cross_entropy");
  if (objective.name() == "nt_xent") {
    if (objective.temperature() == 0) objective.set_temperature(0.5);
    if (objective.negatives().empty()) objective.set_negatives("global");
  }
}

// At O0 there is nothing to say, and Validate says so where something is.
void ApplyPrecisionDefaults(v1::TrainSpec& train) {
  if (train.precision().empty()) train.set_precision("O0");
  if (train.precision() == "O0") return;
  v1::MixedPrecisionSpec& mixed = *train.mutable_mixed_precision();
  if (mixed.dtype().empty()) mixed.set_dtype("bfloat16");
  if (mixed.gradient_dtype().empty()) mixed.set_gradient_dtype("auto");
  // bfloat16 has float32's range: its loss is scaled only where the spec gives a scale.
  const bool scaled = mixed.dtype() == "float16" || mixed.loss_scale().initial() != 0;
  if (!scaled) return;
  v1::LossScaleSpec& scale = *mixed.mutable_loss_scale();
  if (scale.initial() == 0) scale.set_initial(kLossScale);
  if (scale.growth_interval() == 0) scale.set_growth_interval(kLossScaleGrowthInterval);
  if (scale.growth_factor() == 0) scale.set_growth_factor(2);
  if (scale.backoff_factor() == 0) scale.set_backoff_factor(0.5);
}

void ApplyPipelineDefaults(v1::JobSpec& spec) {
  v1::PipelineSpec& pipeline = *spec.mutable_train()->mutable_strategy()->mutable_pipeline();
  if (pipeline.stages() == 0) pipeline.set_stages(MaxWorldSize(spec));
  if (pipeline.schedule().empty()) pipeline.set_schedule("1f1b");
  if (pipeline.micro_batches() == 0) {
    const bool sequential = pipeline.schedule() == "sequential";
    pipeline.set_micro_batches(sequential ? 1 : kMicroBatchesPerStage * pipeline.stages());
  }
}

void ApplyTrainDefaults(v1::TrainSpec& train) {
  ApplyModelDefaults(*train.mutable_model());
  ApplyDataDefaults(train);
  ApplyLearningDefaults(train);
  if (train.global_batch() == 0) train.set_global_batch(kGlobalBatch);
  if (train.accumulation_steps() == 0) train.set_accumulation_steps(1);
  ApplyPrecisionDefaults(train);
  if (train.cuda_graphs().empty()) train.set_cuda_graphs("auto");
  v1::StrategySpec& strategy = *train.mutable_strategy();
  if (strategy.name().empty()) strategy.set_name("ddp");
  if (strategy.bucket_bytes() == 0) strategy.set_bucket_bytes(kBucketBytes);
  if (strategy.first_bucket_bytes() == 0) strategy.set_first_bucket_bytes(kFirstBucketBytes);
  if (strategy.hierarchical().empty()) strategy.set_hierarchical("auto");
  if (train.seed() == 0) train.set_seed(1);
  if (train.has_checkpoint() && train.checkpoint().keep() == 0) {
    train.mutable_checkpoint()->set_keep(kCheckpointsKept);
  }
  if (train.has_tensorboard() && train.tensorboard().every_steps() == 0) {
    train.mutable_tensorboard()->set_every_steps(kScalarSteps);
  }
}

}  // namespace

void ApplyDefaults(v1::JobSpec& spec) {
  if (spec.name().empty()) spec.set_name(DefaultName(spec));
  ApplyResourceDefaults(*spec.mutable_resources());
  if (spec.backend().empty()) spec.set_backend("auto");
  if (!spec.has_failure_timeout()) *spec.mutable_failure_timeout() = ToProto(kFailureTimeout);
  if (!spec.has_grace_period()) *spec.mutable_grace_period() = ToProto(kGracePeriod);
  spec.mutable_on_lost_coordinator();
  if (!spec.has_restart()) spec.mutable_restart()->set_max(kRestarts);
  if (!spec.has_train()) return;
  ApplyTrainDefaults(*spec.mutable_train());
  if (spec.train().strategy().name() == "pipeline") ApplyPipelineDefaults(spec);
}

uint32_t MaxWorldSize(const v1::JobSpec& spec) {
  const uint64_t ranks = uint64_t{spec.resources().nodes().max()} *
                         std::max<uint64_t>(1, spec.resources().ranks_per_node());
  return static_cast<uint32_t>(std::min<uint64_t>(ranks, UINT32_MAX));
}

}  // namespace muster::spec
