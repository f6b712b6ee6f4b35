#include "trainer/strategy/create_strategy.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "spec/spec.h"
#include "trainer/objective/objective.h"
#include "trainer/strategy/ddp/ddp.h"
#include "trainer/strategy/dp/dp.h"
#include "trainer/strategy/elastic/elastic.h"
#include "trainer/strategy/hybrid/hybrid.h"
#include "trainer/strategy/pipeline/pipeline.h"
#include "trainer/strategy/zero1/zero1.h"

namespace muster::train {
namespace {

struct StrategyType {
  const char* name;
  absl::StatusOr<std::unique_ptr<StrategySetup>> (*set_up)(const ModelSetup& setup);
  BatchDivision (*divide)(const v1::JobSpec& job, uint32_t world_size);
  RequiredGroups (*groups)(const v1::TrainSpec& spec);
};

BatchDivision ShareForEachRank(const v1::JobSpec&, uint32_t world_size) {
  return {.shares = world_size};
}

// As if there were always the maximum number of ranks.
BatchDivision FixedShares(const v1::JobSpec& job, uint32_t) {
  return {.shares = spec::MaxWorldSize(job)};
}

BatchDivision ShareForEachPipeline(const v1::JobSpec& job, uint32_t world_size) {
  return PipelineDivision(job.train(), world_size);
}

RequiredGroups OnlyWorld(const v1::TrainSpec&) { return {}; }

constexpr StrategyType kTypes[] = {
    {"ddp", SetUpDdp, ShareForEachRank, OnlyWorld},
    {"zero1", SetUpZero1, ShareForEachRank, OnlyWorld},
    {"elastic", SetUpElastic, FixedShares, OnlyWorld},
    {"dp", SetUpDp, ShareForEachRank, OnlyWorld},
    {"hybrid", SetUpHybrid, ShareForEachRank, OnlyWorld},
    {"pipeline", SetUpPipeline, ShareForEachPipeline, PipelineGroups},
};

// Specs select zero1 as ddp with shard_optimizer, and elastic as ddp with deterministic: elastic.
// Returns null for an unknown strategy.
const StrategyType* Find(const v1::TrainSpec& spec) {
  const v1::StrategySpec& strategy = spec.strategy();
  std::string name = strategy.name().empty() ? "ddp" : strategy.name();
  if (name == "zero1" || name == "elastic") return nullptr;
  if (name == "ddp" && strategy.shard_optimizer()) name = "zero1";
  if (name == "ddp" && spec.deterministic() == v1::TrainSpec::ELASTIC) name = "elastic";
  for (const StrategyType& type : kTypes) {
    if (type.name == name) return &type;
  }
  return nullptr;
}

const StrategyType& FindOrDdp(const v1::TrainSpec& spec) {
  const StrategyType* const type = Find(spec);
  return type != nullptr ? *type : kTypes[0];
}

}  // namespace

absl::StatusOr<std::unique_ptr<StrategySetup>> SetUpStrategy(const ModelSetup& setup) {
  const StrategyType* const type = Find(*setup.spec);
  if (type != nullptr) return type->set_up(setup);
  return absl::InvalidArgumentError(absl::StrCat(
      "train.strategy.name: ", setup.spec->strategy().name(), " is not supported by this rank"));
}

BatchDivision BatchDivisionOf(const v1::JobSpec& job, uint32_t world_size) {
  return FindOrDdp(job.train()).divide(job, world_size);
}

RequiredGroups RequiredGroupsOf(const v1::TrainSpec& spec) {
  RequiredGroups groups = FindOrDdp(spec).groups(spec);
  groups.local = NeedsLocalGroup(spec.objective());
  return groups;
}

}  // namespace muster::train
