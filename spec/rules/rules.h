// Validation of a spec: rules for single fields, which are in the table (spec/fields.h), and rules
// that involve several fields.
#ifndef MUSTER_SPEC_RULES_RULES_H_
#define MUSTER_SPEC_RULES_RULES_H_

#include <string>

#include "absl/status/status.h"
#include "proto/muster/v1/job.pb.h"
#include "spec/rules/problems.h"
#include "spec/schema.h"

namespace muster::spec {

// Adds each problem of the fields of `message` and its sections to `problems`. `where` is the path
// of `message`, empty for the spec itself. Does not descend into lists of layers. Thread-safe.
void CheckFields(const Message& message, const std::string& where, Problems& problems);

// Adds "path: is missing; …" with a description of the field or its allowed values.
void AddMissing(const FieldDescriptor& field, absl::string_view path, Problems& problems);

// Each adds its violations to `problems`. They expect a spec with defaults, but accept any spec.
void CheckJobRules(const v1::JobSpec& spec, Problems& problems);
void CheckTrainRules(const v1::JobSpec& spec, Problems& problems);  // requires spec.train
// Checks the array of a spec and the values of its tasks, each on its own. Requires spec.array.
void CheckArray(const v1::JobSpec& spec, Problems& problems);

// Adds every problem of a spec with its defaults: those of its fields and of the rules above. A
// spec with an array must have the values of a task.
void CheckSpec(const v1::JobSpec& spec, Problems& problems);

// Sets the values of the array's first task, if there is an array. Skips values that cannot be set.
// Called before ApplyDefaults, because defaults follow the values.
void SetFirstValues(v1::JobSpec& spec);

// As Validate, but checks an array as CheckSpec does.
absl::Status ValidateJob(const v1::JobSpec& spec);

}  // namespace muster::spec

#endif  // MUSTER_SPEC_RULES_RULES_H_
