#include "coordinator/core/recovery/stragglers.h"

#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "coordinator/core/reasons.h"

namespace muster::core {
namespace {

// Events of one generation. A rank whose speed varies may become slow again and again.
constexpr uint32_t kEvents = 64;

const char* PhaseOf(StragglerDetector::Phase phase) {
  return phase == StragglerDetector::Phase::kInput ? "input" : "compute";
}

std::string Describe(const StragglerDetector::Change& change, const std::string& node) {
  const bool input = change.phase == StragglerDetector::Phase::kInput;
  return absl::StrCat("rank ", change.rank, " on ", node, " is ",
                      absl::StrFormat("%.0f", 100 * (change.slowdown - 1)), " % slower ",
                      change.by_growth ? "than before, compared with the other ranks, "
                                       : "than the median of its peers ",
                      input ? "because it waits for its input" : "in compute", " since step ",
                      change.step, "; all ranks wait for it");
}

}  // namespace

void Stragglers::NoteWindows(Job& job, const RankState& rank, const v1::StepWindows& windows) {
  if (job.state() != v1::RUNNING || rank.gone()) return;
  const auto ranks = static_cast<uint32_t>(job.generation->ranks.size());
  auto entry = watches_.find(job.id());
  if (entry == watches_.end()) {
    std::set<uint32_t> slow;
    for (const v1::Straggler& straggler : job.status.stragglers()) slow.insert(straggler.rank());
    entry = watches_.emplace(job.id(), Watch{StragglerDetector(ranks, slow), ranks}).first;
  }
  Watch& watch = entry->second;
  for (const StragglerDetector::Change& change : watch.detector.Add(rank.rank, windows)) {
    change.begins ? Begin(job, watch, change) : EndOf(job, watch, change);
  }
}

void Stragglers::Begin(Job& job, Watch& watch, const StragglerDetector::Change& change) {
  const GenerationState& generation = *job.generation;
  v1::Straggler straggler;
  straggler.set_rank(change.rank);
  straggler.set_node(generation.placement(generation.ranks[change.rank].node_rank).node());
  straggler.set_phase(PhaseOf(change.phase));
  straggler.set_slowdown(change.slowdown);
  straggler.set_since_step(change.step);
  straggler.set_message(Describe(change, straggler.node()));
  AddEvent(job, watch, events::kStragglerFound, straggler.message());
  context_.stats.Count("muster_stragglers_total", {straggler.phase()});
  auto& stragglers = *job.status.mutable_stragglers();
  *stragglers.Add() = std::move(straggler);
  std::sort(stragglers.begin(), stragglers.end(),
            [](const v1::Straggler& a, const v1::Straggler& b) { return a.rank() < b.rank(); });
  jobs_.MarkJob(job);
}

void Stragglers::EndOf(Job& job, Watch& watch, const StragglerDetector::Change& change) {
  auto& stragglers = *job.status.mutable_stragglers();
  const auto found =
      std::find_if(stragglers.begin(), stragglers.end(),
                   [&](const v1::Straggler& straggler) { return straggler.rank() == change.rank; });
  if (found == stragglers.end()) return;
  AddEvent(job, watch, events::kStragglerEnded,
           absl::StrCat("rank ", change.rank, " on ", found->node(),
                        " is no longer slower than its peers as of step ", change.step));
  stragglers.erase(found);
  jobs_.MarkJob(job);
}

void Stragglers::AddEvent(Job& job, Watch& watch, const char* type, const std::string& message) {
  if (watch.events++ < kEvents) jobs_.AddEvent(job, type, message);
}

void Stragglers::End(Job& job) {
  watches_.erase(job.id());
  if (job.status.stragglers().empty()) return;
  job.status.clear_stragglers();
  jobs_.MarkJob(job);
}

double Stragglers::SlowdownOf(const JobId& job, uint32_t rank) const {
  const auto entry = watches_.find(job);
  if (entry == watches_.end() || rank >= entry->second.ranks) return 0;
  return entry->second.detector.slowdown(rank);
}

double Stragglers::HighestSlowdown(const JobId& job) const {
  const auto entry = watches_.find(job);
  if (entry == watches_.end()) return 0;
  double highest = 0;
  for (uint32_t rank = 0; rank < entry->second.ranks; ++rank) {
    highest = std::max(highest, entry->second.detector.slowdown(rank));
  }
  return highest;
}

}  // namespace muster::core
