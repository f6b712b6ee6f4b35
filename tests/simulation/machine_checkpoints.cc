// The checkpoints of a simulated machine's ranks. Any time may pass between listing the shared
// directory and removing a checkpoint from it.
#include "tests/simulation/checkpoint_names.h"
#include "tests/simulation/machine.h"

namespace muster::simulation {
namespace {

constexpr uint32_t kKept = 2;

}  // namespace

bool Machine::SavesCheckpoints(const Holding& holding, const Rank& rank) const {
  return rank.report.rank() == 0 && holding.launch.spec().has_train();
}

void Machine::ContinueFromCheckpoint(Rank& rank) {
  const auto& names = world_.checkpoints[rank.process.job];
  const std::string newest = NewestCheckpoint({names.begin(), names.end()});
  rank.step = OrderOf(newest).second;
  world_.NotifyCheckers(&Checker::OnContinued, rank.process, newest);
}

void Machine::SaveCheckpoint(const Holding& holding, Rank& rank) {
  Act(holding, rank, absl::Milliseconds(1), absl::Milliseconds(50),
      [this](Holding& of, Rank& saving) {
        const std::string name = CheckpointName(++saving.step, saving.process.generation);
        world_.checkpoints[saving.process.job].insert(name);
        world_.NotifyCheckers(&Checker::OnCheckpointSaved, saving.process, name);
        RemoveOldCheckpoints(of, saving);
      });
}

void Machine::RemoveOldCheckpoints(const Holding& holding, const Rank& rank) {
  const auto& names = world_.checkpoints[rank.process.job];
  const bool has_newer =
      !names.empty() &&
      OrderOf(NewestCheckpoint({names.begin(), names.end()})).first > rank.process.generation;
  if (has_newer) world_.CountFault("saves of replaced generations");
  for (const std::string& name : CheckpointsToRemove({names.begin(), names.end()},
                                                     rank.process.generation, rank.step, kKept)) {
    Act(holding, rank, absl::ZeroDuration(), absl::Milliseconds(50),
        [this, name](Holding&, Rank& removing) {
          if (world_.checkpoints[removing.process.job].erase(name) == 0) return;
          world_.NotifyCheckers(&Checker::OnCheckpointRemoved, removing.process, name);
        });
  }
}

}  // namespace muster::simulation
