#include "trainer/strategy/create_strategy.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "trainer/objective/objective.h"
#include "trainer/strategy/ddp/ddp.h"
#include "trainer/strategy/dp/dp.h"
#include "trainer/strategy/hybrid/hybrid.h"
#include "trainer/strategy/pipeline/pipeline.h"
#include "trainer/strategy/zero1/zero1.h"

namespace muster::train {
namespace {

struct StrategyType {
  const char* name;
  absl::StatusOr<std::unique_ptr<StrategySetup>> (*set_up)(const ModelSetup& setup);
  BatchDivision (*divide)(const v1::TrainSpec& spec, uint32_t world_size);
  RequiredGroups (*groups)(const v1::TrainSpec& spec);
};

BatchDivision ShareForEachRank(const v1::TrainSpec&, uint32_t world_size) {
  return {.shares = world_size};
}

RequiredGroups OnlyWorld(const v1::TrainSpec&) { return {}; }

constexpr StrategyType kTypes[] = {
    {"ddp", SetUpDdp, ShareForEachRank, OnlyWorld},
    {"zero1", SetUpZero1, ShareForEachRank, OnlyWorld},
    {"dp", SetUpDp, ShareForEachRank, OnlyWorld},
    {"hybrid", SetUpHybrid, ShareForEachRank, OnlyWorld},
    {"pipeline", SetUpPipeline, PipelineDivision, PipelineGroups},
};

// Specs select zero1 as ddp with shard_optimizer. Returns null for an unknown strategy.
const StrategyType* Find(const v1::StrategySpec& spec) {
  std::string name = spec.name().empty() ? "ddp" : spec.name();
  if (name == "zero1") return nullptr;
  if (name == "ddp" && spec.shard_optimizer()) name = "zero1";
  for (const StrategyType& type : kTypes) {
    if (type.name == name) return &type;
  }
  return nullptr;
}

const StrategyType& FindOrDdp(const v1::StrategySpec& spec) {
  const StrategyType* const type = Find(spec);
  return type != nullptr ? *type : kTypes[0];
}

}  // namespace

absl::StatusOr<std::unique_ptr<StrategySetup>> SetUpStrategy(const ModelSetup& setup) {
  const StrategyType* const type = Find(setup.spec->strategy());
  if (type != nullptr) return type->set_up(setup);
  return absl::InvalidArgumentError(absl::StrCat(
      "train.strategy.name: ", setup.spec->strategy().name(), " is not supported by this rank"));
}

BatchDivision BatchDivisionOf(const v1::TrainSpec& spec, uint32_t world_size) {
  return FindOrDdp(spec.strategy()).divide(spec, world_size);
}

RequiredGroups RequiredGroupsOf(const v1::TrainSpec& spec) {
  RequiredGroups groups = FindOrDdp(spec.strategy()).groups(spec);
  groups.local = NeedsLocalGroup(spec.objective());
  return groups;
}

}  // namespace muster::train
