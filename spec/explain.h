// The spec's language for people: each field with its type, its meaning and its default.
#ifndef MUSTER_SPEC_EXPLAIN_H_
#define MUSTER_SPEC_EXPLAIN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace muster::spec {

struct FieldExplanation {
  std::string path;                          // "train.epochs"; empty for the spec itself
  std::string type;                          // "number above 0", "duration, as in 90s", "fields"
  std::string text;                          // what it is for; sentences
  std::string default_value;                 // as one would write it; empty where there is none
  std::vector<std::string> words;            // those it takes, where it is one of some words
  std::vector<std::string> words_elsewhere;  // that this build is without
  std::vector<std::string> fields;           // names of the fields inside
};

// INVALID_ARGUMENT for a path that there is not, with the nearest one.
absl::StatusOr<FieldExplanation> ExplainField(absl::string_view path);

// Every path, a field before those inside it.
std::vector<std::string> FieldPaths();

// The words that the field at `path` takes; empty for other fields and unknown paths.
std::vector<std::string> WordsOf(absl::string_view path);

}  // namespace muster::spec

#endif  // MUSTER_SPEC_EXPLAIN_H_
