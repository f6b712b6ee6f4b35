// From a spec's strategy to its implementation: the one place that knows all strategies by name.
#ifndef MUSTER_TRAINER_STRATEGY_CREATE_STRATEGY_H_
#define MUSTER_TRAINER_STRATEGY_CREATE_STRATEGY_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "proto/muster/v1/job.pb.h"
#include "trainer/strategy/strategy.h"

namespace muster::train {

// Does what a rank can do for the strategy before it knows its peers. INVALID_ARGUMENT for a
// strategy that is not known, and for what the strategy cannot do; kExitNoDevice as exit code where
// a device lacks a library.
absl::StatusOr<std::unique_ptr<StrategySetup>> SetUpStrategy(const ModelSetup& setup);

// Of a spec whose strategy is not known: as ddp.
BatchDivision BatchDivisionOf(const v1::TrainSpec& spec, uint32_t world_size);
// The strategy's and the objective's.
RequiredGroups RequiredGroupsOf(const v1::TrainSpec& spec);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_CREATE_STRATEGY_H_
