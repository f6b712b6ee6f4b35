#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/proto_time.h"
#include "common/spec/spec.h"

namespace muster::spec {
namespace {

constexpr absl::Duration kFailureTimeout = absl::Seconds(30);
constexpr absl::Duration kGracePeriod = absl::Seconds(30);
constexpr uint32_t kRestarts = 3;
constexpr uint32_t kGlobalBatch = 128;
constexpr uint32_t kImageSize = 28;  // of every data set that is built in
constexpr uint32_t kHiddenWidths[] = {256, 128};
constexpr uint64_t kBucketBytes = 25 << 20;
constexpr uint64_t kFirstBucketBytes = 1 << 20;
constexpr uint32_t kCheckpointsKept = 3;
constexpr uint32_t kLoaderThreads = 1;
constexpr uint32_t kBatchesReady = 4;

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

void ApplyModelDefaults(v1::ModelSpec& model) {
  if (model.name() == "small_cnn" && !model.has_batch_norm()) model.set_batch_norm(true);
  if (model.name() == "mlp" && model.hidden().empty()) {
    for (const uint32_t width : kHiddenWidths) model.add_hidden(width);
  }
}

void ApplyTrainDefaults(v1::TrainSpec& train) {
  ApplyModelDefaults(*train.mutable_model());
  if (train.global_batch() == 0) train.set_global_batch(kGlobalBatch);
  if (train.image_size() == 0) train.set_image_size(kImageSize);
  v1::OptimizerSpec& optimizer = *train.mutable_optimizer();
  if (optimizer.name().empty()) optimizer.set_name("sgd");
  v1::ScheduleSpec& schedule = *train.mutable_schedule();
  if (schedule.name().empty()) schedule.set_name("constant");
  if (train.precision().empty()) train.set_precision("O0");
  v1::StrategySpec& strategy = *train.mutable_strategy();
  if (strategy.name().empty()) strategy.set_name("ddp");
  if (strategy.bucket_bytes() == 0) strategy.set_bucket_bytes(kBucketBytes);
  if (strategy.first_bucket_bytes() == 0) strategy.set_first_bucket_bytes(kFirstBucketBytes);
  v1::ObjectiveSpec& objective = *train.mutable_objective();
  if (objective.name().empty()) objective.set_name("cross_entropy");
  train.mutable_augment();
  if (train.seed() == 0) train.set_seed(1);
  if (train.has_checkpoint() && train.checkpoint().keep() == 0) {
    train.mutable_checkpoint()->set_keep(kCheckpointsKept);
  }
  v1::LoaderSpec& loader = *train.mutable_loader();
  if (loader.threads() == 0) loader.set_threads(kLoaderThreads);
  if (loader.prefetch() == 0) loader.set_prefetch(kBatchesReady);
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
  if (spec.has_train()) ApplyTrainDefaults(*spec.mutable_train());
}

uint32_t MaxWorldSize(const v1::JobSpec& spec) {
  const uint64_t ranks = uint64_t{spec.resources().nodes().max()} *
                         std::max<uint64_t>(1, spec.resources().ranks_per_node());
  return static_cast<uint32_t>(std::min<uint64_t>(ranks, UINT32_MAX));
}

}  // namespace muster::spec
