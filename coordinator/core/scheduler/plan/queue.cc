#include "coordinator/core/scheduler/plan/queue.h"

#include <algorithm>
#include <iterator>

namespace muster::core {
namespace {

constexpr absl::string_view kClassNames[kClasses] = {"low", "normal", "high", "critical"};
constexpr uint32_t kFrontLine = 0;

// Takes an unused index of `items`, or appends an item.
template <typename Item>
uint32_t TakeIndex(std::vector<Item>& items, std::vector<uint32_t>& free) {
  if (free.empty()) {
    items.emplace_back();
    return static_cast<uint32_t>(items.size() - 1);
  }
  const uint32_t index = free.back();
  free.pop_back();
  return index;
}

}  // namespace

JobClass ClassOf(absl::string_view name) {
  for (const JobClass job_class : {JobClass::kLow, JobClass::kHigh, JobClass::kCritical}) {
    if (name == NameOf(job_class)) return job_class;
  }
  return JobClass::kNormal;
}

absl::string_view NameOf(JobClass job_class) { return kClassNames[static_cast<size_t>(job_class)]; }

// ------------------------------------------------------------------------------------------------
// jobs

uint32_t JobQueue::AddOwner(const std::string& name) {
  const auto [entry, added] = owner_index_.try_emplace(name, owners_.size());
  if (added) {
    owners_.push_back(name);
    owner_jobs_.push_back(0);
  }
  return entry->second;
}

uint32_t JobQueue::AddShape(const QueueItem& item) {
  const auto [entry, added] = shape_index_.try_emplace(item.resources.SerializeAsString(), 0);
  if (!added) return entry->second;
  const uint32_t index = TakeIndex(shapes_, free_shapes_);
  shapes_[index] = {next_serial_++, item.resources, item.slots, 0, {}, ""};
  unchecked_.insert(index);
  return entry->second = index;
}

uint32_t JobQueue::AddGroup(const QueueItem& item) {
  const uint32_t shape = AddShape(item);
  const auto [entry, added] =
      group_index_.try_emplace({shape, item.length, item.job_class, item.preempted}, 0);
  if (!added) return entry->second;
  const uint32_t index = TakeIndex(groups_, free_groups_);
  groups_[index] = {shape, item.length, item.job_class, item.preempted, 0};
  ++shapes_[shape].groups;
  return entry->second = index;
}

void JobQueue::Add(const QueueItem& item) {
  // Before the job leaves its old place, so that the verdict on its request is kept.
  const uint32_t group_index = AddGroup(item);
  ++groups_[group_index].jobs;
  Remove(item.id);
  const uint32_t job = TakeIndex(entries_, free_entries_);
  index_[item.id.value()] = job;
  Entry& entry = entries_[job];
  entry.id = item.id;
  entry.owner = AddOwner(item.owner);
  ++owner_jobs_[entry.owner];
  entry.group = group_index;
  shapes_[groups_[group_index].shape].jobs.insert(job);
  entry.queued = true;
  entry.place = {-item.priority, !item.has_run, item.waiting_since,
                 item.sequence,  job,           std::max(1u, item.slots)};
  Enter(job, item.restarting);
}

void JobQueue::Remove(const JobId& id) {
  const auto found = index_.find(id.value());
  if (found == index_.end()) return;
  const uint32_t job = found->second;
  Leave(job);
  LeaveGroup(job);
  --owner_jobs_[entries_[job].owner];
  entries_[job].queued = false;
  free_entries_.push_back(job);
  index_.erase(found);
}

void JobQueue::LeaveGroup(uint32_t job) {
  const uint32_t index = entries_[job].group;
  Group& group = groups_[index];
  const uint32_t shape_index = group.shape;
  Shape& shape = shapes_[shape_index];
  shape.jobs.erase(job);
  if (--group.jobs > 0) return;
  group_index_.erase({shape_index, group.length, group.job_class, group.preempted});
  free_groups_.push_back(index);
  if (--shape.groups > 0) return;
  unchecked_.erase(shape_index);
  shape_index_.erase(shape.resources.SerializeAsString());
  shape = Shape();
  free_shapes_.push_back(shape_index);
}

void JobQueue::Enter(uint32_t job, bool restarting) {
  Entry& entry = entries_[job];
  entry.line = restarting ? kFrontLine : 1 + entry.owner;
  if (restarting) {
    entry.place.minus_priority = 0;
    entry.place.has_not_run = false;
  }
  Class& own = classes_[ClassOfJob(job)];
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

void JobQueue::Leave(uint32_t job) {
  const Entry& entry = entries_[job];
  Class& own = classes_[ClassOfJob(job)];
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

// ------------------------------------------------------------------------------------------------
// reading

const JobQueue::Entry* JobQueue::Find(const JobId& id) const {
  const auto found = index_.find(id.value());
  return found == index_.end() ? nullptr : &entries_[found->second];
}

uint64_t JobQueue::SlotsBeforeLine(uint32_t owner, size_t job_class) const {
  uint64_t slots = 0;
  for (size_t i = job_class; i < kClasses; ++i) {
    const auto of_owner = classes_[i].slots.find(owner);
    if (of_owner != classes_[i].slots.end()) slots += of_owner->second;
  }
  const Lines& lines = classes_[job_class].lines;
  const auto line = lines.find(1 + owner);
  return line == lines.end() ? slots : slots - line->second.slots;
}

uint32_t JobQueue::PositionOf(const JobId& id, Standings standings) const {
  const Entry* const entry = Find(id);
  if (entry == nullptr) return 0;
  const size_t own_class = ClassOfJob(entry->place.job);
  size_t position = 1;
  for (size_t higher = own_class + 1; higher < kClasses; ++higher) {
    position += classes_[higher].jobs;
  }
  const Lines& lines = classes_[own_class].lines;
  const PlaceTotals before = lines.at(entry->line).places.Before(entry->place);
  position += before.jobs;
  if (entry->line == kFrontLine) return static_cast<uint32_t>(position);
  const std::string& owner = owners_[entry->owner];
  const double key =
      KeyOf(standings(owner), SlotsBeforeLine(entry->owner, own_class) + before.slots);
  const SteadyTime since = entry->place.waiting_since;
  for (const auto& [number, line] : lines) {
    if (number == entry->line) continue;
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

uint32_t JobQueue::QueuedJobs(const std::string& owner) const {
  const auto found = owner_index_.find(owner);
  return found == owner_index_.end() ? 0 : owner_jobs_[found->second];
}

std::vector<std::string> JobQueue::Owners() const {
  std::vector<std::string> names;
  for (size_t i = 0; i < owners_.size(); ++i) {
    if (owner_jobs_[i] > 0) names.push_back(owners_[i]);
  }
  return names;
}

// ------------------------------------------------------------------------------------------------
// shapes

std::vector<JobId> JobQueue::CheckShapes(Check check) {
  std::vector<JobId> changed;
  for (auto index = unchecked_.begin(); index != unchecked_.end();) {
    Shape& shape = shapes_[*index];
    const std::optional<std::string> reason = check(entries_[*shape.jobs.begin()].id);
    if (reason.value_or("") != shape.unplaceable) {
      shape.unplaceable = reason.value_or("");
      for (const uint32_t job : shape.jobs) changed.push_back(entries_[job].id);
    }
    index = reason.has_value() ? unchecked_.erase(index) : std::next(index);
  }
  return changed;
}

void JobQueue::UncheckShapes() {
  for (const auto& [key, index] : shape_index_) unchecked_.insert(index);
}

const std::string& JobQueue::UnplaceableReason(const JobId& id) const {
  static const std::string& none = *new std::string;
  const Entry* const entry = Find(id);
  return entry == nullptr ? none : ShapeOfGroup(entry->group).unplaceable;
}

// ------------------------------------------------------------------------------------------------
// walk

QueueWalk::QueueWalk(const JobQueue& queue, Standings standings)
    : queue_(queue), skipped_(queue.group_end()), left_(queue.group_count()) {
  for (size_t job_class = 0; job_class < kClasses; ++job_class) {
    for (const auto& [number, line] : queue.lines(job_class)) {
      if (number == kFrontLine || standings_.count(number) != 0) continue;
      standings_[number] = standings(queue.owner(number - 1));
    }
  }
}

bool QueueWalk::IsBefore(const Cursor& a, const Cursor& b) const {
  if ((a.line == kFrontLine) != (b.line == kFrontLine)) return a.line == kFrontLine;
  if (a.key != b.key) return a.key < b.key;
  if (a.waiting_since != b.waiting_since) return a.waiting_since < b.waiting_since;
  return queue_.owner(a.line - 1) < queue_.owner(b.line - 1);
}

void QueueWalk::EnterClass() {
  cursors_.clear();
  order_.clear();
  for (const auto& [number, line] : queue_.lines(class_)) {
    Cursor& cursor = cursors_.emplace_back();
    cursor.line = number;
    cursor.waiting_since = line.heads.begin()->first.waiting_since;
    if (number != kFrontLine) cursor.standing = standings_[number];
    UpdateKey(cursor);
    order_.push_back(cursors_.size() - 1);
  }
  std::make_heap(order_.begin(), order_.end(),
                 [this](size_t a, size_t b) { return IsBefore(cursors_[b], cursors_[a]); });
}

void QueueWalk::UpdateKey(Cursor& cursor) {
  const auto started = started_slots_.find(cursor.line);
  cursor.key = queue_.KeyOf(cursor.standing, started == started_slots_.end() ? 0 : started->second);
  if (!cursor.heads.empty()) cursor.waiting_since = cursor.heads.front().first.waiting_since;
}

bool QueueWalk::Advance(Cursor& cursor) {
  const auto later = std::greater<std::pair<QueuePlace, uint32_t>>();
  const JobQueue::Lines& lines = queue_.lines(class_);
  const auto line = lines.find(cursor.line);
  if (line == lines.end()) return false;
  if (!cursor.open) {
    cursor.open = true;
    // The heads are sorted, and therefore a heap.
    cursor.heads.assign(line->second.heads.begin(), line->second.heads.end());
  }
  while (!cursor.heads.empty()) {
    const auto [place, group] = cursor.heads.front();
    const bool skipped = group >= skipped_.size() || skipped_[group] ||
                         std::count(cursor.skipped.begin(), cursor.skipped.end(), group) != 0;
    const auto places = line->second.groups.find(group);
    if (!skipped && places != line->second.groups.end() && places->second.count(place) != 0) {
      return true;
    }
    std::pop_heap(cursor.heads.begin(), cursor.heads.end(), later);
    cursor.heads.pop_back();
    if (skipped || places == line->second.groups.end()) continue;
    const auto next = places->second.upper_bound(place);  // `place` has been removed
    if (next == places->second.end()) continue;
    cursor.heads.push_back({*next, group});
    std::push_heap(cursor.heads.begin(), cursor.heads.end(), later);
  }
  return false;
}

const JobQueue::Entry* QueueWalk::Next() {
  const auto later = [this](size_t a, size_t b) { return IsBefore(cursors_[b], cursors_[a]); };
  while (left_ > 0) {
    while (order_.empty()) {
      if (class_ == 0) return nullptr;
      --class_;
      EnterClass();
    }
    last_ = order_.front();
    Cursor& cursor = cursors_[last_];
    if (!Advance(cursor)) {
      std::pop_heap(order_.begin(), order_.end(), later);
      order_.pop_back();
      continue;
    }
    // The successor takes the place of the job, which may be removed before the next call.
    const auto [place, group] = cursor.heads.front();
    const std::set<QueuePlace>& places = queue_.lines(class_).at(cursor.line).groups.at(group);
    std::pop_heap(cursor.heads.begin(), cursor.heads.end(),
                  std::greater<std::pair<QueuePlace, uint32_t>>());
    cursor.heads.pop_back();
    const auto next = places.upper_bound(place);
    if (next != places.end()) {
      cursor.heads.push_back({*next, group});
      std::push_heap(cursor.heads.begin(), cursor.heads.end(),
                     std::greater<std::pair<QueuePlace, uint32_t>>());
    }
    last_owner_ = queue_.entry(place.job).owner;
    return &queue_.entry(place.job);
  }
  return nullptr;
}

void QueueWalk::Count(uint32_t slots) {
  started_slots_[1 + last_owner_] += slots;
  const auto later = [this](size_t a, size_t b) { return IsBefore(cursors_[b], cursors_[a]); };
  if (cursors_[last_].line != kFrontLine) {
    std::pop_heap(order_.begin(), order_.end(), later);
    UpdateKey(cursors_[last_]);
    std::push_heap(order_.begin(), order_.end(), later);
    return;
  }
  for (Cursor& cursor : cursors_) UpdateKey(cursor);
  std::make_heap(order_.begin(), order_.end(), later);
}

void QueueWalk::SkipGroup(uint32_t group) {
  if (skipped_[group]) return;
  skipped_[group] = true;
  --left_;
}

void QueueWalk::SkipGroupInLine(uint32_t group) { cursors_[last_].skipped.push_back(group); }

}  // namespace muster::core
