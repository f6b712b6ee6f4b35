// Validation rules that involve several fields. Rules for single fields are in the table
// (spec/fields.h).
#ifndef MUSTER_SPEC_RULES_H_
#define MUSTER_SPEC_RULES_H_

#include "proto/muster/v1/job.pb.h"
#include "spec/problems.h"

namespace muster::spec {

// Each adds its violations to `problems`. They expect a spec with defaults, but accept any spec.
void CheckJobRules(const v1::JobSpec& spec, Problems& problems);
void CheckTrainRules(const v1::JobSpec& spec, Problems& problems);  // requires spec.train

// Adds every problem of a spec with its defaults: those of its fields and of the rules above.
void CheckSpec(const v1::JobSpec& spec, Problems& problems);

}  // namespace muster::spec

#endif  // MUSTER_SPEC_RULES_H_
