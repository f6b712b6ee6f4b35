// A job's spec: from YAML or JSON to a checked, complete v1::JobSpec and back.
//
// Client and coordinator use the same code: a spec that `muster spec validate` accepts is never
// refused for its own words by the coordinator.
#ifndef MUSTER_SPEC_SPEC_H_
#define MUSTER_SPEC_SPEC_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::spec {

// Parses YAML (JSON is YAML). `source` names the text in errors: "job.yaml:7: unknown field 'epoch'
// in train; did you mean 'epochs'?". `overrides` are `a.b=c` pairs, applied after the text.
// INVALID_ARGUMENT for anything wrong; RESOURCE_EXHAUSTED for a text beyond limits::kSpecBytes.
absl::StatusOr<v1::JobSpec> Parse(absl::string_view text, absl::string_view source,
                                  absl::Span<const std::string> overrides = {});

// Fills in every default, so that what runs is what is shown. Call before Validate.
void ApplyDefaults(v1::JobSpec& spec);

// Everything that the spec alone shows to be wrong; INVALID_ARGUMENT lists all of it, a line each,
// by field path.
absl::Status Validate(const v1::JobSpec& spec);

// In the form that Parse reads: human durations and sizes, no defaults left out.
std::string ToYaml(const v1::JobSpec& spec);

// Ranks in the largest world that the spec allows.
uint32_t MaxWorldSize(const v1::JobSpec& spec);

// Whether a rank drives all of its devices; otherwise it computes on the first.
bool DrivesSeveralDevices(const v1::StrategySpec& strategy);

}  // namespace muster::spec

#endif  // MUSTER_SPEC_SPEC_H_
