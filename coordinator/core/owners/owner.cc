#include "coordinator/core/owners/owner.h"

#include <algorithm>
#include <utility>

#include "common/limits.h"
#include "coordinator/core/scheduler/fair_share.h"
#include "coordinator/core/steady_clock.h"

namespace muster::core {
namespace {

constexpr absl::Duration kDay = absl::Hours(24);

void AddCause(v1::TimeCause cause, double slot_seconds, Owner::Day& day) {
  const auto known = std::find_if(day.mutable_causes()->begin(), day.mutable_causes()->end(),
                                  [cause](const auto& time) { return time.cause() == cause; });
  auto& time = known == day.mutable_causes()->end() ? *day.add_causes() : *known;
  time.set_cause(cause);
  time.set_slot_seconds(time.slot_seconds() + slot_seconds);
}

uint32_t Less(uint32_t count, uint32_t by) { return count - std::min(count, by); }

}  // namespace

uint32_t DayOf(SteadyTime time) {
  return static_cast<uint32_t>(std::max<int64_t>(0, time.since_start() / kDay));
}

SteadyTime StartOfDay(uint32_t day) { return SteadyTime(int64_t{day} * kDay); }

Owner::Owner(std::string name, absl::Duration half_life, SteadyTime now)
    : name_(std::move(name)), half_life_(half_life), charged_to_(now) {}

Owner::Owner(const v1::OwnerRecord& record, absl::Duration half_life, SteadyTime now)
    : Owner(record.name(), half_life, now) {
  usage_ = record.usage();
  charged_to_ = std::min(FromStored(record.usage_time()), now);
  for (const Day& day : record.days()) days_[day.day()] = day;
}

void Owner::Start(const SlotCount& slots, SteadyTime now) {
  Charge(now);
  Resume(slots);
}

void Owner::Resume(const SlotCount& slots) {
  running_.cpu += slots.cpu;
  running_.gpu += slots.gpu;
}

void Owner::End(const SlotCount& slots, SteadyTime now) {
  Charge(now);
  running_.cpu = Less(running_.cpu, slots.cpu);
  running_.gpu = Less(running_.gpu, slots.gpu);
}

void Owner::AddCauses(const Ledger& spent, SteadyTime begin, SteadyTime now) {
  const uint32_t today = DayOf(now);
  const uint32_t first = std::clamp(DayOf(begin), Less(today, limits::kReportedDays - 1), today);
  const absl::Duration length = now - begin;
  for (uint32_t day = first; day <= today; ++day) {
    const absl::Duration on_day =
        std::min(now, StartOfDay(day + 1)) - std::max(begin, StartOfDay(day));
    const double share = first == today ? 1 : absl::FDivDuration(on_day, length);
    for (const Ledger::Entry& entry : spent.entries()) {
      if (entry.slot_time > absl::ZeroDuration()) {
        AddCause(entry.cause, share * absl::ToDoubleSeconds(entry.slot_time), OnDay(day));
      }
    }
  }
}

double Owner::Usage(SteadyTime now) const {
  return DecayedUsage(usage_, running_.total(), now - charged_to_, half_life_);
}

void Owner::Charge(SteadyTime now) {
  const SteadyTime begin = std::min(charged_to_, now);
  usage_ = Usage(now);
  charged_to_ = now;
  const uint32_t today = DayOf(now);
  const uint32_t oldest = Less(today, limits::kReportedDays - 1);
  if (running_.total() > 0) {
    for (uint32_t day = std::max(DayOf(begin), oldest); day <= today; ++day) {
      const absl::Duration on_day =
          std::min(now, StartOfDay(day + 1)) - std::max(begin, StartOfDay(day));
      Day& record = OnDay(day);
      const double seconds = absl::ToDoubleSeconds(std::max(on_day, absl::ZeroDuration()));
      record.set_cpu_slot_seconds(record.cpu_slot_seconds() + running_.cpu * seconds);
      record.set_gpu_slot_seconds(record.gpu_slot_seconds() + running_.gpu * seconds);
    }
  }
  days_.erase(days_.begin(), days_.lower_bound(oldest));
}

Owner::Day& Owner::OnDay(uint32_t day) {
  Day& record = days_[day];
  record.set_day(day);
  return record;
}

v1::OwnerRecord Owner::ToRecord() const {
  v1::OwnerRecord record;
  record.set_name(name_);
  record.set_usage(usage_);
  *record.mutable_usage_time() = ToStored(charged_to_);
  for (const auto& [number, day] : days_) *record.add_days() = day;
  return record;
}

}  // namespace muster::core
