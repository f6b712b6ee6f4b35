// Applies the trainer's rules for a directory that the generations of a job share
// (trainer/checkpoint/retention.h) to names of checkpoints.
#ifndef MUSTER_TESTS_SIMULATION_CHECKPOINT_NAMES_H_
#define MUSTER_TESTS_SIMULATION_CHECKPOINT_NAMES_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace muster::simulation {

// Generation and step: the order of checkpoints, oldest first.
using CheckpointOrder = std::pair<uint64_t, uint64_t>;

// "step-00000012.g3".
std::string CheckpointName(uint64_t step, uint64_t generation);
// (0, 0) for another name.
CheckpointOrder OrderOf(const std::string& name);
// The checkpoint that a generation continues from; empty if there is none.
std::string NewestCheckpoint(const std::vector<std::string>& names);
// The checkpoints that a generation removes after it has saved `newest_step`.
std::vector<std::string> CheckpointsToRemove(const std::vector<std::string>& names,
                                             uint64_t own_generation, uint64_t newest_step,
                                             uint32_t keep);

}  // namespace muster::simulation

#endif  // MUSTER_TESTS_SIMULATION_CHECKPOINT_NAMES_H_
