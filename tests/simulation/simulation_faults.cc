// Faults of a simulated cluster.
#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/simulation/simulation.h"

namespace muster::simulation {

void Simulation::CauseOrderlyFault() {
  switch (Below(4)) {
    case 0:
      RestartCoordinator(absl::Seconds(12));
      break;
    case 1:
      world_->CountFault("pauses of coordinators");
      coordinator_.Pause(world_->random.Between(absl::Milliseconds(10), absl::Seconds(5)));
      break;
    default:
      LeaveAndComeBack(SomeMachine());
  }
}

void Simulation::CauseFault() {
  Machine& machine = SomeMachine();
  switch (Below(13)) {
    case 0:
    case 1:
      world_->CountFault("broken streams");
      machine.BreakStream();
      break;
    case 2:
      world_->CountFault("network cuts");
      machine.CutNetwork(world_->random.Between(absl::Seconds(1), absl::Seconds(20)));
      break;
    case 3:
    case 4:
      world_->CountFault("crashes of workers");
      machine.CrashWorker();
      StartLater(machine, absl::Seconds(8));
      break;
    case 5:
      world_->CountFault("crashes of machines");
      machine.Crash(/*forget=*/world_->forgetful && Below(2) == 0);
      StartLater(machine, absl::Seconds(15));
      break;
    case 6:
    case 7:
      if (machine.FailSomeRank()) world_->CountFault("failures of ranks");
      break;
    case 8:
    case 9:
      RestartCoordinator(absl::Seconds(12));
      break;
    case 10:
      world_->CountFault("pauses of coordinators");
      coordinator_.Pause(world_->random.Between(absl::Milliseconds(10), absl::Seconds(15)));
      break;
    case 11:
      LeaveAndComeBack(machine);
      break;
    default:
      if (!world_->forgetful || Below(3) != 0) break;
      // Another machine claims the name of a node, and keeps it if the coordinator admits it.
      if (machines_.size() < 2 * node_count_) {
        world_->CountFault("claims of node names");
        AddMachine(machine.node(), slots_[machine.node()]).StartWorker();
      }
  }
}

void Simulation::RestartCoordinator(absl::Duration longest_absence) {
  world_->CountFault("crashes of coordinators");
  const uint64_t how = Below(4);
  if (how == 0) {
    world_->CountFault("ordered ends of coordinators");
    coordinator_.Stop();
  } else if (how == 1 && !world_->orderly) {
    world_->CountFault("lost machines of coordinators");
    coordinator_.LosePower();
  } else {
    coordinator_.Crash();
  }
  // Rarely on another machine, with the disk of the first one.
  const bool moves = world_->cuts && Below(8) == 0;
  StartCoordinatorAfter(world_->random.Between(absl::Milliseconds(10), longest_absence), moves);
}

void Simulation::StartCoordinatorAfter(absl::Duration delay, bool moves) {
  world_->scheduler.After(delay, [this, moves] {
    if (coordinator_.closing()) return StartCoordinatorAfter(absl::Milliseconds(100), moves);
    if (moves && !coordinator_.up()) {
      world_->CountFault("moves of coordinators");
      coordinator_.Move();
    }
    coordinator_.Start();
  });
}

void Simulation::CausePause() {
  Machine& machine = SomeMachine();
  const absl::Duration by = world_->random.Between(absl::Milliseconds(100), absl::Seconds(40));
  switch (Below(4)) {
    case 0:
      if (machine.PauseSomeRank(by)) world_->CountFault("pauses of ranks");
      break;
    case 1:
      if (machine.PauseSomeShim(by)) world_->CountFault("pauses of shims");
      break;
    case 2:
      world_->CountFault("pauses of workers");
      machine.PauseWorker(by);
      break;
    default:
      world_->CountFault("pauses of machines");
      machine.PauseMachine(by);
  }
}

void Simulation::CauseFaultNearCut() {
  Machine& machine = SomeMachine();
  switch (Below(8)) {
    case 0:
    case 1:
      RestartCoordinator(absl::Seconds(60));
      break;
    case 2:
    case 6:
    case 7:
      world_->CountFault("crashes of workers");
      machine.CrashWorker();
      StartLater(machine, absl::Seconds(8));
      break;
    case 3:
      world_->CountFault("crashes of machines");
      machine.Crash(/*forget=*/Below(4) == 0);
      StartLater(machine, absl::Seconds(15));
      break;
    case 4:
      CausePause();
      break;
    default:
      world_->CountFault("pauses of coordinators");
      coordinator_.Pause(world_->random.Between(absl::Milliseconds(10), absl::Seconds(15)));
  }
}

void Simulation::CutNetwork() {
  const uint64_t count = machines_.size() + 1;
  const uint64_t shape = Below(4);
  std::set<uint64_t> one_side = {Below(count)};
  if (shape == 1) {
    for (uint64_t id = 0; id < count; ++id) {
      if (Below(2) == 0) one_side.insert(id);
    }
  }
  const uint64_t other = Below(count);
  const uint64_t ways = 1 + Below(3);  // bits: from the side, to the side
  for (uint64_t a = 0; a < count; ++a) {
    for (uint64_t b = 0; b < count; ++b) {
      if (one_side.count(a) == 0 || one_side.count(b) != 0) continue;
      if (shape >= 2 && b != other) continue;
      if (shape < 2 || (ways & 1) != 0) world_->cut_links.insert({a, b});
      if (shape < 2 || (ways & 2) != 0) world_->cut_links.insert({b, a});
    }
  }
  world_->CountFault(shape == 0   ? "isolated machines"
                     : shape == 1 ? "cuts between two groups"
                                  : "cuts between two machines");
  world_->Note(absl::StrCat("the network is cut, ", world_->cut_links.size(), " links in all"));
  for (const auto& machine : machines_) machine->OnLinksCut();
  if (Below(3) == 0) return;  // until another cut has been repaired, so that they overlap
  world_->scheduler.After(world_->random.Between(absl::Seconds(1), absl::Seconds(90)),
                          [this] { HealNetwork(); });
}

void Simulation::HealNetwork() {
  world_->cut_links.clear();
  world_->Note("the network is whole");
  if (kind_ != Kind::kCuts) return;
  // Workers that are replaced at this moment must not have forgotten what they promised before.
  for (const auto& machine : machines_) {
    if (!machine->worker_up() || Below(3) != 0) continue;
    machine->CrashWorker();
    machine->StartWorker();
  }
}

void Simulation::ConfirmLostNodes() {
  if (!coordinator_.up()) return;
  const std::vector<v1::Job> jobs = Jobs();
  // A machine that is refused as another one of that name may run ranks of other stores' jobs.
  const auto only_claims_name = [&jobs](const Machine& machine) {
    return machine.refused() && std::none_of(jobs.begin(), jobs.end(), [&](const v1::Job& job) {
             return machine.HasLiveRanks(job.job_id(), job.generation());
           });
  };
  for (const v1::Node& node : coordinator_.core()->ListNodes(world_->scheduler.now())) {
    const bool off = std::all_of(machines_.begin(), machines_.end(), [&](const auto& machine) {
      return machine->node() != node.name() || machine->is_off() || only_claims_name(*machine);
    });
    if (!off || node.state() != v1::SUSPECT) continue;
    world_->CountFault("confirmed losses");
    coordinator_.Request(core::ConfirmNodeLost{coordinator_.NewRequest(), NodeName(node.name())},
                         [](const core::Reply&) {});
  }
}

void Simulation::UpgradeSomeWorker() {
  if (SomeMachine().UpgradeWorker()) world_->CountFault("upgrades of workers");
}

// The store is lost, restored from a copy, or for a while not the right one, as with a mistyped
// data directory.
void Simulation::CauseStoreFault() {
  if (true_store_ != 0) return;
  coordinator_.Crash();
  const uint64_t right = CopyStore();
  switch (Below(3)) {
    case 0:
      world_->CountFault("lost stores");
      ReplaceStore(0);
      break;
    case 1:
      if (backup_ == 0) break;
      world_->CountFault("restored stores");
      ReplaceStore(backup_);
      break;
    default:
      world_->CountFault("wrong stores");
      ReplaceStore(0);
      true_store_ = right;
      world_->scheduler.After(world_->random.Between(absl::Seconds(3), absl::Seconds(30)), [this] {
        if (true_store_ == 0) return;
        ReturnToTrueStore();
        RestartCoordinator(absl::Seconds(5));
      });
  }
  RestartCoordinator(absl::Seconds(5));
}

void Simulation::ReturnToTrueStore() {
  if (true_store_ == 0) return;
  coordinator_.Crash();
  ReplaceStore(std::exchange(true_store_, 0));
}

uint64_t Simulation::CopyStore() {
  const uint64_t copy = coordinator_.CopyStore();
  acknowledged_by_copy_[copy] = acknowledged_;
  return copy;
}

void Simulation::ReplaceStore(uint64_t copy) {
  world_->Note(copy == 0 ? "the store becomes empty"
                         : absl::StrCat("the store becomes copy ", copy));
  store_replaced_ = true;
  coordinator_.ReplaceStore(copy);
  acknowledged_ = acknowledged_by_copy_[copy];
}

void Simulation::LeaveAndComeBack(Machine& machine) {
  world_->CountFault("shutdowns of workers");
  machine.Leave();
  StartWhenGone(machine);
}
void Simulation::StartWhenGone(Machine& machine) {
  world_->scheduler.After(
      world_->random.Between(absl::Milliseconds(10), absl::Seconds(2)),
      [this, &machine] { machine.worker_up() ? StartWhenGone(machine) : machine.StartWorker(); });
}

void Simulation::StartLater(Machine& machine, absl::Duration most) {
  world_->scheduler.After(world_->random.Between(absl::Milliseconds(10), most),
                          [&machine] { machine.StartWorker(); });
}

}  // namespace muster::simulation
