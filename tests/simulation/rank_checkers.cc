// Invariants of ranks and of what their coordinator sends them.
#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/text/wait_text.h"
#include "common/time/proto_time.h"
#include "tests/simulation/checkers.h"

namespace muster::simulation {

std::string Name(const Process& process) {
  return absl::StrCat(process.job, " generation ", process.generation, " rank ", process.rank);
}

namespace {

// A rank of a generation runs once, on one machine. A coordinator with another store may start it
// again when it has ended.
class SinglePlacement : public Checker {
 public:
  using Checker::Checker;
  void OnStarted(const Process& process) override {
    alive_.insert(process.id());
    if (!started_.insert(process.id()).second) {
      AddViolation(absl::StrCat(Name(process), " started twice"));
    }
  }
  void OnExited(const Process& process) override {
    alive_.erase(process.id());
    if (replaced_) started_.erase(process.id());
  }
  void OnStoreReplaced(uint64_t copy) override {
    replaced_ = true;
    started_ = alive_;
  }

 private:
  std::set<decltype(Process().id())> started_;
  std::set<decltype(Process().id())> alive_;
  bool replaced_ = false;  // the store
};

// A command job runs once at a time: all ranks of its older generations have ended when one of the
// next starts, unless they outlive SIGKILL, their shim is stopped, or the coordinator starts with
// another store.
//
// This does not hold for train jobs: the coordinator gives their ranks up before the lease of a
// node ends when a peer reports that it lost one of them (Losses::LoseAccusedNodes), and ranks
// that are cut off continue. Their checkpoints are kept apart by their generations.
class SingleGeneration : public Checker {
 public:
  using Checker::Checker;
  void OnStarted(const Process& process) override {
    if (!process.fenced) return;
    for (const auto& [id, machine] : alive_) {
      const auto& [job, generation, instance, rank] = id;
      if (job == process.job && generation != process.generation) {
        AddViolation(absl::StrCat(Name(process), " starts on machine ", process.machine,
                                  " although rank ", rank, " of generation ", generation,
                                  " runs on machine ", machine));
      }
    }
    alive_[process.id()] = process.machine;
  }
  void OnExited(const Process& process) override { alive_.erase(process.id()); }
  void OnUnfenced(const Process& process) override { alive_.erase(process.id()); }
  void OnStoreReplaced(uint64_t copy) override { alive_.clear(); }

 private:
  std::map<decltype(Process().id()), uint64_t> alive_;
};

// A slot belongs to one process at a time.
class ExclusiveSlots : public Checker {
 public:
  using Checker::Checker;
  void OnStarted(const Process& process) override {
    for (const uint32_t slot : process.slots) {
      const auto [entry, free] = holders_.emplace(std::make_pair(process.machine, slot), process);
      if (free) continue;
      AddViolation(absl::StrCat("slot ", slot, " of machine ", process.machine, " was assigned to ",
                                Name(process), " while ", Name(entry->second), " had it"));
    }
  }
  void OnExited(const Process& process) override {
    for (const uint32_t slot : process.slots) {
      const auto entry = holders_.find({process.machine, slot});
      if (entry != holders_.end() && entry->second.id() == process.id()) holders_.erase(entry);
    }
  }

 private:
  std::map<std::pair<uint64_t, uint32_t>, Process> holders_;
};

// A barrier releases a rank only when all ranks of the generation have arrived. A restored store
// may start again a rank that had ended, whose peers have passed barriers.
class BarriersComplete : public Checker {
 public:
  using Checker::Checker;
  void OnStoreReplaced(uint64_t copy) override { replaced_ = true; }
  void OnArrived(const Process& process, uint64_t sequence) override {
    arrived_[{process.whole(), sequence}].insert(process.rank);
  }
  void OnReleased(const Process& process, uint64_t sequence, uint32_t world_size) override {
    const auto& arrived = arrived_[{process.whole(), sequence}];
    if (!replaced_ && arrived.size() != world_size) {
      AddViolation(absl::StrCat(Name(process), " passed barrier ", sequence, " when ",
                                arrived.size(), " of ", world_size, " ranks had arrived"));
    }
  }

 private:
  std::map<std::pair<decltype(Process().whole()), uint64_t>, std::set<uint32_t>> arrived_;
  bool replaced_ = false;  // the store
};

// No barrier is hopeless: ranks arrive at all of their barriers before they end, the store has the
// barriers that they passed, and their workers report them to a restarted coordinator.
class NoBarrierIsHopeless : public Checker {
 public:
  using Checker::Checker;
  void OnHopeless(const Process& process, const std::string& message) override {
    AddViolation(absl::StrCat(Name(process), ": ", message));
  }
};

// Only the ranks of a generation receive its unique id, and all receive the same one.
class KeysStayInTheirGeneration : public Checker {
 public:
  using Checker::Checker;
  void OnStoreReplaced(uint64_t copy) override { values_.clear(); }
  void OnKey(const Process& process, const std::string& value) override {
    const std::string prefix =
        absl::StrCat(process.job, "/", process.generation, "/", process.instance, "/");
    if (!absl::StartsWith(value, prefix)) {
      AddViolation(absl::StrCat(Name(process), " received the unique id ", value));
    }
    const auto [entry, first] = values_.emplace(prefix, value);
    if (!first && entry->second != value) {
      AddViolation(
          absl::StrCat(Name(process), " received ", value, ", other ranks ", entry->second));
    }
  }

 private:
  std::map<std::string, std::string> values_;
};

// A notice about a barrier names all ranks that have not arrived, and does not come too early.
class NoticesNameTheMissing : public Checker {
 public:
  using Checker::Checker;
  void OnArrived(const Process& process, uint64_t sequence) override {
    arrived_[{process.job, process.generation}][sequence].insert(process.rank);
  }
  void OnSend(const v1::CoordinatorMessage& message, const Store& disk) override {
    if (message.has_launch()) {
      world_sizes_[{message.launch().job_id(), message.launch().generation()}] =
          message.launch().world_size();
    }
    if (!message.has_wait_notice()) return;
    const v1::WaitNotice& notice = message.wait_notice();
    const std::string text = WaitText(notice.wait(), notice.timed_out());
    if (FromProto(notice.wait().since()) < absl::Seconds(2))
      AddViolation(absl::StrCat("notice is too early: ", text));
    std::set<uint32_t> named;
    for (const v1::WaitedFor& who : notice.wait().missing()) named.insert(who.rank());
    if (named.empty()) AddViolation(absl::StrCat("notice names no rank: ", text));
    absl::string_view what = notice.wait().what();
    uint64_t sequence = 0;
    if (!absl::ConsumePrefix(&what, "barrier world/") || !absl::SimpleAtoi(what, &sequence)) return;
    const std::pair<std::string, uint64_t> key(notice.job_id(), notice.generation());
    for (uint32_t rank = 0; rank < world_sizes_[key]; ++rank) {
      if (arrived_[key][sequence].count(rank) == 0 && named.count(rank) == 0) {
        AddViolation(absl::StrCat("rank ", rank, " is not named in: ", text));
      }
    }
  }

 private:
  std::map<std::pair<std::string, uint64_t>, uint32_t> world_sizes_;
  std::map<std::pair<std::string, uint64_t>, std::map<uint64_t, std::set<uint32_t>>> arrived_;
};

// All slices of one generation's world agree.
class OneWorld : public Checker {
 public:
  using Checker::Checker;
  void OnSend(const v1::CoordinatorMessage& message, const Store& disk) override {
    if (!message.has_world()) return;
    const v1::World& world = message.world();
    const std::string facts =
        absl::StrCat(world.world_size(), " ", world.node_count(), " ", world.master_address(), " ",
                     world.has_resume_rank() ? absl::StrCat(world.resume_rank()) : "none", " ",
                     world.resume_step(), " ", world.canonical_layout());
    const auto [entry, first] =
        facts_.emplace(std::make_pair(world.job_id(), world.generation()), facts);
    if (!first && entry->second != facts) {
      AddViolation(
          absl::StrCat("two worlds of ", world.job_id(), ": ", entry->second, " and ", facts));
    }
  }
  void OnStoreReplaced(uint64_t copy) override { facts_.clear(); }

 private:
  std::map<std::pair<std::string, uint64_t>, std::string> facts_;
};

}  // namespace

void AddRankCheckers(Violations& violations, Checkers& checkers) {
  checkers.push_back(std::make_unique<SinglePlacement>(violations));
  checkers.push_back(std::make_unique<SingleGeneration>(violations));
  checkers.push_back(std::make_unique<ExclusiveSlots>(violations));
  checkers.push_back(std::make_unique<BarriersComplete>(violations));
  checkers.push_back(std::make_unique<NoBarrierIsHopeless>(violations));
  checkers.push_back(std::make_unique<KeysStayInTheirGeneration>(violations));
  checkers.push_back(std::make_unique<NoticesNameTheMissing>(violations));
  checkers.push_back(std::make_unique<OneWorld>(violations));
}

}  // namespace muster::simulation
