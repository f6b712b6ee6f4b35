#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "spec/spec.h"
#include "spec/validate_parts.h"

namespace muster::spec {
namespace {

constexpr uint64_t kMaxBucketBytes = uint64_t{1} << 32;
constexpr uint32_t kMaxMicroBatches = 1 << 16;

void CheckBuckets(const v1::StrategySpec& strategy, Problems& problems) {
  problems.Require(strategy.bucket_bytes() >= 1 && strategy.bucket_bytes() <= kMaxBucketBytes,
                   "train.strategy.bucket_bytes", "from 1 to 4GiB");
  problems.Require(
      strategy.first_bucket_bytes() >= 1 && strategy.first_bucket_bytes() <= kMaxBucketBytes,
      "train.strategy.first_bucket_bytes", "from 1 to 4GiB");
}

void CheckHierarchical(const v1::JobSpec& spec, Problems& problems) {
  const v1::StrategySpec& strategy = spec.train().strategy();
  RequireWord("train.strategy.hierarchical", strategy, "hierarchical", problems);
  const std::string& backend = spec.backend();
  if (strategy.hierarchical() == "off" && backend == "hierarchical") {
    problems.Add("train.strategy.hierarchical", "is off, and backend is hierarchical");
  }
  const bool one_level = backend == "shm" || backend == "gloo" || backend == "loopback";
  if (strategy.hierarchical() == "on" && one_level) {
    problems.Add("train.strategy.hierarchical",
                 absl::StrCat("is on, and backend ", backend, " has no levels; auto has"));
  }
}

// A process drives a node's devices: there is one on each node.
void CheckDevicesOfOneProcess(const v1::JobSpec& spec, Problems& problems) {
  const std::string& name = spec.train().strategy().name();
  const v1::Resources& resources = spec.resources();
  if (resources.ranks_per_node() > 1) {
    problems.Add("resources.ranks_per_node",
                 absl::StrCat("must be 1 with ", name,
                              ", whose one process drives a node's devices: devices_per_rank says "
                              "how many"));
  }
  if (name == "dp" && resources.nodes().max() > 1) {
    problems.Add("resources.nodes", "dp is of one node; between nodes: hybrid, ddp");
  }
}

void CheckShardedOptimizer(const v1::TrainSpec& train, Problems& problems) {
  if (!train.strategy().shard_optimizer()) return;
  const char* const path = "train.strategy.shard_optimizer";
  problems.Require(train.strategy().name() == "ddp", path, "of ddp only");
  problems.Require(train.optimizer().name() != "lars", path,
                   "not with lars, which needs whole parameters");
}

void CheckCuts(const v1::PipelineSpec& pipeline, Problems& problems) {
  const char* const path = "train.strategy.pipeline.cuts";
  if (pipeline.cuts().empty()) return;
  problems.Require(pipeline.cuts_size() + 1 == static_cast<int64_t>(pipeline.stages()), path,
                   absl::StrCat(pipeline.cuts_size(), " cuts make ", pipeline.cuts_size() + 1,
                                " stages, not ", pipeline.stages()));
  absl::flat_hash_set<std::string> seen;
  for (const std::string& cut : pipeline.cuts()) {
    problems.RequireText(path, cut);
    problems.Require(!cut.empty() && seen.insert(cut).second, path,
                     "names of layers, each once and none empty");
  }
}

void CheckPipeline(const v1::JobSpec& spec, Problems& problems) {
  const v1::TrainSpec& train = spec.train();
  const v1::PipelineSpec& pipeline = train.strategy().pipeline();
  const bool chosen = train.strategy().name() == "pipeline";
  if (train.strategy().has_pipeline() && !chosen) {
    problems.Add("train.strategy.pipeline", "is given, and train.strategy.name is not pipeline");
  }
  if (!pipeline.schedule().empty()) {
    RequireWord("train.strategy.pipeline.schedule", pipeline, "schedule", problems);
  }
  if (!chosen) return;
  const v1::NodeCount& nodes = spec.resources().nodes();
  const uint32_t ranks = MaxWorldSize(spec);
  const uint32_t stages = std::max(1u, pipeline.stages());
  problems.Require(nodes.min() == nodes.max(), "resources.nodes",
                   "one number with pipeline, whose stages all have to be there");
  problems.Require(pipeline.stages() >= 1 && ranks % stages == 0, "train.strategy.pipeline.stages",
                   absl::StrCat(pipeline.stages(), " stages do not divide ", ranks, " ranks"));
  problems.Require(pipeline.micro_batches() >= 1 && pipeline.micro_batches() <= kMaxMicroBatches,
                   "train.strategy.pipeline.micro_batches",
                   absl::StrCat("from 1 to ", kMaxMicroBatches));
  const uint64_t parts = uint64_t{ranks / stages} * pipeline.micro_batches();
  if (train.global_batch() < parts) {
    problems.Add(
        "train.global_batch",
        absl::StrCat(train.global_batch(), " is below replicas times micro_batches, ", parts));
  }
  CheckCuts(pipeline, problems);
  problems.Require(train.accumulation_steps() == 1, "train.accumulation_steps",
                   "must be 1 with pipeline, whose micro_batches are such parts");
  problems.Require(!train.sync_batch_norm(), "train.sync_batch_norm",
                   "not with pipeline: batch norm sees one micro-batch of one replica");
  problems.Require(train.objective().name() != "nt_xent", "train.objective.name",
                   "nt_xent is not of pipeline: an image would be compared with those of its "
                   "micro-batch alone");
}

}  // namespace

bool DrivesSeveralDevices(const v1::StrategySpec& strategy) {
  return strategy.name() == "dp" || strategy.name() == "hybrid";
}

void CheckStrategy(const v1::JobSpec& spec, Problems& problems) {
  const v1::TrainSpec& train = spec.train();
  RequireWord("train.strategy.name", train.strategy(), "name", problems);
  CheckBuckets(train.strategy(), problems);
  CheckHierarchical(spec, problems);
  if (DrivesSeveralDevices(train.strategy())) CheckDevicesOfOneProcess(spec, problems);
  CheckShardedOptimizer(train, problems);
  CheckPipeline(spec, problems);
}

}  // namespace muster::spec
