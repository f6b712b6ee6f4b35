// Collectives that build the training summary.
#ifndef MUSTER_TRAINER_STRATEGY_GATHER_SUMMARIES_H_
#define MUSTER_TRAINER_STRATEGY_GATHER_SUMMARIES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "collectives/communicator.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::train {

// Collective. Returns the summaries of all ranks in rank order on rank 0, and an empty vector on
// other ranks. Returns the communicator's errors; DATA_LOSS for a summary that cannot be parsed.
absl::StatusOr<std::vector<v1::TrainSummary>> GatherSummaries(collectives::Communicator& world,
                                                              const v1::TrainSummary& own);

// Collective over both communicators. Number of ranks of `world` whose digest differs from that of
// the first rank in their group `equals`, whose members should have equal digests.
absl::StatusOr<uint32_t> CountDiffering(collectives::Communicator& world,
                                        collectives::Communicator& equals,
                                        const std::string& digest);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_GATHER_SUMMARIES_H_
