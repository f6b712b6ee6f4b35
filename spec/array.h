// The tasks of an array of jobs.
#ifndef MUSTER_SPEC_ARRAY_H_
#define MUSTER_SPEC_ARRAY_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/muster/v1/job.pb.h"
#include "spec/array_task.h"

namespace muster::spec {

// The number of tasks of a valid array.
uint64_t CountTasks(const v1::ArraySpec& array);

// The tasks of a spec with an array, by index. Defaults are applied to each task after its values
// are set, so a spec as the user wrote it gives the defaults that fit the values; the name is the
// same for all tasks. INVALID_ARGUMENT if the spec or one of its tasks is not valid: lists the
// problems of the spec, or of the first such task with its values.
absl::StatusOr<std::vector<ArrayTask>> ExpandArray(const v1::JobSpec& spec);

// Sets in `spec`, the spec of the task, what its array gives the task when it runs: its variables,
// and its index in the arguments of its command. The spec then runs as the same task by itself.
void ResolveTask(const v1::Job& task, v1::JobSpec& spec);

}  // namespace muster::spec

#endif  // MUSTER_SPEC_ARRAY_H_
