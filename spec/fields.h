// The table of the spec's fields, which defines each field's help, default, unit, range, allowed
// values and examples. Parsing, ApplyDefaults, Validate, `muster spec explain`, `muster spec init`,
// the JSON schema and docs/reference/spec.md are derived from it. Rules that involve several fields
// are in spec/rules/.
#ifndef MUSTER_SPEC_FIELDS_H_
#define MUSTER_SPEC_FIELDS_H_

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"

namespace muster::spec {

// Bounds of a number, of each element of a list, of a size in bytes or of a duration in seconds.
struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_excluded = false;
  bool high_excluded = false;

  bool bounded_below() const { return low > -std::numeric_limits<double>::infinity(); }
  bool bounded_above() const { return high < std::numeric_limits<double>::infinity(); }
  // False for NaN and, in any range that is bounded below, for infinity.
  bool Contains(double value) const;
};

// The field applies only if its sibling `field` has one of the values `words`; empty: always.
struct Condition {
  absl::string_view field = {};
  std::vector<std::string> words = {};
};

struct Field {
  absl::string_view help;  // sentences; lists of fields show only the first one
  // Default in the spec's syntax; ApplyDefaults sets it if the field is unset and its condition
  // holds. "{}" for a section: the section is always present.
  absl::string_view default_value = {};
  // Human-readable description of a default that ApplyDefaults computes from other fields.
  absl::string_view computed_default = {};
  bool required = false;        // if its section is present and its condition holds
  absl::string_view unit = {};  // unit of a number: pixels, steps, …; bytes are written as 25MiB
  Range range = {};             // if the range excludes 0, 0 means "not set"
  uint32_t max_items = 0;       // maximum length of a list; 0: no limit
  // The word that stands for 0 of a number or duration: never, auto.
  absl::string_view zero_word = {};
  bool absolute_path = false;  // the value is an absolute path on the node
  // Allowed values; empty: any. Of an enum, words[i] stands for the value i.
  std::vector<std::string> words = {};
  std::vector<std::string> testing_words = {};  // values accepted only for Muster's own tests
  // Values that a user may expect here, with the reason why they are rejected.
  std::map<std::string, std::string> rejected_words = {};
  // Names and values of other tools, for suggestions in errors.
  std::vector<std::string> synonyms = {};
  std::map<std::string, std::string> word_synonyms = {};
  Condition only_with = {};
  bool testing_only = false;  // for Muster's own tests: accepted, but not documented
  // Values that `muster spec init` shows, commented out except for the first one if `in_init`.
  // Without examples, it shows the default, commented out.
  std::vector<std::string> examples = {};
  bool in_init = false;
};

// The table's entry for a field; an empty entry if the field is not part of the spec.
const Field& FieldOf(const google::protobuf::FieldDescriptor& field);

// Names of all entries, e.g. "TrainSpec.epochs".
std::vector<std::string> TableEntries();

// The first sentence of the field's help, without its full stop.
std::string Summary(const Field& field);

}  // namespace muster::spec

#endif  // MUSTER_SPEC_FIELDS_H_
