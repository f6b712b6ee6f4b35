#include "coordinator/core/scheduler/plan/overdue.h"

#include <algorithm>
#include <optional>

namespace muster::core {
namespace {

// The first job of the line that fits on the cluster and its owner's limit; null if none does.
const JobQueue::Entry* FirstOf(const JobQueue& queue, const QueueOrder::Line& line,
                               absl::FunctionRef<bool(const JobQueue::Entry&)> fits) {
  for (const auto& [place, group] : line.heads) {
    if (!queue.ShapeOfGroup(group).unplaceable.empty()) continue;
    const JobQueue::Entry& entry = queue.entry(place.job);
    if (fits(entry)) return &entry;
  }
  return nullptr;
}

}  // namespace

Ageing Age(const JobQueue& queue, const Cluster& cluster, const Heads& last, absl::Duration ageing,
           SteadyTime now, absl::FunctionRef<bool(const JobQueue::Entry&)> fits) {
  Ageing result;
  for (size_t i = 0; i < kClasses; ++i) {
    const JobClass job_class = static_cast<JobClass>(i);
    std::optional<Head> oldest;
    for (const auto& [number, line] : queue.order().lines(i)) {
      const std::pair key(job_class, number);
      const JobQueue::Entry* const entry = FirstOf(queue, line, fits);
      if (entry == nullptr) {
        result.heads[key] = {JobId(), now};
        continue;
      }
      Head head{entry->id, entry->place.waiting_since};
      head.waits_for_own =
          cluster.RunsEarlier(queue.order().owner(entry->owner), job_class, entry->place.sequence);
      const auto before = last.find(key);
      if (before != last.end()) {
        const bool goes_on = before->second.job == entry->id && !before->second.waits_for_own;
        head.since = goes_on ? before->second.since : now;
      }
      result.heads[key] = head;
      if (head.waits_for_own) continue;  // the end of that job is followed by a decision
      if (now - head.since < ageing) {
        result.next_overdue = std::min(result.next_overdue, head.since + ageing);
      } else if (!oldest.has_value() || head.since < oldest->since) {
        oldest = head;
      }
    }
    if (oldest.has_value()) result.overdue.push_back(*oldest);
  }
  std::stable_sort(result.overdue.begin(), result.overdue.end(),
                   [](const Head& a, const Head& b) { return a.since < b.since; });
  return result;
}

}  // namespace muster::core
