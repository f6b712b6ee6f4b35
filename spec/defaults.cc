// ApplyDefaults: sets the table's defaults and those that depend on other fields.
#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "spec/command_target.h"
#include "spec/cut_off.h"
#include "spec/fields.h"
#include "spec/schema.h"
#include "spec/spec.h"
#include "spec/yaml/yaml_reader.h"

namespace muster::spec {
namespace {

using Layers = google::protobuf::RepeatedPtrField<v1::LayerSpec>;

constexpr double kLossScale = 65536;
constexpr uint32_t kMicroBatchesPerStage = 4;
constexpr int64_t kHangTimeoutSeconds = 600;
constexpr uint32_t kRestarts = 3;  // of train jobs, and of jobs that restart after a hang
constexpr int64_t kCheckpointSeconds = 600;

// Sets each unset field with a default in the table, in `message` and its sections.
void ApplyTable(Message& message) {
  const Reflection& reflection = *message.GetReflection();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    if (!Applies(message, field)) continue;
    const absl::string_view value = FieldOf(field).default_value;
    if (!value.empty() && !IsSet(message, field)) {
      // Cannot fail: a test sets every default of the table.
      SetField(value, field, message).IgnoreError();
    }
    if (field.message_type() == nullptr || field.is_map()) continue;
    const FieldForm form = FormOf(field);
    if (form != FieldForm::kPlain && form != FieldForm::kLayer) continue;
    if (field.is_repeated()) {
      for (int k = 0; k < reflection.FieldSize(message, &field); ++k) {
        ApplyTable(*reflection.MutableRepeatedMessage(&message, &field, k));
      }
    } else if (reflection.HasField(message, &field)) {
      ApplyTable(*reflection.MutableMessage(&message, &field));
    }
  }
}

// `text` converted to a valid name: lower-case letters, digits and single '-', none at either end.
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

// "train" for "/srv/train.py".
absl::string_view Stem(absl::string_view path) {
  const absl::string_view file = path.substr(path.rfind('/') + 1);
  const size_t dot = file.rfind('.');
  const bool extension = dot != absl::string_view::npos && dot > 0 && dot + 1 < file.size() &&
                         absl::ascii_isalpha(file[dot + 1]);
  return extension ? file.substr(0, dot) : file;
}

// The last part of the module or the script that a command runs: "train" for `python3 train.py` and
// for `torchrun --nproc-per-node 2 -m project.train`; its program if there is neither.
std::string ProgramName(const v1::JobSpec& spec) {
  const CommandTarget target = TargetOf({spec.command().begin(), spec.command().end()});
  if (!target.module.empty()) return target.module.substr(target.module.rfind('.') + 1);
  return std::string(Stem(target.script.empty() ? target.program : target.script));
}

std::string DefaultName(const v1::JobSpec& spec) {
  if (spec.has_train()) {
    return SanitizedName(
        absl::StrCat(spec.train().model().name(), "-", spec.train().dataset().name()));
  }
  if (spec.command().empty()) return SanitizedName("");
  return SanitizedName(ProgramName(spec));
}

void ApplyPoolStrides(Layers& layers) {
  const auto apply = [](v1::PoolSpec& pool) {
    if (pool.stride() == 0) pool.set_stride(pool.kernel());
  };
  for (v1::LayerSpec& layer : layers) {
    if (layer.has_max_pool2d()) apply(*layer.mutable_max_pool2d());
    if (layer.has_avg_pool2d()) apply(*layer.mutable_avg_pool2d());
    if (layer.has_residual()) {
      ApplyPoolStrides(*layer.mutable_residual()->mutable_layers());
      ApplyPoolStrides(*layer.mutable_residual()->mutable_shortcut());
    }
  }
}

uint32_t DefaultImageSize(const std::string& dataset) {
  if (dataset == "cifar10" || dataset == "cifar100") return 32;
  return dataset == "image_folder" ? 224 : 28;
}

void ApplyDataDefaults(v1::TrainSpec& train) {
  const bool folder = train.dataset().name() == "image_folder";
  if (train.image_size() == 0) train.set_image_size(DefaultImageSize(train.dataset().name()));
  if (train.dataset().center_crop() == 0) {
    train.mutable_dataset()->set_center_crop(folder ? 0.875 : 1);
  }
  v1::ModelSpec& model = *train.mutable_model();
  if (!model.has_dropout()) {
    if (model.name() == "small_cnn" || model.name() == "mlp") model.set_dropout(0);
    if (model.name() == "mobilenet_v2") model.set_dropout(0.2);
  }
  ApplyPoolStrides(*model.mutable_layers());
}

// bfloat16 has the range of float32, so its loss is scaled only if the spec sets a scale.
void ApplyLossScale(v1::MixedPrecisionSpec& mixed) {
  if (mixed.dtype() != "float16") return;
  v1::LossScaleSpec& scale = *mixed.mutable_loss_scale();
  if (scale.initial() == 0) scale.set_initial(kLossScale);
  ApplyTable(scale);
}

void ApplyCheckpointDefaults(v1::CheckpointSpec& checkpoint) {
  if (checkpoint.keep() == 0) return;
  if (checkpoint.final().empty()) checkpoint.set_final("required");
  if (!checkpoint.has_every()) checkpoint.mutable_every()->set_seconds(kCheckpointSeconds);
}

void ApplyPipelineDefaults(const v1::JobSpec& spec, v1::PipelineSpec& pipeline) {
  if (pipeline.stages() == 0) pipeline.set_stages(MaxWorldSize(spec));
  if (pipeline.micro_batches() == 0) {
    const bool sequential = pipeline.schedule() == "sequential";
    pipeline.set_micro_batches(sequential ? 1 : kMicroBatchesPerStage * pipeline.stages());
  }
}

}  // namespace

void ApplyDefaults(v1::JobSpec& spec) {
  ApplyTable(spec);
  if (spec.name().empty()) spec.set_name(DefaultName(spec));
  v1::NodeCount& nodes = *spec.mutable_resources()->mutable_nodes();
  if (nodes.min() == 0 && nodes.max() > 0) nodes.set_min(1);
  if (nodes.max() == 0) nodes.set_max(nodes.min());
  if (!spec.command().empty() && !spec.has_hang_timeout()) {
    spec.mutable_hang_timeout()->set_seconds(kHangTimeoutSeconds);
  }
  if (spec.has_hang_timeout() && spec.on_hang().empty()) spec.set_on_hang("report");
  if (spec.on_cut_off().empty()) {
    spec.set_on_cut_off(ContinuesWhenCutOff(spec) ? "continue" : "end");
  }
  if (!spec.restart().has_max()) {
    const bool restarts = spec.has_train() || spec.on_hang() == "restart";
    spec.mutable_restart()->set_max(restarts ? kRestarts : 0);
  }
  if (!spec.has_train()) return;
  v1::TrainSpec& train = *spec.mutable_train();
  ApplyDataDefaults(train);
  ApplyCheckpointDefaults(*train.mutable_checkpoint());
  if (train.has_mixed_precision() && train.precision() != "O0") {
    ApplyLossScale(*train.mutable_mixed_precision());
  }
  if (train.strategy().name() == "pipeline") {
    ApplyPipelineDefaults(spec, *train.mutable_strategy()->mutable_pipeline());
  }
}

uint32_t MaxWorldSize(const v1::JobSpec& spec) {
  if (spec.resources().ranks() > 0) return spec.resources().ranks();
  const uint64_t ranks = uint64_t{spec.resources().nodes().max()} *
                         std::max<uint64_t>(1, spec.resources().ranks_per_node());
  return static_cast<uint32_t>(std::min<uint64_t>(ranks, UINT32_MAX));
}

}  // namespace muster::spec
