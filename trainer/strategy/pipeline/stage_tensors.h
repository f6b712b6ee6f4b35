// Files of a model whose stages are on several ranks: one rank reads and writes them, for all.
#ifndef MUSTER_TRAINER_STRATEGY_PIPELINE_STAGE_TENSORS_H_
#define MUSTER_TRAINER_STRATEGY_PIPELINE_STAGE_TENSORS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "collectives/communicator.h"
#include "trainer/checkpoint/safetensors.h"

namespace muster::train {

// Collective over `stages`. On its rank 0: the tensors of all ranks, in the order of ranks; nothing
// elsewhere. The communicator's errors; DATA_LOSS for what cannot be read.
absl::StatusOr<std::vector<Tensor>> GatherStageTensors(collectives::Communicator& stages,
                                                       std::vector<Tensor> own);

// Collective. The file at `path` on rank `root`, which alone looks at `path`; the others get a copy
// in their memory, all of it: each finds its own in there. SafetensorsFile::Open's errors; ABORTED
// on the others when the root has one.
absl::StatusOr<SafetensorsFile> OpenOnAllRanks(collectives::Communicator& world, uint32_t root,
                                               const std::string& path);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_PIPELINE_STAGE_TENSORS_H_
