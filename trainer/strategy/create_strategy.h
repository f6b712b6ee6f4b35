// Creates strategies by the name in the spec. The only place that depends on all strategies.
#ifndef MUSTER_TRAINER_STRATEGY_CREATE_STRATEGY_H_
#define MUSTER_TRAINER_STRATEGY_CREATE_STRATEGY_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "proto/muster/v1/job.pb.h"
#include "trainer/strategy/strategy.h"

namespace muster::train {

// Sets up the strategy as far as possible before the rank knows its peers. INVALID_ARGUMENT for an
// unknown strategy or a spec that the strategy does not support; exit code kExitNoDevice if a
// device lacks a library.
absl::StatusOr<std::unique_ptr<StrategySetup>> SetUpStrategy(const ModelSetup& setup);

// How the job's strategy divides global batches. An unknown strategy is treated as ddp.
BatchDivision BatchDivisionOf(const v1::JobSpec& job, uint32_t world_size);
// Process groups that the strategy and the objective require.
RequiredGroups RequiredGroupsOf(const v1::TrainSpec& spec);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_CREATE_STRATEGY_H_
