// What ranks tell each other at the end of a training.
#ifndef MUSTER_TRAINER_STRATEGY_GATHER_SUMMARIES_H_
#define MUSTER_TRAINER_STRATEGY_GATHER_SUMMARIES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "collectives/communicator.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::train {

// Collective. By rank, on rank 0; empty elsewhere. The communicator's errors; DATA_LOSS for what
// cannot be read.
absl::StatusOr<std::vector<v1::TrainSummary>> GatherSummaries(collectives::Communicator& world,
                                                              const v1::TrainSummary& own);

// Collective over both. How many ranks of the world have another digest than the first of those
// that ought to have the same, `equals`.
absl::StatusOr<uint32_t> CountDiffering(collectives::Communicator& world,
                                        collectives::Communicator& equals,
                                        const std::string& digest);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_GATHER_SUMMARIES_H_
