#include "coordinator/core/scheduler/plan/queue_order.h"

namespace muster::core {

JobClass ClassOf(absl::string_view name) {
  for (const JobClass job_class : {JobClass::kLow, JobClass::kHigh, JobClass::kCritical}) {
    if (name == NameOf(job_class)) return job_class;
  }
  return JobClass::kNormal;
}

absl::string_view NameOf(JobClass job_class) {
  constexpr absl::string_view kNames[kClasses] = {"low", "normal", "high", "critical"};
  return kNames[static_cast<size_t>(job_class)];
}

uint32_t QueueOrder::AddOwner(const std::string& name) {
  const auto [entry, added] = owner_index_.try_emplace(name, owners_.size());
  if (added) owners_.push_back(name);
  return entry->second;
}

void QueueOrder::Add(const Entry& entry) {
  Class& own = classes_[static_cast<size_t>(entry.job_class)];
  ++own.jobs;
  own.slots[entry.owner] += entry.place.slots;
  Line& line = own.lines[entry.line];
  line.places.insert(entry.place);
  line.slots += entry.place.slots;
  std::set<QueuePlace>& group = line.groups[entry.group];
  if (!group.empty()) line.heads.erase({*group.begin(), entry.group});
  group.insert(entry.place);
  line.heads.insert({*group.begin(), entry.group});
}

void QueueOrder::Remove(const Entry& entry) {
  Class& own = classes_[static_cast<size_t>(entry.job_class)];
  --own.jobs;
  const auto slots = own.slots.find(entry.owner);
  if ((slots->second -= entry.place.slots) == 0) own.slots.erase(slots);
  const auto line = own.lines.find(entry.line);
  line->second.places.erase(entry.place);
  line->second.slots -= entry.place.slots;
  const auto group = line->second.groups.find(entry.group);
  line->second.heads.erase({*group->second.begin(), entry.group});
  group->second.erase(entry.place);
  if (group->second.empty()) {
    line->second.groups.erase(group);
  } else {
    line->second.heads.insert({*group->second.begin(), entry.group});
  }
  if (line->second.groups.empty()) own.lines.erase(line);
}

uint64_t QueueOrder::SlotsBeforeLine(uint32_t owner, size_t job_class) const {
  uint64_t slots = 0;
  for (size_t i = job_class; i < kClasses; ++i) {
    const auto of_owner = classes_[i].slots.find(owner);
    if (of_owner != classes_[i].slots.end()) slots += of_owner->second;
  }
  const Lines& lines = classes_[job_class].lines;
  const auto line = lines.find(1 + owner);
  return line == lines.end() ? slots : slots - line->second.slots;
}

uint32_t QueueOrder::PositionOf(const Entry& entry, Standings standings) const {
  const size_t own_class = static_cast<size_t>(entry.job_class);
  size_t position = 1;
  for (size_t higher = own_class + 1; higher < kClasses; ++higher) {
    position += classes_[higher].jobs;
  }
  const Lines& lines = classes_[own_class].lines;
  const PlaceTotals before = lines.at(entry.line).places.Before(entry.place);
  position += before.jobs;
  if (entry.line == kFrontLine) return static_cast<uint32_t>(position);
  const std::string& owner = owners_[entry.owner];
  const double key =
      KeyOf(standings(owner), SlotsBeforeLine(entry.owner, own_class) + before.slots);
  const SteadyTime since = entry.place.waiting_since;
  for (const auto& [number, line] : lines) {
    if (number == entry.line) continue;
    if (number == kFrontLine) {
      position += line.places.size();
      continue;
    }
    const std::string& other = owners_[number - 1];
    const Standing standing = standings(other);
    const uint64_t earlier = SlotsBeforeLine(number - 1, own_class);
    const bool is_first_of_equals = other < owner;
    position += line.places.CountWhile([&](const QueuePlace& place, uint64_t slots) {
      const double other_key = KeyOf(standing, earlier + slots);
      if (other_key != key) return other_key < key;
      if (place.waiting_since != since) return place.waiting_since < since;
      return is_first_of_equals;
    });
  }
  return static_cast<uint32_t>(position);
}

}  // namespace muster::core
