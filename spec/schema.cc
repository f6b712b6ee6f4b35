#include "spec/schema.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/muster/v1/job.pb.h"
#include "spec/nearest.h"

namespace muster::spec {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

constexpr absl::string_view kZeroMeansUnset[] = {
    "muster.v1.Resources.ranks_per_node",
    "muster.v1.Resources.threads_per_rank",
    "muster.v1.TrainSpec.epochs",
    "muster.v1.TrainSpec.max_steps",
    "muster.v1.TrainSpec.global_batch",
    "muster.v1.TrainSpec.image_size",
    "muster.v1.TrainSpec.seed",
    "muster.v1.TrainSpec.accumulation_steps",
    "muster.v1.EmaSpec.decay",
    "muster.v1.TensorBoardSpec.every_steps",
    "muster.v1.LossScaleSpec.initial",
    "muster.v1.LossScaleSpec.growth_interval",
    "muster.v1.LossScaleSpec.growth_factor",
    "muster.v1.LossScaleSpec.backoff_factor",
    "muster.v1.Conv2dSpec.out_channels",
    "muster.v1.Conv2dSpec.kernel",
    "muster.v1.Conv2dSpec.stride",
    "muster.v1.Conv2dSpec.groups",
    "muster.v1.BatchNorm2dSpec.epsilon",
    "muster.v1.BatchNorm2dSpec.momentum",
    "muster.v1.PoolSpec.kernel",
    "muster.v1.PoolSpec.stride",
    "muster.v1.DropoutSpec.probability",
    "muster.v1.DatasetSpec.center_crop",
    "muster.v1.OptimizerSpec.learning_rate",
    "muster.v1.OptimizerSpec.beta1",
    "muster.v1.OptimizerSpec.beta2",
    "muster.v1.OptimizerSpec.epsilon",
    "muster.v1.OptimizerSpec.trust_coefficient",
    "muster.v1.ScheduleSpec.every_epochs",
    "muster.v1.ScheduleSpec.factor",
    "muster.v1.ObjectiveSpec.temperature",
    "muster.v1.RandomResizedCropSpec.min_scale",
    "muster.v1.RandomResizedCropSpec.max_scale",
    "muster.v1.RandomResizedCropSpec.min_ratio",
    "muster.v1.RandomResizedCropSpec.max_ratio",
    "muster.v1.RandomErasingSpec.probability",
    "muster.v1.RandomErasingSpec.min_scale",
    "muster.v1.RandomErasingSpec.max_scale",
    "muster.v1.RandomErasingSpec.min_ratio",
    "muster.v1.RandomErasingSpec.max_ratio",
    "muster.v1.StrategySpec.bucket_bytes",
    "muster.v1.StrategySpec.first_bucket_bytes",
    "muster.v1.PipelineSpec.stages",
    "muster.v1.PipelineSpec.micro_batches",
    "muster.v1.CheckpointSpec.keep",
    "muster.v1.LoaderSpec.threads",
    "muster.v1.LoaderSpec.prefetch",
};

// Paths of fields called `name` in `message` and below.
void FindField(const Descriptor& message, absl::string_view where, absl::string_view name,
               std::vector<std::string>& paths) {
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    const std::string path = JoinPath(where, field.name());
    if (absl::string_view(field.name()) == name) paths.push_back(path);
    // Lists hold layers, whose fields nobody looks for outside.
    if (field.message_type() != nullptr && !field.is_repeated() &&
        FormOf(field) == FieldForm::kPlain) {
      FindField(*field.message_type(), path, name, paths);
    }
  }
}

}  // namespace

FieldForm FormOf(const FieldDescriptor& field) {
  if (field.message_type() != nullptr) {
    const std::string& type = field.message_type()->full_name();
    if (type == "google.protobuf.Duration") return FieldForm::kDuration;
    if (type == "muster.v1.NodeCount") return FieldForm::kNodeCount;
    if (type == "muster.v1.LostCoordinatorPolicy") return FieldForm::kLostCoordinator;
    if (type == "muster.v1.LayerSpec") return FieldForm::kLayer;
    return FieldForm::kPlain;
  }
  const bool is_size =
      field.cpp_type() == FieldDescriptor::CPPTYPE_UINT64 && absl::EndsWith(field.name(), "_bytes");
  return is_size ? FieldForm::kSize : FieldForm::kPlain;
}

bool ZeroMeansUnset(const FieldDescriptor& field) {
  const absl::string_view name = field.full_name();
  return std::find(std::begin(kZeroMeansUnset), std::end(kZeroMeansUnset), name) !=
         std::end(kZeroMeansUnset);
}

std::vector<std::string> FieldNames(const Descriptor& message) {
  std::vector<std::string> names;
  for (int i = 0; i < message.field_count(); ++i) names.push_back(message.field(i)->name());
  return names;
}

std::string UnknownField(const Descriptor& message, absl::string_view where,
                         absl::string_view name) {
  std::string text = absl::StrCat("unknown field ", Quoted(name), " in ",
                                  where.empty() ? absl::string_view("the spec") : where);
  const std::string nearest = Nearest(name, FieldNames(message));
  std::vector<std::string> elsewhere;
  FindField(*v1::JobSpec::descriptor(), "", name, elsewhere);
  if (elsewhere.size() == 1 && EditDistance(name, nearest) > 1) {
    absl::StrAppend(&text, "; did you mean '", elsewhere[0], "'?");
  } else if (!nearest.empty()) {
    absl::StrAppend(&text, "; did you mean '", nearest, "'?");
  }
  return text;
}

std::string JoinPath(absl::string_view where, absl::string_view name) {
  return where.empty() ? std::string(name) : absl::StrCat(where, ".", name);
}

}  // namespace muster::spec
