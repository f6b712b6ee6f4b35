// Properties that every spec must have.
#ifndef MUSTER_TESTS_FUZZ_SPEC_ROUND_TRIP_H_
#define MUSTER_TESTS_FUZZ_SPEC_ROUND_TRIP_H_

#include "proto/muster/v1/job.pb.h"

namespace muster::fuzz {

// Completes and validates the spec; a valid one must print as YAML that parses to the same spec.
void CheckSpec(v1::JobSpec spec);

}  // namespace muster::fuzz

#endif  // MUSTER_TESTS_FUZZ_SPEC_ROUND_TRIP_H_
