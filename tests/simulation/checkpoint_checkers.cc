// Invariants of the checkpoints in a directory that the generations of a job share.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/simulation/checkers.h"
#include "tests/simulation/checkpoint_names.h"

namespace muster::simulation {
namespace {

// A generation never removes a newer one's checkpoint, or the newest of all. Every generation
// continues from the newest.
//
// Assumption: a store that is replaced by a copy of itself does not know of generations that it
// launched after the copy was made and whose workers do not reach it. Such a generation and the one
// that gets its number cannot be distinguished by the names of their checkpoints, and either may
// remove the other's.
class NewestCheckpointSurvives : public Checker {
 public:
  using Checker::Checker;
  void OnCheckpointSaved(const Process& process, const std::string& name) override {
    saved_[process.job][OrderOf(name)] = process.instance;
  }
  void OnCheckpointRemoved(const Process& process, const std::string& name) override {
    auto& saved = saved_[process.job];
    const CheckpointOrder removed = OrderOf(name);
    if (removed.first > process.generation) {
      AddViolation(absl::StrCat(Name(process), " removed ", name));
    }
    const bool newest = !saved.empty() && removed == saved.rbegin()->first;
    const bool has_twin = removed.first == process.generation && saved[removed] != process.instance;
    if (newest && !has_twin) {
      AddViolation(absl::StrCat(Name(process), " removed the newest checkpoint, ", name));
    }
    saved.erase(removed);
  }
  void OnContinued(const Process& process, const std::string& name) override {
    const auto& saved = saved_[process.job];
    const CheckpointOrder newest = saved.empty() ? CheckpointOrder() : saved.rbegin()->first;
    if (OrderOf(name) != newest) {
      AddViolation(absl::StrCat(Name(process), " continues from ", name,
                                " although the newest is step ", newest.second, " of generation ",
                                newest.first));
    }
  }

 private:
  // By job: each checkpoint, with the instance of the generation that saved it.
  std::map<std::string, std::map<CheckpointOrder, uint64_t>> saved_;
};

}  // namespace

void AddCheckpointCheckers(Violations& violations, Checkers& checkers) {
  checkers.push_back(std::make_unique<NewestCheckpointSurvives>(violations));
}

}  // namespace muster::simulation
