#include "coordinator/core/scheduler/queue.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace muster::core {

void JobQueue::Add(const Job& job) {
  const JobId id = job.id();
  Remove(id);
  const Place place{-job.spec().priority(), job.status.generation() == 0, job.queue_sequence, id};
  const auto [shape, added] = shapes_.try_emplace(job.spec().resources().SerializeAsString());
  if (added) unchecked_.insert(shape->first);
  std::set<Place>& jobs = shape->second.jobs;
  if (shape->second.unplaceable.empty()) {
    if (!jobs.empty()) heads_.erase(*jobs.begin());
    heads_.insert(jobs.empty() ? place : std::min(place, *jobs.begin()));
  }
  jobs.insert(place);
  order_.insert(place);
  places_.emplace(id, Entry{place, shape});
}

void JobQueue::Remove(const JobId& id) {
  const auto entry = places_.find(id);
  if (entry == places_.end()) return;
  const auto [place, shape] = entry->second;
  std::set<Place>& jobs = shape->second.jobs;
  jobs.erase(place);
  if (heads_.erase(place) != 0 && !jobs.empty()) heads_.insert(*jobs.begin());
  order_.erase(place);
  places_.erase(entry);
  if (!jobs.empty()) return;
  unchecked_.erase(shape->first);
  shapes_.erase(shape);
}

uint32_t JobQueue::PositionOf(const JobId& id) const {
  const auto entry = places_.find(id);
  if (entry == places_.end()) return 0;
  return static_cast<uint32_t>(order_.order_of_key(entry->second.place)) + 1;
}

std::vector<JobId> JobQueue::First(size_t count) const {
  std::vector<JobId> ids;
  for (const Place& place : order_) {
    if (ids.size() == count) break;
    ids.push_back(IdOf(place));
  }
  return ids;
}

std::vector<JobId> JobQueue::CheckShapes(Check check) {
  std::vector<JobId> changed;
  for (auto key = unchecked_.begin(); key != unchecked_.end();) {
    Shape& shape = shapes_.at(*key);
    const std::optional<std::string> reason = check(IdOf(*shape.jobs.begin()));
    if (reason.value_or("") != shape.unplaceable) {
      SetUnplaceable(shape, reason.value_or(""));
      for (const Place& place : shape.jobs) changed.push_back(IdOf(place));
    }
    key = reason.has_value() ? unchecked_.erase(key) : std::next(key);
  }
  return changed;
}

void JobQueue::UncheckShapes() {
  for (const auto& [key, shape] : shapes_) unchecked_.insert(key);
}

void JobQueue::SetUnplaceable(Shape& shape, std::string reason) {
  shape.unplaceable = std::move(reason);
  if (shape.unplaceable.empty()) {
    heads_.insert(*shape.jobs.begin());
  } else {
    heads_.erase(*shape.jobs.begin());
  }
}

const std::string& JobQueue::UnplaceableReason(const JobId& id) const {
  static const std::string& none = *new std::string;
  const auto entry = places_.find(id);
  return entry == places_.end() ? none : entry->second.shape->second.unplaceable;
}

}  // namespace muster::core
