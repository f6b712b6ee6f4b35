#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "common/text/nearest.h"
#include "common/time/proto_time.h"
#include "spec/rules/rules.h"
#include "spec/schema.h"
#include "spec/spec.h"

namespace muster::spec {
namespace {

// ---- the model

using Layers = google::protobuf::RepeatedPtrField<v1::LayerSpec>;

constexpr int kMaxLayers = 1024;         // including layers in residual blocks
constexpr uint32_t kMaxPoolKernel = 15;  // max_pool2d stores a position in its window in one byte

// Checks layers and those inside them.
class LayerChecker {
 public:
  explicit LayerChecker(Problems& problems) : problems_(problems) {}

  // `depth` is the nesting depth of these layers; 1 outside of residual blocks.
  void Check(const std::string& where, const Layers& layers, int depth) {
    if (depth > kLayerDepth) {
      problems_.Add(where, "layers are nested more than ", kLayerDepth, " deep");
      return;
    }
    for (int i = 0; i < layers.size(); ++i) {
      if (++count_ == kMaxLayers + 1) {
        problems_.Add("train.model.layers", "has more than ", kMaxLayers, " layers");
      }
      if (count_ > kMaxLayers) return;
      CheckLayer(absl::StrCat(where, "[", i, "]"), layers[i], depth);
    }
  }

 private:
  void CheckLayer(const std::string& where, const v1::LayerSpec& layer, int depth) {
    if (layer.kind_case() == v1::LayerSpec::KIND_NOT_SET) {
      return problems_.Add(where, "has no layer type");
    }
    const auto& kind = *layer.GetDescriptor()->FindFieldByNumber(layer.kind_case());
    const std::string path = JoinPath(where, kind.name());
    CheckFields(layer.GetReflection()->GetMessage(layer, &kind), path, problems_);
    if (layer.has_conv2d()) {
      const v1::Conv2dSpec& conv2d = layer.conv2d();
      problems_.Require(conv2d.groups() == 0 || conv2d.out_channels() % conv2d.groups() == 0,
                        path + ".groups", "a divisor of out_channels, ", conv2d.out_channels(),
                        ", not ", conv2d.groups());
    } else if (layer.has_max_pool2d()) {
      const v1::PoolSpec& pool = layer.max_pool2d();
      problems_.Require(pool.kernel() <= kMaxPoolKernel, path + ".kernel", "from 1 to ",
                        kMaxPoolKernel, ", not ", pool.kernel());
      problems_.Require(pool.padding() <= pool.kernel() / 2, path + ".padding",
                        "at most half the kernel, ", pool.kernel() / 2, ", not ", pool.padding());
    } else if (layer.has_avg_pool2d() && layer.avg_pool2d().padding() > 0) {
      problems_.Add(path + ".padding", "applies only to max_pool2d; remove it");
    } else if (layer.has_residual()) {
      Check(path + ".layers", layer.residual().layers(), depth + 1);
      Check(path + ".shortcut", layer.residual().shortcut(), depth + 1);
    }
  }

  Problems& problems_;
  int count_ = 0;
};

void CheckModel(const v1::ModelSpec& model, Problems& problems) {
  if (!model.name().empty() && !model.layers().empty()) {
    problems.Add("train.model", "has both name and layers; remove one of them");
  } else if (model.name().empty() && model.layers().empty()) {
    AddMissing(*model.GetDescriptor()->FindFieldByName("name"), "train.model.name", problems);
  }
  LayerChecker(problems).Check("train.model.layers", model.layers(), 1);
}

// ---- the data

void CheckChannels(absl::string_view path, int values, const std::string& dataset,
                   Problems& problems) {
  const int channels = dataset == "mnist" || dataset == "fashion_mnist" ? 1 : 3;
  problems.Require(values == 0 || values == channels, path, channels,
                   channels == 1 ? " number" : " numbers", ", one per channel, not ", values);
}

// Checks that the bounds of a random image region are in order.
template <typename Region>
void CheckRegion(const std::string& path, const Region& region, Problems& problems) {
  problems.Require(region.min_scale() <= region.max_scale(), path + ".min_scale",
                   "at most max_scale, ", region.max_scale(), ", not ", region.min_scale());
  problems.Require(region.min_ratio() <= region.max_ratio(), path + ".min_ratio",
                   "at most max_ratio, ", region.max_ratio(), ", not ", region.min_ratio());
}

void CheckData(const v1::TrainSpec& train, Problems& problems) {
  const v1::DatasetSpec& dataset = train.dataset();
  CheckChannels("train.dataset.mean", dataset.mean_size(), dataset.name(), problems);
  CheckChannels("train.dataset.standard_deviation", dataset.standard_deviation_size(),
                dataset.name(), problems);
  const v1::AugmentSpec& augment = train.augment();
  problems.Require(augment.crop_padding() <= train.image_size(), "train.augment.crop_padding",
                   "at most train.image_size, ", train.image_size(), ", not ",
                   augment.crop_padding());
  if (augment.has_random_resized_crop()) {
    CheckRegion("train.augment.random_resized_crop", augment.random_resized_crop(), problems);
    if (augment.crop_padding() > 0) {
      problems.Add("train.augment",
                   "has both crop_padding and random_resized_crop; remove one of them");
    }
  }
  if (augment.has_random_erasing()) {
    CheckRegion("train.augment.random_erasing", augment.random_erasing(), problems);
  }
}

// ---- learning

void CheckSchedule(const v1::ScheduleSpec& schedule, Problems& problems) {
  if (schedule.name() != "step") return;
  if (schedule.milestones().empty() == (schedule.every_epochs() == 0)) {
    problems.Add("train.schedule", "step needs either milestones or every_epochs");
  }
  const auto& milestones = schedule.milestones();
  for (int i = 1; i < milestones.size(); ++i) {
    if (milestones[i] > milestones[i - 1]) continue;
    return problems.Add("train.schedule.milestones", "must be in ascending order, not ",
                        milestones[i], " after ", milestones[i - 1]);
  }
}

void CheckLength(const v1::TrainSpec& train, Problems& problems) {
  if (train.epochs() == 0 && train.max_steps() == 0) {
    problems.AddMissing("train", "epochs or max_steps is missing; set at least one of them");
  }
  if (train.epochs() > 0 && train.schedule().warmup_epochs() > train.epochs()) {
    problems.Add("train.schedule.warmup_epochs", "must be at most train.epochs, ", train.epochs(),
                 ", not ", train.schedule().warmup_epochs());
  }
}

// Checks that every rank has at least one sample in every micro-batch.
void CheckBatch(const v1::JobSpec& spec, Problems& problems) {
  const v1::TrainSpec& train = spec.train();
  const uint32_t ranks = MaxWorldSize(spec);
  const uint64_t micro_batches = ranks * uint64_t{train.accumulation_steps()};
  if (train.global_batch() < ranks) {
    problems.Add("train.global_batch", train.global_batch(), " is below the number of ranks, ",
                 ranks);
  } else if (train.global_batch() < micro_batches) {
    problems.Add("train.global_batch", train.global_batch(),
                 " is below ranks times accumulation_steps, ", micro_batches);
  }
}

void CheckContrastive(const v1::TrainSpec& train, Problems& problems) {
  if (train.objective().name() != "nt_xent") return;
  const v1::AugmentSpec& augment = train.augment();
  if (augment.crop_padding() == 0 && !augment.flip() && !augment.has_random_resized_crop() &&
      !augment.has_random_erasing()) {
    problems.AddMissing(
        "train.augment",
        "is missing; without augmentation nt_xent's two views of an image are identical");
  }
  problems.Require(train.global_batch() >= 2, "train.global_batch",
                   "at least 2 with nt_xent, which contrasts images, not ", train.global_batch());
  problems.Require(train.accumulation_steps() <= 1, "train.accumulation_steps",
                   "1 with nt_xent, whose negatives would come from one micro-batch, "
                   "not ",
                   train.accumulation_steps());
}

// Whether the path looks like a safetensors file, the index of several, or a checkpoint.
bool NamesTensors(absl::string_view path) {
  path = absl::StripSuffix(path, "/");
  return absl::EndsWith(path, ".safetensors") || absl::EndsWith(path, ".safetensors.index.json") ||
         absl::StartsWith(path.substr(path.rfind('/') + 1), "step-");
}

void CheckInitialState(const v1::TrainSpec& train, Problems& problems) {
  if (train.init_from().empty()) {
    if (!train.init_exclude().empty()) {
      problems.Add("train.init_exclude", "is given, but train.init_from is missing");
    }
  } else {
    problems.Require(NamesTensors(train.init_from()), "train.init_from",
                     "a .safetensors file, its .index.json or the folder of a "
                     "checkpoint (step-…), not ",
                     Quoted(train.init_from()));
  }
  const auto& prefixes = train.init_exclude();
  problems.Require(std::find(prefixes.begin(), prefixes.end(), "") == prefixes.end(),
                   "train.init_exclude", "prefixes of parameter names, none of them empty");
}

// Checks that a spec without checkpoints has no options for them.
void CheckNoCheckpoints(const v1::CheckpointSpec& checkpoint, Problems& problems) {
  const std::pair<const char*, bool> given[] = {
      {"dir", !checkpoint.dir().empty()},
      {"every_steps", checkpoint.every_steps() > 0},
      {"every", FromProto(checkpoint.every()) > absl::ZeroDuration()},
      {"keep_best", !checkpoint.keep_best().empty()},
      {"final", !checkpoint.final().empty()}};
  for (const auto& [name, is_given] : given) {
    if (!is_given) continue;
    problems.Add(absl::StrCat("train.checkpoint.", name),
                 "is given, but keep is 0, which writes no checkpoints; remove one of them");
  }
}

void CheckCheckpoints(const v1::TrainSpec& train, Problems& problems) {
  const v1::CheckpointSpec& checkpoint = train.checkpoint();
  if (checkpoint.keep() == 0) return CheckNoCheckpoints(checkpoint, problems);
  if (!checkpoint.keep_best().empty() && train.evaluate_every_epochs() == 0) {
    problems.Add("train.checkpoint.keep_best",
                 "needs evaluations during the training to choose from; set "
                 "train.evaluate_every_epochs, for example to 1");
  }
}

// ---- the strategy

void CheckHierarchical(const v1::JobSpec& spec, Problems& problems) {
  const std::string path = "train.strategy.hierarchical";
  const std::string& choice = spec.train().strategy().hierarchical();
  const std::string& backend = spec.backend();
  if (choice == "off" && backend == "hierarchical") {
    problems.Add(path, "is off, but backend is hierarchical; set one of them to auto");
  }
  if (choice == "on" && (backend == "shm" || backend == "gloo" || backend == "loopback")) {
    problems.Add(path, "is on, but backend ", backend, " is not hierarchical; set backend to auto");
  }
}

// Checks that dp and hybrid use one process per node, which drives all devices of the node.
void CheckProcesses(const v1::JobSpec& spec, Problems& problems) {
  const std::string& name = spec.train().strategy().name();
  const v1::Resources& resources = spec.resources();
  if (!DrivesSeveralDevices(spec.train().strategy())) return;
  if (resources.ranks_per_node() > 1) {
    problems.Add("resources.ranks_per_node", "must be 1 with ", name, ", not ",
                 resources.ranks_per_node(), "; devices_per_rank sets the number of devices");
  }
  if (name == "dp" && resources.nodes().max() > 1) {
    problems.Add("resources.nodes", "must be 1 with dp, not ", resources.nodes().max(),
                 "; between nodes: hybrid, ddp");
  }
}

void CheckCuts(const v1::PipelineSpec& pipeline, Problems& problems) {
  const char* const path = "train.strategy.pipeline.cuts";
  const auto& cuts = pipeline.cuts();
  if (cuts.empty()) return;
  if (cuts.size() + 1 != static_cast<int64_t>(pipeline.stages())) {
    problems.Add(path, cuts.size(), " cuts make ", cuts.size() + 1, " stages, not ",
                 pipeline.stages());
  }
  absl::flat_hash_set<std::string> seen;
  for (const std::string& cut : cuts) {
    problems.Require(!cut.empty() && seen.insert(cut).second, path,
                     "unique, nonempty layer names, not ", Quoted(cut),
                     cut.empty() ? "" : " twice");
  }
}

void CheckPipeline(const v1::JobSpec& spec, Problems& problems) {
  const v1::TrainSpec& train = spec.train();
  if (train.strategy().name() != "pipeline") return;
  const v1::PipelineSpec& pipeline = train.strategy().pipeline();
  const v1::NodeCount& nodes = spec.resources().nodes();
  const uint32_t ranks = MaxWorldSize(spec);
  const uint32_t stages = std::max(1u, pipeline.stages());
  problems.Require(nodes.min() == nodes.max(), "resources.nodes",
                   "one number with pipeline, whose stages must all be present, not ", nodes.min(),
                   " to ", nodes.max());
  if (ranks % stages != 0) {
    problems.Add("train.strategy.pipeline.stages", stages, " stages do not divide ", ranks,
                 " ranks");
  }
  const uint64_t micro_batches = uint64_t{ranks / stages} * pipeline.micro_batches();
  if (train.global_batch() < micro_batches) {
    problems.Add("train.global_batch", train.global_batch(),
                 " is below replicas times micro_batches, ", micro_batches);
  }
  CheckCuts(pipeline, problems);
  problems.Require(train.accumulation_steps() <= 1, "train.accumulation_steps",
                   "1 with pipeline, which has micro_batches instead, not ",
                   train.accumulation_steps());
  problems.Require(!train.sync_batch_norm(), "train.sync_batch_norm",
                   "false with pipeline: batch norm sees one micro-batch of one replica");
  problems.Require(train.objective().name() != "nt_xent", "train.objective.name",
                   "cross_entropy with pipeline, not nt_xent, whose negatives would come from one "
                   "micro-batch");
}

// Checks that the result cannot depend on the number of ranks.
void CheckElastic(const v1::JobSpec& spec, Problems& problems) {
  const v1::TrainSpec& train = spec.train();
  if (train.deterministic() != v1::TrainSpec::ELASTIC) return;
  const v1::StrategySpec& strategy = train.strategy();
  problems.Require(strategy.name() == "ddp", "train.strategy.name",
                   "ddp with deterministic elastic, not ", strategy.name());
  problems.Require(!strategy.shard_optimizer(), "train.strategy.shard_optimizer",
                   "false with deterministic elastic");
  problems.Require(spec.resources().device() == "cpu", "resources.device",
                   "cpu with train.deterministic elastic, not ", spec.resources().device());
  problems.Require(train.objective().name() == "cross_entropy", "train.objective.name",
                   "cross_entropy with deterministic elastic, not ", train.objective().name());
  problems.Require(!train.sync_batch_norm(), "train.sync_batch_norm",
                   "false with deterministic elastic, where a rank runs parts of a batch one after "
                   "the other");
  problems.Require(train.accumulation_steps() <= 1, "train.accumulation_steps",
                   "1 with deterministic elastic, not ", train.accumulation_steps(),
                   "; a higher resources.nodes.max makes the parts of a batch "
                   "smaller");
  const std::string& gradients = train.mixed_precision().gradient_dtype();
  problems.Require(gradients.empty() || gradients == "auto" || gradients == "float32",
                   "train.mixed_precision.gradient_dtype",
                   "float32 or auto with deterministic elastic, not ", gradients);
}

}  // namespace

void CheckTrainRules(const v1::JobSpec& spec, Problems& problems) {
  const v1::TrainSpec& train = spec.train();
  CheckModel(train.model(), problems);
  CheckData(train, problems);
  if (train.optimizer().nesterov() && train.optimizer().name() == "sgd" &&
      train.optimizer().momentum() == 0) {
    problems.Add("train.optimizer.nesterov", "is true, but momentum is 0; set a momentum");
  }
  CheckSchedule(train.schedule(), problems);
  CheckLength(train, problems);
  CheckBatch(spec, problems);
  CheckContrastive(train, problems);
  CheckInitialState(train, problems);
  CheckCheckpoints(train, problems);
  CheckHierarchical(spec, problems);
  CheckProcesses(spec, problems);
  problems.Require(!train.strategy().shard_optimizer() || train.optimizer().name() != "lars",
                   "train.strategy.shard_optimizer",
                   "false with lars, which needs whole parameters");
  CheckPipeline(spec, problems);
  CheckElastic(spec, problems);
}

bool DrivesSeveralDevices(const v1::StrategySpec& strategy) {
  return strategy.name() == "dp" || strategy.name() == "hybrid";
}

}  // namespace muster::spec
