// Descriptions of the spec's fields for people: what `muster spec explain`, completion, the JSON
// schema, `muster spec init` and the reference page show. From the table in spec/fields.h.
#ifndef MUSTER_SPEC_EXPLAIN_H_
#define MUSTER_SPEC_EXPLAIN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace muster::spec {

struct FieldExplanation {
  std::string path;                // "train.epochs"; empty for the spec itself
  std::string type;                // "number above 0", "duration, as in 90s", "fields"
  std::string text;                // sentences, the condition under which it applies included
  std::string default_value;       // in the spec's syntax, or in words; empty if none
  bool required = false;           // once its section is given
  bool testing_only = false;       // for Muster's own tests
  std::vector<std::string> words;  // allowed words, if the type is "word"
  std::vector<std::string> testing_words;  // also accepted, for Muster's own tests
  std::vector<std::string> fields;         // names of the fields inside
};

// INVALID_ARGUMENT for an unknown path, with the nearest one.
absl::StatusOr<FieldExplanation> ExplainField(absl::string_view path);

// Every path, a field before those inside it. Fields for testing only are left out.
std::vector<std::string> FieldPaths();

// The words that the field at `path` takes; empty for other fields and unknown paths.
std::vector<std::string> WordsOf(absl::string_view path);

// A commented example of a spec that names each field of the top level and of train.
std::string ExampleSpec();

// The reference page of all fields, in Markdown: docs/reference/spec.md.
std::string SpecReference();

}  // namespace muster::spec

#endif  // MUSTER_SPEC_EXPLAIN_H_
