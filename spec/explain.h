// Human-readable descriptions of the spec's fields, derived from the table in spec/fields.h, for
// `muster spec explain`, completion, the JSON schema, `muster spec init` and the reference page.
#ifndef MUSTER_SPEC_EXPLAIN_H_
#define MUSTER_SPEC_EXPLAIN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace muster::spec {

struct FieldExplanation {
  std::string path;                // "train.epochs"; empty for the spec itself
  std::string type;                // "number above 0", "duration from 1s to 87600h", "fields"
  std::string text;                // sentences, including the condition under which it applies
  std::string default_value;       // in the spec's syntax or as a description; empty if none
  bool required = false;           // if its section is given
  bool testing_only = false;       // for Muster's own tests
  std::vector<std::string> words;  // allowed values; empty if not restricted to a list
  std::vector<std::string> testing_words;  // values accepted only for Muster's own tests
  std::vector<std::string> fields;         // names of the fields of a section
};

// Describes the field at `path`. INVALID_ARGUMENT for an unknown path, with a suggestion.
absl::StatusOr<FieldExplanation> ExplainField(absl::string_view path);

// All paths, each section before its fields. Excludes fields for testing only.
std::vector<std::string> FieldPaths();

// The allowed values of the field at `path`; empty for unrestricted fields and unknown paths.
std::vector<std::string> WordsOf(absl::string_view path);

enum class JobKind { kTrain, kCommand };

// A commented example of a spec that includes every field of the top level and, for a train job,
// every field of train.
std::string ExampleSpec(JobKind kind = JobKind::kTrain);

// The reference page of all fields, in Markdown: docs/reference/spec.md.
std::string SpecReference();

}  // namespace muster::spec

#endif  // MUSTER_SPEC_EXPLAIN_H_
