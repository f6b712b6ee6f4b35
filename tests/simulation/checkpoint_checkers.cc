// Invariants of the checkpoints in a directory that the generations of a job share.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/simulation/checkers.h"
#include "tests/simulation/checkpoint_names.h"

namespace muster::simulation {
namespace {

// A generation never removes a newer one's checkpoint, or the newest of all. Every generation
// continues from the newest.
class NewestCheckpointSurvives : public Checker {
 public:
  using Checker::Checker;
  void OnCheckpointSaved(const Process& process, const std::string& name) override {
    saved_[process.job].insert(OrderOf(name));
  }
  void OnCheckpointRemoved(const Process& process, const std::string& name) override {
    std::set<CheckpointOrder>& saved = saved_[process.job];
    const CheckpointOrder removed = OrderOf(name);
    if (removed.first > process.generation) {
      AddViolation(absl::StrCat(Name(process), " removed ", name));
    }
    if (!saved.empty() && removed == *saved.rbegin()) {
      AddViolation(absl::StrCat(Name(process), " removed the newest checkpoint, ", name));
    }
    saved.erase(removed);
  }
  void OnContinued(const Process& process, const std::string& name) override {
    const std::set<CheckpointOrder>& saved = saved_[process.job];
    const CheckpointOrder newest = saved.empty() ? CheckpointOrder() : *saved.rbegin();
    if (OrderOf(name) != newest) {
      AddViolation(absl::StrCat(Name(process), " continues from ", name,
                                " although the newest is step ", newest.second, " of generation ",
                                newest.first));
    }
  }

 private:
  std::map<std::string, std::set<CheckpointOrder>> saved_;  // by job
};

}  // namespace

void AddCheckpointCheckers(Violations& violations, Checkers& checkers) {
  checkers.push_back(std::make_unique<NewestCheckpointSurvives>(violations));
}

}  // namespace muster::simulation
