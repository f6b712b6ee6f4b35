#include "coordinator/core/jobs/arrays.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/time/proto_time.h"

namespace muster::core {
namespace {

uint32_t CountOf(const JobArray& array, v1::JobState state) {
  const auto entry = array.states.find(state);
  return entry == array.states.end() ? 0 : entry->second;
}

void Decrease(JobArray& array, v1::JobState state) {
  const auto entry = array.states.find(state);
  if (entry != array.states.end() && --entry->second == 0) array.states.erase(entry);
}

void Enter(JobArray& array, uint32_t index, v1::JobState state) {
  ++array.states[state];
  if (IsTerminal(state) && state != v1::SUCCEEDED) array.unsuccessful[index] = state;
  if (IsActive(state)) array.placed.insert(index);
  if (IsActive(state) || IsTerminal(state)) array.waiting.erase(index);
}

}  // namespace

JobId TaskId(const std::string& array_id, uint32_t index) {
  return JobId(absl::StrCat(array_id, "-", index));
}

bool JobArray::ended() const {
  return std::all_of(states.begin(), states.end(),
                     [](const auto& entry) { return IsTerminal(entry.first); });
}

v1::JobState JobArray::state() const {
  for (const auto& [state, count] : states) {
    if (IsActive(state)) return v1::RUNNING;
  }
  if (CountOf(*this, v1::QUEUED) > 0) return v1::QUEUED;
  if (CountOf(*this, v1::HELD) > 0) return v1::HELD;
  return unsuccessful.empty() ? v1::SUCCEEDED : unsuccessful.begin()->second;
}

v1::JobArray JobArray::View() const {
  v1::JobArray view;
  view.set_array_id(id);
  view.set_name(name);
  view.set_owner(owner);
  view.set_count(count);
  view.set_concurrency(concurrency);
  view.set_priority_class(priority_class);
  *view.mutable_submit_time() = submit_time;
  if (ended()) *view.mutable_finish_time() = finish_time;
  view.set_state(state());
  for (const auto& [state, tasks_in_state] : states) {
    (*view.mutable_tasks())[v1::JobState_Name(state)] = tasks_in_state;
  }
  return view;
}

const JobArray* Arrays::Find(const std::string& id) const {
  const auto entry = arrays_.find(id);
  return entry == arrays_.end() ? nullptr : &entry->second;
}

JobArray* Arrays::ArrayOf(const Job& job) {
  if (job.status.array_id().empty()) return nullptr;
  const auto entry = arrays_.find(job.status.array_id());
  return entry == arrays_.end() ? nullptr : &entry->second;
}

void Arrays::Add(const Job& job) {
  const v1::Job& status = job.status;
  if (status.array_id().empty()) return;
  const auto [entry, added] = arrays_.try_emplace(status.array_id());
  JobArray& array = entry->second;
  if (added) {
    array.id = status.array_id();
    array.name = job.spec().name();
    array.owner = status.owner();
    array.priority_class = job.spec().priority_class();
    array.count = status.array_count();
    array.concurrency = job.array_concurrency;
    array.submit_time = status.submit_time();
    array.queue_sequence = job.queue_sequence;
  }
  array.queue_sequence = std::min(array.queue_sequence, job.queue_sequence);
  if (FromProto(array.finish_time) < FromProto(status.finish_time())) {
    array.finish_time = status.finish_time();
  }
  array.tasks.insert(status.array_index());
  Enter(array, status.array_index(), job.state());
  // It keeps its place while it waits to be restarted.
  if (job.not_before.has_value()) array.placed.insert(status.array_index());
}

void Arrays::Remove(const Job& job) {
  JobArray* const array = ArrayOf(job);
  if (array == nullptr) return;
  Decrease(*array, job.state());
  const uint32_t index = job.status.array_index();
  array->tasks.erase(index);
  array->unsuccessful.erase(index);
  array->placed.erase(index);
  array->waiting.erase(index);
  if (array->tasks.empty()) arrays_.erase(job.status.array_id());
}

const JobArray* Arrays::OnTransition(const Job& job, v1::JobState to) {
  JobArray* const array = ArrayOf(job);
  if (array == nullptr) return nullptr;
  Decrease(*array, job.state());
  Enter(*array, job.status.array_index(), to);
  if (!IsTerminal(to)) return nullptr;
  array->finish_time = job.status.finish_time();
  return array->ended() ? array : nullptr;
}

bool Arrays::TakePlace(const Job& job) {
  JobArray* const array = ArrayOf(job);
  if (array == nullptr || array->concurrency == 0) return true;
  const uint32_t index = job.status.array_index();
  if (array->placed.count(index) == 0 && array->placed.size() >= array->concurrency) {
    array->waiting.insert(index);
    return false;
  }
  array->waiting.erase(index);
  array->placed.insert(index);
  return true;
}

std::optional<JobId> Arrays::Release(const Job& job) {
  JobArray* const array = ArrayOf(job);
  if (array == nullptr) return std::nullopt;
  const uint32_t index = job.status.array_index();
  array->waiting.erase(index);
  array->placed.erase(index);
  if (array->waiting.empty() || array->placed.size() >= array->concurrency) return std::nullopt;
  return TaskId(array->id, *array->waiting.begin());
}

std::string Arrays::WaitText(const Job& job) const {
  const JobArray* const array = Find(job.status.array_id());
  if (array == nullptr || array->waiting.count(job.status.array_index()) == 0) return "";
  return absl::StrCat("array ", array->id, " runs ", array->placed.size(), " of at most ",
                      array->concurrency, array->concurrency == 1 ? " task" : " tasks");
}

}  // namespace muster::core
