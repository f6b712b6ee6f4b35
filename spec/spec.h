// Parses, completes, validates and prints job specs (YAML or JSON to v1::JobSpec and back).
//
// Client and coordinator use the same code, so the coordinator accepts the content of every spec
// that `muster spec validate` accepts.
#ifndef MUSTER_SPEC_SPEC_H_
#define MUSTER_SPEC_SPEC_H_

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::spec {

// Parses YAML (JSON is YAML). `source` names the text in errors: "job.yaml:7: unknown field 'epoch'
// in train; did you mean 'epochs'?". `overrides` are `a.b=c` pairs, applied after the text.
// INVALID_ARGUMENT lists all syntax and type errors; RESOURCE_EXHAUSTED if the spec exceeds
// limits::kSpecBytes.
absl::StatusOr<v1::JobSpec> Parse(absl::string_view text, absl::string_view source,
                                  absl::Span<const std::string> overrides = {});

// Changes a spec after its text and overrides have been read, for example as options of the command
// line say. Returns the errors.
using Amendment = absl::FunctionRef<std::vector<absl::Status>(v1::JobSpec&)>;

// As Parse; for a spec with such errors, or errors of `amend`, the status also lists the problems
// that Validate finds in the rest, so that a user sees all of them at once. Problems that may
// result from a field that could not be read are left out. A single error of `amend` keeps its code
// if there are no other problems.
absl::StatusOr<v1::JobSpec> ParseReportingAll(
    absl::string_view text, absl::string_view source, absl::Span<const std::string> overrides = {},
    Amendment amend = [](v1::JobSpec&) { return std::vector<absl::Status>(); });

// Fills in every default, so that the spec shows every value that the job uses. Call before
// Validate.
void ApplyDefaults(v1::JobSpec& spec);

// Checks everything that can be checked without a cluster. INVALID_ARGUMENT lists all problems, one
// line each, by field path.
absl::Status Validate(const v1::JobSpec& spec);

// Whether every placeholder of the command has a value. Only for specs that are submitted: those of
// the tasks of an array have no array. INVALID_ARGUMENT names the argument.
absl::Status CheckPlaceholders(const v1::JobSpec& spec);

// The spec in the syntax of Parse, with human-readable durations and sizes and including defaults.
std::string ToYaml(const v1::JobSpec& spec);

// The number of ranks of the largest world that the spec allows.
uint32_t MaxWorldSize(const v1::JobSpec& spec);

// Whether each rank computes on all of its devices; otherwise only on the first.
bool DrivesSeveralDevices(const v1::StrategySpec& strategy);

}  // namespace muster::spec

#endif  // MUSTER_SPEC_SPEC_H_
