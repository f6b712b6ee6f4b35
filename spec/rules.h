// Rules between fields. Rules of a single field are in the table (spec/fields.h).
#ifndef MUSTER_SPEC_RULES_H_
#define MUSTER_SPEC_RULES_H_

#include "proto/muster/v1/job.pb.h"
#include "spec/problems.h"

namespace muster::spec {

// Adds each violation. Expects a spec with its defaults, but accepts any. Pure functions.
void CheckJobRules(const v1::JobSpec& spec, Problems& problems);
void CheckTrainRules(const v1::JobSpec& spec, Problems& problems);  // requires spec.train

}  // namespace muster::spec

#endif  // MUSTER_SPEC_RULES_H_
