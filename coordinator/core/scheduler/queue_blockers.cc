#include "coordinator/core/scheduler/queue_blockers.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace muster::core {
namespace {

std::string Left(SteadyTime end, const Time& now) {
  const absl::Duration left = std::max(end - now.steady, absl::ZeroDuration());
  return absl::FormatDuration(absl::Ceil(left, absl::Seconds(1)));
}

// "3 nodes are kept for it (a, b, c), which are free in 12m at the latest".
std::string TextOf(const Reservation& reservation, const Time& now) {
  constexpr size_t kShown = 4;
  std::string nodes;
  for (size_t i = 0; i < std::min(kShown, reservation.nodes.size()); ++i) {
    absl::StrAppend(&nodes, i == 0 ? "" : ", ", reservation.nodes[i].value());
  }
  if (reservation.nodes.size() > kShown) {
    absl::StrAppend(&nodes, " and ", reservation.nodes.size() - kShown, " more");
  }
  const bool one = reservation.nodes.size() == 1;
  std::string text =
      absl::StrCat(one ? "node " : "nodes ", nodes, one ? " is" : " are", " kept for it",
                   reservation.overdue ? " because it is overdue" : "");
  if (reservation.after_preemption) {
    absl::StrAppend(&text, ", where jobs are stopping to make room");
  } else if (reservation.from < SteadyTime::Infinite()) {
    absl::StrAppend(&text, ", free in ", Left(reservation.from, now), " at the latest");
  }
  return text;
}

v1::WaitedFor MakeBlocker(std::string reason, std::string remedy) {
  v1::WaitedFor blocker;
  blocker.set_reason(std::move(reason));
  blocker.set_remedy(std::move(remedy));
  return blocker;
}

// The reservation of the first other job ahead, or of an overdue one; null when there is none.
const Reservation* FirstAhead(const JobId& job, const Plan& plan) {
  for (const Reservation& reservation : plan.reservations) {
    if (reservation.job == job) return nullptr;
    return &reservation;
  }
  return nullptr;
}

bool ExceedsLimit(const std::string& owner, const Verdict& verdict, const Scheduler& scheduler) {
  const uint32_t limit = scheduler.options().LimitsOf(owner).running_slots;
  // The scheduler also counts slots that are being freed for the owner's jobs.
  if (verdict.hindrance == Hindrance::kOwnerLimit) return true;
  return limit > 0 && scheduler.usage().RunningSlots(owner) + uint64_t{verdict.slots} > limit;
}

// The slots that are being freed for other queued jobs of the owner.
uint32_t ClaimedSlots(const JobId& job, const std::string& owner, const Plan& plan,
                      const JobQueue& queue) {
  uint32_t slots = 0;
  for (const Reservation& reservation : plan.reservations) {
    const JobQueue::Entry* const entry = queue.Find(reservation.job);
    if (!reservation.after_preemption || reservation.job == job || entry == nullptr) continue;
    if (queue.order().owner(entry->owner) == owner) slots += plan.Find(*entry).slots;
  }
  return slots;
}

v1::WaitedFor LimitBlocker(const JobId& job, const std::string& owner, const Verdict& verdict,
                           const Plan& plan, const Scheduler& scheduler) {
  const uint32_t limit = scheduler.options().LimitsOf(owner).running_slots;
  const uint32_t claimed = ClaimedSlots(job, owner, plan, scheduler.queue());
  const std::string of = owner.empty() ? "jobs without owner" : owner;
  return MakeBlocker(
      absl::StrCat(of, " may use ", limit, " slots at the same time and uses ",
                   scheduler.usage().RunningSlots(owner),
                   claimed == 0 ? "" : absl::StrCat(", and ", claimed, " are being freed for it"),
                   "; this job takes ", verdict.slots, " more"),
      absl::StrCat("wait until a job of ", of, " ends, or ask an admin to raise the limit"));
}

}  // namespace

std::vector<v1::WaitedFor> QueueBlockers(const JobId& job, const Scheduler& scheduler,
                                         const Time& now) {
  const JobQueue& queue = scheduler.queue();
  const JobQueue::Entry* const entry = queue.Find(job);
  if (entry == nullptr) return {};
  const Plan& plan = scheduler.plan();
  std::vector<v1::WaitedFor> blockers =
      QueueBlockers(job, queue.order().owner(entry->owner), scheduler.PositionOf(job),
                    queue.group(entry->group).length, plan.Find(*entry), plan, scheduler, now);
  const auto head = plan.heads.find({entry->job_class, entry->line});
  const bool overdue = head != plan.heads.end() && head->second.job == job &&
                       !head->second.waits_for_own &&
                       now.steady - head->second.since >= scheduler.options().ageing;
  if (overdue && plan.FindReservation(job) == nullptr) {
    blockers.push_back(
        MakeBlocker(absl::StrCat("it is overdue, but overdue jobs have ", plan.overdue_slots,
                                 " slots already, and may have ", plan.most_overdue_slots,
                                 ", or be a single job"),
                    "wait until one of them ends, or ask an admin to raise overdue_percent"));
  }
  return blockers;
}

std::vector<v1::WaitedFor> QueueBlockers(const JobId& job, const std::string& owner,
                                         uint32_t position, absl::Duration length,
                                         const Verdict& verdict, const Plan& plan,
                                         const Scheduler& scheduler, const Time& now) {
  std::vector<v1::WaitedFor> blockers;
  const std::string where = absl::StrCat("at position ", position, " in the queue");
  const Reservation* const own = plan.FindReservation(job);
  const bool has_claim = own != nullptr && own->after_preemption;
  if (!has_claim && ExceedsLimit(owner, verdict, scheduler)) {
    blockers.push_back(LimitBlocker(job, owner, verdict, plan, scheduler));
  }
  // It waits only for slots: nothing in the queue delays it.
  if (own != nullptr) return blockers;
  const Reservation* const ahead = FirstAhead(job, plan);
  switch (verdict.hindrance) {
    case Hindrance::kUnplaceable:
    case Hindrance::kOwnerLimit:
      break;
    case Hindrance::kReserved:
    case Hindrance::kNoSlots:
    case Hindrance::kNotPlaced: {
      if (ahead == nullptr) break;
      std::string remedy;
      const bool kept = verdict.hindrance == Hindrance::kReserved;
      if (kept && ahead->from < SteadyTime::Infinite() && length > ahead->from - now.steady) {
        remedy = absl::StrCat("submit it with time_limit plus grace_period of less than ",
                              Left(ahead->from, now), ", so that it ends before");
      } else {
        remedy = absl::StrCat("wait until job ", ahead->job.value(), " starts");
      }
      blockers.push_back(MakeBlocker(absl::StrCat("waiting behind job ", ahead->job.value(), ", ",
                                                  where, ": ", TextOf(*ahead, now)),
                                     std::move(remedy)));
      break;
    }
    case Hindrance::kNotExamined:
      blockers.push_back(MakeBlocker(
          absl::StrCat(where, ": ", scheduler.options().backfill_depth,
                       " different requests ahead of it do not fit, and no more are examined"),
          "wait, or ask an admin to raise backfill_depth"));
      break;
  }
  return blockers;
}

std::string WaitsFor(const JobId& job, const Verdict& verdict, const Plan& plan) {
  if (plan.FindReservation(job) != nullptr) return "resources, which are kept for it";
  const Reservation* const ahead = FirstAhead(job, plan);
  switch (verdict.hindrance) {
    case Hindrance::kUnplaceable:
      return "a larger cluster";
    case Hindrance::kOwnerLimit:
      return "its owner's limit of running slots";
    case Hindrance::kReserved:
      return ahead == nullptr ? "resources" : absl::StrCat("job ", ahead->job.value());
    case Hindrance::kNotExamined:
      return "the jobs ahead";
    case Hindrance::kNoSlots:
    case Hindrance::kNotPlaced:
      return "resources";
  }
  return "resources";
}

std::string RemedyOf(const Node& node, const Cluster& cluster, const Time& now) {
  const std::string name = node.record.name();
  if (node.state == v1::LOST || node.leaving) {
    return absl::StrCat("start the worker of ", name);
  }
  if (node.state != v1::READY) return absl::StrCat("wait until ", name, " reconnects");
  if (!node.conflict.empty()) return absl::StrCat("muster admin recover ", name);
  if (node.record.cordoned() || node.IsCoolingDown()) {
    return absl::StrCat("muster node uncordon ", name);
  }
  // The job that is known to end first, else any.
  const RunningJob* first = nullptr;
  for (const auto& [slot, rank] : node.ranks.by_slot()) {
    const RunningJob* const job = cluster.FindRunning(rank.job);
    if (job != nullptr && (first == nullptr || job->end < first->end)) first = job;
  }
  if (first == nullptr) return "";
  if (first->end < SteadyTime::Infinite()) {
    return absl::StrCat("wait until job ", first->id.value(), " ends, in ", Left(first->end, now),
                        " at the latest");
  }
  return absl::StrCat("wait until job ", first->id.value(), " ends; it has no time limit");
}

}  // namespace muster::core
