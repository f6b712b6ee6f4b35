// Expands the array of a submitted spec.
#ifndef MUSTER_COORDINATOR_SERVICE_CALLS_ARRAY_TASKS_H_
#define MUSTER_COORDINATOR_SERVICE_CALLS_ARRAY_TASKS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/core/event.h"
#include "spec/array.h"

namespace muster::service {

// The tasks of `spec`, which is as the client submitted it. INVALID_ARGUMENT as spec::ExpandArray.
inline absl::StatusOr<std::vector<core::ArrayTask>> ExpandTasks(const v1::JobSpec& spec) {
  absl::StatusOr<std::vector<spec::ArrayTask>> expanded = spec::ExpandArray(spec);
  if (!expanded.ok()) return expanded.status();
  std::vector<core::ArrayTask> tasks;
  tasks.reserve(expanded->size());
  for (spec::ArrayTask& task : *expanded) {
    core::ArrayTask& added = tasks.emplace_back();
    added.spec = std::move(task.spec);
    for (auto& [field, value] : task.values) {
      v1::ArrayValue& copy = added.values.emplace_back();
      copy.set_field(std::move(field));
      copy.set_value(std::move(value));
    }
  }
  return tasks;
}

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_CALLS_ARRAY_TASKS_H_
