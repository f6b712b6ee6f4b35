#include "coordinator/core/owners/owner_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "coordinator/core/owners/priority_class.h"
#include "coordinator/core/owners/wait_histogram.h"
#include "coordinator/core/records.h"

namespace muster::core {
namespace {

// Below this, an owner without jobs is not shown.
constexpr double kShownSlotSeconds = 1;

std::string NameOf(const std::string& owner) { return owner.empty() ? "the caller" : owner; }

}  // namespace

absl::Status OwnerTable::CheckSubmit(const v1::JobSpec& spec, const Actor& actor,
                                     uint32_t jobs) const {
  const SchedulerOptions& options = context_.options.scheduler;
  RETURN_IF_ERROR(CheckPriorityClass(spec.priority_class(), actor.is_admin, options));
  const uint32_t limit = options.LimitsOf(actor.name).queued_jobs;
  if (limit == 0) return absl::OkStatus();
  const auto owner = owners_.find(actor.name);
  const uint32_t queued = owner == owners_.end() ? 0 : owner->second.queued_jobs;
  if (uint64_t{queued} + jobs <= limit) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(NameOf(actor.name), " has ", queued, " queued jobs, and ", jobs,
                   jobs == 1 ? " job" : " jobs", " more would exceed the limit of ", limit,
                   " for one owner; wait for some to start or cancel some"));
}

Owner& OwnerTable::At(const std::string& name) {
  const auto known = owners_.find(name);
  if (known != owners_.end()) return known->second;
  if (owners_.size() >= max_owners_) ForgetLeastUsed();
  return owners_
      .emplace(name, Owner(name, context_.options.scheduler.half_life, context_.now.steady))
      .first->second;
}

void OwnerTable::ForgetLeastUsed() {
  auto least = owners_.end();
  double least_usage = 0;
  for (auto owner = owners_.begin(); owner != owners_.end(); ++owner) {
    if (!owner->second.is_idle()) continue;
    const double usage = owner->second.Usage(context_.now.steady);
    if (least != owners_.end() && usage >= least_usage) continue;
    least = owner;
    least_usage = usage;
  }
  if (least == owners_.end()) return;  // as many owners as there are may have jobs
  context_.effects.writes.push_back({OwnerKey(least->first), std::nullopt});
  changed_.erase(least->first);
  owners_.erase(least);
}

Owner& OwnerTable::Change(const std::string& name) {
  Owner& owner = At(name);
  owner.Charge(context_.now.steady);
  changed_.insert(name);
  return owner;
}

// ------------------------------------------------------------------------------------------------
// life cycle

void OwnerTable::OnUnqueued(const v1::Job& job) {
  uint32_t& queued = At(job.owner()).queued_jobs;
  if (queued > 0) --queued;
}

void OwnerTable::OnStart(const v1::Job& job, const SlotCount& slots,
                         std::optional<SteadyTime> submitted) {
  Owner& owner = Change(job.owner());
  const SteadyTime now = context_.now.steady;
  owner.Start(slots, now);
  if (!submitted.has_value()) return;
  Owner::Day& day = owner.OnDay(DayOf(*submitted));
  day.set_jobs_submitted(day.jobs_submitted() + 1);
  AddWait(now - *submitted, *owner.OnDay(DayOf(now)).mutable_waits());
}

void OwnerTable::OnEnd(const v1::Job& job, const SlotCount& slots, const Ledger& spent,
                       SteadyTime begin) {
  Owner& owner = Change(job.owner());
  owner.End(slots, context_.now.steady);
  owner.AddCauses(spent, begin, context_.now.steady);
}

void OwnerTable::OnFinish(const v1::Job& job, SteadyTime submitted, v1::JobState state) {
  Owner& owner = Change(job.owner());
  if (!job.has_start_time()) {
    Owner::Day& day = owner.OnDay(DayOf(submitted));
    day.set_jobs_submitted(day.jobs_submitted() + 1);
  }
  Owner::Day& today = owner.OnDay(DayOf(context_.now.steady));
  if (state == v1::SUCCEEDED) {
    today.set_jobs_succeeded(today.jobs_succeeded() + 1);
  } else if (state == v1::CANCELLED) {
    today.set_jobs_cancelled(today.jobs_cancelled() + 1);
  } else if (state == v1::TIMED_OUT) {
    today.set_jobs_timed_out(today.jobs_timed_out() + 1);
  } else {
    today.set_jobs_failed(today.jobs_failed() + 1);
  }
}

// ------------------------------------------------------------------------------------------------
// reading

double OwnerTable::Usage(const std::string& owner, SteadyTime now) const {
  const auto known = owners_.find(owner);
  return known == owners_.end() ? 0 : known->second.Usage(now);
}

uint32_t OwnerTable::RunningSlots(const std::string& owner) const {
  const auto known = owners_.find(owner);
  return known == owners_.end() ? 0 : known->second.running().total();
}

std::vector<v1::OwnerUse> OwnerTable::Uses(Time now) const {
  const SchedulerOptions& options = context_.options.scheduler;
  double total = 0;
  double shares = 0;
  for (const auto& [name, owner] : owners_) {
    total += owner.Usage(now.steady);
    if (!owner.is_idle()) shares += options.ShareOf(name);
  }
  std::vector<v1::OwnerUse> uses;
  for (const auto& [name, owner] : owners_) {
    const double usage = owner.Usage(now.steady);
    if (owner.is_idle() && usage < kShownSlotSeconds) continue;
    v1::OwnerUse& use = uses.emplace_back();
    use.set_owner(name);
    use.set_usage(usage);
    if (total > 0) use.set_usage_ratio(usage / total);
    if (!owner.is_idle() && shares > 0) use.set_share_ratio(options.ShareOf(name) / shares);
    use.set_running_slots(owner.running().total());
    use.set_running_slots_limit(options.LimitsOf(name).running_slots);
    use.set_queued_jobs(owner.queued_jobs);
    use.set_queued_jobs_limit(options.LimitsOf(name).queued_jobs);
  }
  return uses;
}

// ------------------------------------------------------------------------------------------------
// records

void OwnerTable::Restore(const v1::OwnerRecord& record) {
  owners_.insert_or_assign(
      record.name(), Owner(record, context_.options.scheduler.half_life, context_.now.steady));
}

void OwnerTable::WriteChanges() {
  for (const std::string& name : std::exchange(changed_, {})) {
    context_.effects.writes.push_back(Put(owners_.at(name).ToRecord()));
  }
}

}  // namespace muster::core
