// Planner: serves jobs that have waited for too long, so that no class starves.
//
// A job ages while it is the first of its owner and class that fits on the cluster and its owner's
// limit, and no job of both that was submitted earlier runs: any other wait is its owner's doing.
// After SchedulerOptions.ageing it is overdue. The oldest overdue job of each class starts ahead of
// all that are not critical, or has a reservation against them. The jobs that have started in this
// way, and the reservations, take a small part of the slots, or are a single job.
#include <algorithm>
#include <optional>
#include <utility>

#include "coordinator/core/scheduler/plan.h"

namespace muster::core {

const JobQueue::Entry* Planner::FirstOf(const JobQueue::Line& line) const {
  for (const auto& [place, group] : line.heads) {
    if (!queue_.ShapeOfGroup(group).unplaceable.empty()) continue;
    const JobQueue::Entry& entry = queue_.entry(place.job);
    const uint32_t limit = options_.LimitsOf(queue_.owner(entry.owner)).running_slots;
    if (limit == 0 || !ExceedsLimit(Describe(entry))) return &entry;
  }
  return nullptr;
}

std::vector<Head> Planner::FindOverdue() {
  std::vector<Head> oldest;
  for (size_t i = 0; i < kClasses; ++i) {
    std::optional<Head> of_class;
    for (const auto& [number, line] : queue_.lines(i)) {
      const std::pair key(static_cast<JobClass>(i), number);
      const JobQueue::Entry* const entry = FirstOf(line);
      if (entry == nullptr) {
        plan_.heads[key] = {JobId(), now_};
        continue;
      }
      const auto last = last_.heads.find(key);
      Head head{entry->id, entry->place.waiting_since};
      head.waits_for_own = cluster_.RunsEarlier(queue_.owner(entry->owner),
                                                static_cast<JobClass>(i), entry->place.sequence);
      if (last != last_.heads.end()) {
        const bool goes_on = last->second.job == entry->id && !last->second.waits_for_own;
        head.since = goes_on ? last->second.since : now_;
      }
      const bool overdue = !head.waits_for_own && now_ - head.since >= options_.ageing;
      plan_.heads[key] = head;
      if (head.waits_for_own) continue;  // the end of that job is followed by a decision
      if (!overdue) {
        plan_.next_overdue = std::min(plan_.next_overdue, head.since + options_.ageing);
      } else if (!of_class.has_value() || head.since < of_class->since) {
        of_class = head;
      }
    }
    if (of_class.has_value()) oldest.push_back(*of_class);
  }
  std::stable_sort(oldest.begin(), oldest.end(),
                   [](const Head& a, const Head& b) { return a.since < b.since; });
  return oldest;
}

void Planner::ServeOverdue(Start start) {
  plan_.most_overdue_slots = cluster_.slot_count() * options_.overdue_percent / 100;
  for (const Head& head : FindOverdue()) {
    const JobQueue::Entry* const entry = queue_.Find(head.job);
    if (entry == nullptr || plan_.FindReservation(head.job) != nullptr) continue;
    const uint32_t group = entry->group;
    const Candidate job = Describe(*entry);
    // No younger one goes first, so that large jobs are served, too.
    const bool alone = plan_.overdue_slots == 0;
    if (!alone && plan_.overdue_slots + job.slots > plan_.most_overdue_slots) break;
    if (const std::optional<uint32_t> row = FindRow(job)) {
      std::optional<StartRequest> request = MakeRequest(job, *row);
      if (!request.has_value()) continue;
      request->overdue = true;
      const StartResult result = CallStart(start, *request);
      if (result.outcome == StartResult::Outcome::kStarted) {
        NoteStart(job, *row, result);
        plan_.overdue_slots += job.slots;
      }
      if (result.outcome != StartResult::Outcome::kNotPlaced) continue;
    }
    if (!Reserve(job)) continue;
    plan_.reservations.back().overdue = true;
    plan_.overdue_slots += job.slots;
    plan_.of_groups.try_emplace(group, Verdict{Hindrance::kNoSlots, job.slots});
    kept_overdue_.insert(job.id);
  }
}

}  // namespace muster::core
