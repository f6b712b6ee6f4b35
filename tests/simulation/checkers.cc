#include "tests/simulation/checkers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/proto_time.h"
#include "common/wait_text.h"
#include "coordinator/core/jobs/job.h"
#include "proto/muster/v1/store.pb.h"

namespace muster::simulation {
namespace {

std::string Name(const Process& process) {
  return absl::StrCat(process.job, " generation ", process.generation, " rank ", process.rank);
}

// A rank of a generation runs once, on one machine.
class SinglePlacement : public Checker {
 public:
  using Checker::Checker;
  void OnStarted(const Process& process) override {
    if (!started_.insert(process.id()).second)
      AddViolation(absl::StrCat(Name(process), " started twice"));
  }

 private:
  std::set<std::tuple<std::string, uint64_t, uint32_t>> started_;
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

// Acknowledged facts survive any crash: that a job exists, that it was cancelled, that it ended.
class AcknowledgedSurvives : public Checker {
 public:
  using Checker::Checker;
  void OnReply(const core::Reply& reply) override {
    if (reply.job.ok()) acknowledged_[reply.job->job_id()] = *reply.job;
  }
  void OnRecovered(const core::Core& core, Time now) override {
    for (const auto& [id, job] : acknowledged_) {
      const absl::StatusOr<v1::Job> found = core.GetJob(JobId(id), /*detailed=*/false, now);
      if (!found.ok()) {
        AddViolation(
            absl::StrCat("acknowledged job ", id, " is gone: ", found.status().ToString()));
      } else if (core::IsTerminal(job.state()) && found->state() != job.state()) {
        AddViolation(absl::StrCat("job ", id, " was ", v1::JobState_Name(job.state()), " and is ",
                                  v1::JobState_Name(found->state())));
      } else if (found->generation() < job.generation()) {
        AddViolation(absl::StrCat("job ", id, " went back to generation ", found->generation()));
      }
    }
  }

 private:
  std::map<std::string, v1::Job> acknowledged_;
};

// A barrier releases a rank once, and only when all ranks of the generation have arrived.
class BarriersComplete : public Checker {
 public:
  using Checker::Checker;
  void OnArrived(const Process& process, uint64_t sequence) override {
    arrived_[{process.job, process.generation, sequence}].insert(process.rank);
  }
  void OnReleased(const Process& process, uint64_t sequence, uint32_t world_size) override {
    const auto& arrived = arrived_[{process.job, process.generation, sequence}];
    if (arrived.size() != world_size) {
      AddViolation(absl::StrCat(Name(process), " passed barrier ", sequence, " when ",
                                arrived.size(), " of ", world_size, " ranks had arrived"));
    }
    if (!released_.emplace(process.id(), sequence).second) {
      AddViolation(absl::StrCat(Name(process), " was released twice from barrier ", sequence));
    }
  }

 private:
  std::map<std::tuple<std::string, uint64_t, uint64_t>, std::set<uint32_t>> arrived_;
  std::set<std::pair<std::tuple<std::string, uint64_t, uint32_t>, uint64_t>> released_;
};

// Only the ranks of a generation receive its unique id, and all receive the same one.
class KeysStayInTheirGeneration : public Checker {
 public:
  using Checker::Checker;
  void OnKey(const Process& process, const std::string& value) override {
    const std::string prefix = absl::StrCat(process.job, "/", process.generation, "/");
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

// A generation number denotes one rank map forever, is on disk before it is used, and grows by one.
class GenerationsAreNew : public Checker {
 public:
  using Checker::Checker;
  void OnSend(const v1::CoordinatorMessage& message, const Store& disk) override {
    if (!message.has_launch()) return;
    const v1::Launch& launch = message.launch();
    const auto entry = disk.find(absl::StrFormat("placement/%s/%010d/%010d", launch.job_id(),
                                                 launch.generation(), launch.node_rank()));
    v1::PlacementRecord record;
    if (entry == disk.end() || !record.ParseFromString(entry->second)) {
      AddViolation(absl::StrCat("generation ", launch.generation(), " of ", launch.job_id(),
                                " was launched before it was on disk"));
      return;
    }
    const v1::NodePlacement& node = record.placement();
    bool same = node.ranks_size() == launch.ranks_size();
    for (int i = 0; same && i < node.ranks_size(); ++i) {
      same = node.ranks(i).rank() == launch.ranks(i).rank();
    }
    if (!same)
      AddViolation(absl::StrCat("the launched ranks of ", launch.job_id(), " are not on disk"));
  }
  void OnCommit(const std::vector<store::Mutation>& writes) override {
    for (const store::Mutation& write : writes) {
      if (!absl::StartsWith(write.key, "placement/") || !write.value.has_value()) continue;
      v1::PlacementRecord record;
      record.ParseFromString(*write.value);
      std::string map;
      for (const v1::RankRecord& rank : record.placement().ranks()) {
        absl::StrAppend(&map, record.placement().node(), ":", rank.rank(), ":", rank.slots(0), " ");
      }
      const auto [entry, first] = maps_.emplace(write.key, map);
      if (!first && entry->second != map) {
        AddViolation(
            absl::StrCat(write.key, " had the rank map ", entry->second, " and now has ", map));
      }
      uint64_t& newest = newest_[record.job_id()];
      const bool begins = first && record.node_rank() == 0;
      if (begins && record.generation() != newest + 1) {
        AddViolation(absl::StrCat(record.job_id(), " went from generation ", newest, " to ",
                                  record.generation()));
      }
      newest = std::max(newest, record.generation());
    }
  }

 private:
  std::map<std::string, std::string> maps_;
  std::map<std::string, uint64_t> newest_;
};

// Between two records on disk, a job's state moves along the transition table. A step may take more
// than one edge.
class LegalTransitions : public Checker {
 public:
  using Checker::Checker;
  void OnCommit(const std::vector<store::Mutation>& writes) override {
    for (const store::Mutation& write : writes) {
      if (!absl::StartsWith(write.key, "job/") || !write.value.has_value()) continue;
      v1::JobRecord record;
      record.ParseFromString(*write.value);
      const auto to = static_cast<v1::JobState>(record.state());
      const auto [entry, first] = states_.emplace(write.key, to);
      if (first || entry->second == to) continue;
      std::set<v1::JobState> seen;
      if (!IsReachable(entry->second, to, seen)) {
        AddViolation(absl::StrCat(write.key, " went from ", v1::JobState_Name(entry->second),
                                  " to ", v1::JobState_Name(to)));
      }
      entry->second = to;
    }
  }

 private:
  static bool IsReachable(v1::JobState from, v1::JobState to, std::set<v1::JobState>& seen) {
    if (!seen.insert(from).second) return false;
    if (core::IsAllowed(from, to)) return true;
    for (int next = v1::QUEUED; next <= v1::TIMED_OUT; ++next) {
      const auto state = static_cast<v1::JobState>(next);
      if (core::IsAllowed(from, state) && IsReachable(state, to, seen)) return true;
    }
    return false;
  }

  std::map<std::string, v1::JobState> states_;
};

// Messages of a replaced worker have no effect and are not answered, and it is not admitted again.
class StaleWorkersAreIgnored : public Checker {
 public:
  using Checker::Checker;
  void OnStep(const core::Event& event, const core::Effects& effects, bool stale) override {
    if (stale && (!effects.writes.empty() || !effects.sends.empty())) {
      AddViolation("a message of a replaced worker had an effect");
    }
  }
  void OnWelcome(const std::string& node, uint64_t incarnation) override {
    std::vector<uint64_t>& known = welcomed_[node];
    if (!known.empty() && known.back() == incarnation) return;
    // The coordinator remembers only the latest ones.
    const auto latest = known.size() > 16 ? known.end() - 16 : known.begin();
    if (std::find(latest, known.end(), incarnation) != known.end()) {
      AddViolation(absl::StrCat("a replaced worker was admitted as ", node));
    }
    known.push_back(incarnation);
  }

 private:
  std::map<std::string, std::vector<uint64_t>> welcomed_;
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

 private:
  std::map<std::pair<std::string, uint64_t>, std::string> facts_;
};

}  // namespace

std::vector<std::unique_ptr<Checker>> MakeCheckers(Violations& violations) {
  std::vector<std::unique_ptr<Checker>> checkers;
  checkers.push_back(std::make_unique<SinglePlacement>(violations));
  checkers.push_back(std::make_unique<ExclusiveSlots>(violations));
  checkers.push_back(std::make_unique<AcknowledgedSurvives>(violations));
  checkers.push_back(std::make_unique<BarriersComplete>(violations));
  checkers.push_back(std::make_unique<KeysStayInTheirGeneration>(violations));
  checkers.push_back(std::make_unique<GenerationsAreNew>(violations));
  checkers.push_back(std::make_unique<LegalTransitions>(violations));
  checkers.push_back(std::make_unique<StaleWorkersAreIgnored>(violations));
  checkers.push_back(std::make_unique<OneWorld>(violations));
  checkers.push_back(std::make_unique<NoticesNameTheMissing>(violations));
  return checkers;
}

}  // namespace muster::simulation
