#include "coordinator/core/scheduler/plan/shape_table.h"

#include <iterator>

namespace muster::core {

uint32_t ShapeTable::Acquire(const v1::Resources& resources, uint32_t slots) {
  const auto [entry, added] = index_.try_emplace(resources.SerializeAsString(), 0);
  if (added) {
    if (free_.empty()) {
      free_.push_back(static_cast<uint32_t>(shapes_.size()));
      shapes_.emplace_back();
    }
    entry->second = free_.back();
    free_.pop_back();
    shapes_[entry->second] = {next_serial_++, resources, slots, 0, {}, ""};
    unchecked_.insert(entry->second);
  }
  ++shapes_[entry->second].references;
  return entry->second;
}

void ShapeTable::Remove(uint32_t index, uint32_t job) {
  Shape& shape = shapes_[index];
  shape.jobs.erase(job);
  if (--shape.references > 0) return;
  unchecked_.erase(index);
  index_.erase(shape.resources.SerializeAsString());
  shape = Shape();
  free_.push_back(index);
}

std::vector<uint32_t> ShapeTable::Check(
    absl::FunctionRef<std::optional<std::string>(uint32_t job)> check) {
  std::vector<uint32_t> changed;
  for (auto index = unchecked_.begin(); index != unchecked_.end();) {
    Shape& shape = shapes_[*index];
    const std::optional<std::string> reason = check(*shape.jobs.begin());
    if (reason.value_or("") != shape.unplaceable) {
      shape.unplaceable = reason.value_or("");
      changed.insert(changed.end(), shape.jobs.begin(), shape.jobs.end());
    }
    index = reason.has_value() ? unchecked_.erase(index) : std::next(index);
  }
  return changed;
}

void ShapeTable::Uncheck() {
  for (const auto& [key, index] : index_) unchecked_.insert(index);
}

}  // namespace muster::core
