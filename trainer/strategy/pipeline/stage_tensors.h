// Reads and writes model files on one rank for all stages of a pipeline, and the files that the
// stages leave in memory.
#ifndef MUSTER_TRAINER_STRATEGY_PIPELINE_STAGE_TENSORS_H_
#define MUSTER_TRAINER_STRATEGY_PIPELINE_STAGE_TENSORS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "collectives/communicator.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/checkpoint/tensor_set.h"
#include "trainer/optim/state_snapshot.h"
#include "trainer/strategy/strategy.h"

namespace muster::train {

// Collective over `stages`. Returns the tensors of all ranks in rank order on rank 0, and none on
// other ranks. Returns the communicator's errors; DATA_LOSS for tensors that cannot be parsed.
absl::StatusOr<std::vector<Tensor>> GatherStageTensors(collectives::Communicator& stages,
                                                       std::vector<Tensor> own);

// Collective. Opens the file, or set of files, at `path` on rank `root`; all other ranks ignore the
// path's contents and receive a copy of the whole files in memory. Returns TensorSet::Open's errors
// on the root, and ABORTED on the other ranks if the root has an error.
absl::StatusOr<TensorSet> OpenOnAllRanks(collectives::Communicator& world, uint32_t root,
                                         const std::string& path);

// Adds the tensors of a stage as files of a checkpoint.
void AddFiles(const ModelTensors& tensors, WholeState& state);

// The files of all stages.
struct ReadTensors {
  TensorSet model;
  TensorSet optimizer;
  TensorSet average;
};
// Collective. Reads the parts of a state in memory, each of which one rank reads, on all ranks.
// DATA_LOSS for a file that is damaged.
absl::StatusOr<ReadTensors> ReadPartsOnAllRanks(collectives::Communicator& world,
                                                const CheckpointFiles& files);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_PIPELINE_STAGE_TENSORS_H_
