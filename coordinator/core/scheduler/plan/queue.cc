#include "coordinator/core/scheduler/plan/queue.h"

#include <algorithm>

namespace muster::core {
namespace {

constexpr uint32_t kFrontLine = QueueOrder::kFrontLine;

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

void JobQueue::Add(const QueueItem& item) {
  // Before the job leaves its old place, so that the verdict on its request is kept.
  const uint32_t shape = shapes_.Acquire(item.resources, item.slots);
  const auto [group, added] =
      group_index_.try_emplace({shape, item.length, item.job_class, item.preempted}, 0);
  if (added) {
    group->second = TakeIndex(groups_, free_groups_);
    groups_[group->second] = {shape, item.length, item.job_class, item.preempted, 0};
  }
  ++groups_[group->second].jobs;
  Remove(item.id);
  const uint32_t job = TakeIndex(entries_, free_entries_);
  index_[item.id.value()] = job;
  shapes_.Insert(shape, job);
  Entry& entry = entries_[job];
  entry.id = item.id;
  entry.owner = order_.AddOwner(item.owner);
  entry.group = group->second;
  entry.line = item.restarting ? kFrontLine : 1 + entry.owner;
  entry.job_class = item.job_class;
  entry.place = {-item.priority, !item.has_run, item.waiting_since,
                 item.sequence,  job,           std::max(1u, item.slots)};
  if (item.restarting) {
    entry.place.minus_priority = 0;
    entry.place.has_not_run = false;
  }
  order_.Add(entry);
}

void JobQueue::Remove(const JobId& id) {
  const auto found = index_.find(id.value());
  if (found == index_.end()) return;
  const uint32_t job = found->second;
  const Entry& entry = entries_[job];
  Group& group = groups_[entry.group];
  order_.Remove(entry);
  shapes_.Remove(group.shape, job);
  if (--group.jobs == 0) {
    group_index_.erase({group.shape, group.length, group.job_class, group.preempted});
    free_groups_.push_back(entry.group);
  }
  free_entries_.push_back(job);
  index_.erase(found);
}

const JobQueue::Entry* JobQueue::Find(const JobId& id) const {
  const auto found = index_.find(id.value());
  return found == index_.end() ? nullptr : &entries_[found->second];
}

uint32_t JobQueue::PositionOf(const JobId& id, Standings standings) const {
  const Entry* const entry = Find(id);
  return entry == nullptr ? 0 : order_.PositionOf(*entry, standings);
}

std::vector<JobId> JobQueue::CheckShapes(Check check) {
  std::vector<JobId> changed;
  const auto check_job = [&](uint32_t job) { return check(entries_[job].id); };
  for (const uint32_t job : shapes_.Check(check_job)) changed.push_back(entries_[job].id);
  return changed;
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
    for (const auto& [number, line] : queue.order().lines(job_class)) {
      if (number == kFrontLine || standings_.count(number) != 0) continue;
      standings_[number] = standings(queue.order().owner(number - 1));
    }
  }
}

bool QueueWalk::IsBefore(const Cursor& a, const Cursor& b) const {
  if ((a.line == kFrontLine) != (b.line == kFrontLine)) return a.line == kFrontLine;
  if (a.key != b.key) return a.key < b.key;
  if (a.waiting_since != b.waiting_since) return a.waiting_since < b.waiting_since;
  return queue_.order().owner(a.line - 1) < queue_.order().owner(b.line - 1);
}

void QueueWalk::EnterClass() {
  cursors_.clear();
  order_.clear();
  for (const auto& [number, line] : queue_.order().lines(class_)) {
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
  cursor.key =
      queue_.order().KeyOf(cursor.standing, started == started_slots_.end() ? 0 : started->second);
  if (!cursor.heads.empty()) cursor.waiting_since = cursor.heads.front().first.waiting_since;
}

bool QueueWalk::Advance(Cursor& cursor) {
  const auto later = std::greater<std::pair<QueuePlace, uint32_t>>();
  const QueueOrder::Lines& lines = queue_.order().lines(class_);
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
    const std::set<QueuePlace>& places =
        queue_.order().lines(class_).at(cursor.line).groups.at(group);
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
