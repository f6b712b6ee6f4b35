// Invariants of what the coordinator's store remembers.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/time/proto_time.h"
#include "coordinator/core/jobs/job.h"
#include "coordinator/core/reasons.h"
#include "coordinator/core/records.h"
#include "proto/muster/v1/store.pb.h"
#include "tests/simulation/checkers.h"

namespace muster::simulation {

std::set<std::string> RecoveredJobs(const core::Effects& effects) {
  std::set<std::string> jobs;
  for (const store::Mutation& write : effects.writes) {
    v1::EventRecord record;
    const bool recovers = absl::StartsWith(write.key, core::kEventPrefix) &&
                          write.value.has_value() && record.ParseFromString(*write.value) &&
                          record.event().type() == core::events::kRecovered;
    if (recovers) jobs.insert(record.event().job_id());
  }
  return jobs;
}

std::string FindWrongTime(const v1::Job& job, absl::Time now) {
  if (!job.has_submit_time()) return "";  // recovered from workers' records
  absl::Duration sum;
  for (const v1::Goodput::Cause& cause : job.goodput().causes())
    sum += FromProto(cause.wall_time());
  const absl::Time end = job.has_finish_time() ? FromProto(job.finish_time()) : now;
  const absl::Duration age = end - FromProto(job.submit_time());
  // The wall clock, which gives these dates, may have been set, by whole hours.
  const absl::Duration off =
      age - sum - absl::Hours(std::llround(absl::FDivDuration(age - sum, absl::Hours(1))));
  // Records have nanoseconds.
  if (absl::AbsDuration(off) <= absl::Milliseconds(1)) return "";
  return absl::StrCat("the time of ", job.job_id(), " is ", absl::FormatDuration(age),
                      ", but that of its causes ", absl::FormatDuration(sum), ": ",
                      job.goodput().ShortDebugString());
}

namespace {

using Jobs = std::map<std::string, v1::Job>;

// Acknowledged facts survive any crash: that a job exists, that it was cancelled, that it ended.
// Only facts that are newer than a restored copy of the store are lost.
class AcknowledgedSurvives : public StoreChecker<Jobs> {
 public:
  using StoreChecker::StoreChecker;
  void OnReply(const core::Reply& reply) override {
    if (reply.job.ok() && !reply.job->job_id().empty()) facts_[reply.job->job_id()] = *reply.job;
  }
  void OnRecovered(const core::Core& core, Time now) override {
    for (const auto& [id, job] : facts_) {
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
};

struct Generations {
  std::map<std::string, std::string> maps;  // by key of the placement
  std::map<std::string, uint64_t> newest;   // by job
};

// A generation number denotes one rank map forever, is on disk before it is used, and grows by one.
// After the store was replaced, it still grows.
class GenerationsAreNew : public StoreChecker<Generations> {
 public:
  using StoreChecker::StoreChecker;
  void OnStoreReplaced(uint64_t copy) override {
    StoreChecker::OnStoreReplaced(copy);
    replaced_ = true;
  }
  void OnSend(const v1::CoordinatorMessage& message, const Store& disk) override {
    if (!message.has_launch()) return;
    const v1::Launch& launch = message.launch();
    const auto entry =
        disk.find(core::PlacementKey(launch.job_id(), launch.generation(), launch.node_rank()));
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
      if (!absl::StartsWith(write.key, core::kPlacementPrefix) || !write.value.has_value())
        continue;
      v1::PlacementRecord record;
      record.ParseFromString(*write.value);
      std::string map;
      for (const v1::RankRecord& rank : record.placement().ranks()) {
        absl::StrAppend(&map, record.placement().node(), ":", rank.rank(), ":", rank.slots(0), " ");
      }
      const auto [entry, first] = facts_.maps.emplace(write.key, map);
      if (!first && entry->second != map) {
        AddViolation(
            absl::StrCat(write.key, " had the rank map ", entry->second, " and now has ", map));
      }
      uint64_t& newest = facts_.newest[record.job_id()];
      const bool begins = first && record.node_rank() == 0;
      const bool grows =
          replaced_ ? record.generation() > newest : record.generation() == newest + 1;
      if (begins && !grows) {
        AddViolation(absl::StrCat(record.job_id(), " went from generation ", newest, " to ",
                                  record.generation()));
      }
      newest = std::max(newest, record.generation());
    }
  }

 private:
  bool replaced_ = false;
};

// A job that the coordinator knows gets no generation number that a worker has reported.
class ReportedNumbersAreReserved : public StoreChecker<std::set<std::string>> {
 public:
  using StoreChecker::StoreChecker;
  void OnStep(const core::Core& core, const core::Event& event, const core::Effects& effects,
              bool stale) override {
    for (const store::Mutation& write : effects.writes) {
      const bool begins = absl::StartsWith(write.key, core::kGenerationPrefix) &&
                          write.value.has_value() && facts_.insert(write.key).second;
      if (!begins || reported_.count(write.key) == 0 || !RecoveredJobs(effects).empty()) {
        continue;
      }
      AddViolation(absl::StrCat(write.key, " began after a worker had reported this number"));
    }
    NoteReported(core, event, effects);
  }
  void OnRecovered(const core::Core& core, Time now) override { reported_.clear(); }

 private:
  void NoteReported(const core::Core& core, const core::Event& event,
                    const core::Effects& effects) {
    const auto* const opened = std::get_if<core::SessionOpened>(&event);
    if (opened == nullptr || effects.sends.empty()) return;
    for (const v1::GenerationReport& report : opened->hello.inventory()) {
      if (!core.GetJob(JobId(report.job_id()), /*detailed=*/false, Time()).ok()) continue;
      reported_.insert(core::GenerationKey(report.job_id(), report.generation()));
    }
  }

  std::set<std::string> reported_;  // to this coordinator process
};

// Between two records on disk, a job's state moves along the transition table. A step may take more
// than one edge.
class LegalTransitions : public StoreChecker<std::map<std::string, v1::JobState>> {
 public:
  using StoreChecker::StoreChecker;
  void OnCommit(const std::vector<store::Mutation>& writes) override {
    for (const store::Mutation& write : writes) {
      if (!absl::StartsWith(write.key, core::kJobPrefix) || !write.value.has_value()) continue;
      v1::JobRecord record;
      record.ParseFromString(*write.value);
      const auto to = static_cast<v1::JobState>(record.state());
      const auto [entry, first] = facts_.emplace(write.key, to);
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
};

// The time of a job has causes, also while no coordinator runs and if the store is an older one.
class TimeHasCauses : public Checker {
 public:
  using Checker::Checker;
  void OnRecovered(const core::Core& core, Time now) override {
    v1::ListJobsRequest all;
    all.set_include_finished(true);
    for (const v1::Job& brief : core.ListJobs(all, now)) {
      const v1::Job job = *core.GetJob(JobId(brief.job_id()), /*detailed=*/true, now);
      std::string wrong = FindWrongTime(job, now.wall);
      if (!wrong.empty()) AddViolation(std::move(wrong));
    }
  }
};

// Messages of a replaced worker have no effect and are not answered, and it is not admitted again.
class StaleWorkersAreIgnored : public StoreChecker<std::map<std::string, std::vector<uint64_t>>> {
 public:
  using StoreChecker::StoreChecker;
  void OnStep(const core::Core& core, const core::Event& event, const core::Effects& effects,
              bool stale) override {
    if (stale && (!effects.writes.empty() || !effects.sends.empty())) {
      AddViolation("a message of a replaced worker had an effect");
    }
  }
  void OnWelcome(const std::string& node, uint64_t incarnation) override {
    std::vector<uint64_t>& known = facts_[node];
    if (!known.empty() && known.back() == incarnation) return;
    // The coordinator remembers only the latest ones.
    const auto latest = known.size() > 16 ? known.end() - 16 : known.begin();
    if (std::find(latest, known.end(), incarnation) != known.end()) {
      AddViolation(absl::StrCat("a replaced worker was admitted as ", node));
    }
    known.push_back(incarnation);
  }
};

}  // namespace

void AddStoreCheckers(Violations& violations, Checkers& checkers) {
  checkers.push_back(std::make_unique<AcknowledgedSurvives>(violations));
  checkers.push_back(std::make_unique<GenerationsAreNew>(violations));
  checkers.push_back(std::make_unique<ReportedNumbersAreReserved>(violations));
  checkers.push_back(std::make_unique<LegalTransitions>(violations));
  checkers.push_back(std::make_unique<StaleWorkersAreIgnored>(violations));
  checkers.push_back(std::make_unique<TimeHasCauses>(violations));
}

}  // namespace muster::simulation
