// The table of the spec's fields: the one place that gives a field's help, default, unit, range,
// allowed words and example. Parsing, ApplyDefaults, Validate, `muster spec explain`, `muster spec
// init`, the JSON schema and docs/reference/spec.md all read it. Rules between fields are in
// spec/rules.cc.
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

// Bounds of a number, of a list's elements, of a size in bytes or of a duration in seconds.
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

// The field applies only while its sibling `field` holds one of `words`; empty: always.
struct Condition {
  absl::string_view field = {};
  std::vector<std::string> words = {};
};

struct Field {
  absl::string_view help;  // sentences; the first one stands alone in a list of fields
  // In the spec's own syntax; ApplyDefaults sets it where the field is unset and its condition
  // holds. "{}" on a section: the section is always present.
  absl::string_view default_value = {};
  // For people: a default that ApplyDefaults computes from other fields.
  absl::string_view computed_default = {};
  bool required = false;        // once its section is present and its condition holds
  absl::string_view unit = {};  // of a number: pixels, steps, …; bytes are written as 25MiB
  Range range = {};             // a range without 0 makes 0 mean "not set"
  uint32_t max_items = 0;       // of a list; 0: no bound
  bool absolute_path = false;   // a text that is an absolute path on the node
  std::vector<std::string> words = {};          // the words that it takes
  std::vector<std::string> testing_words = {};  // also accepted, for Muster's own tests
  // Words that a reader may expect here, and why they are not accepted: "mpi serves …".
  std::map<std::string, std::string> rejected_words = {};
  Condition only_with = {};
  bool testing_only = false;  // for Muster's own tests: readable, but not advertised
  // Values that `muster spec init` shows, the first of them set if `in_init`, the others commented
  // out. Without any it shows the default, commented out.
  std::vector<std::string> examples = {};
  bool in_init = false;
};

// The table's entry; an empty one for a field that is no part of the spec.
const Field& FieldOf(const google::protobuf::FieldDescriptor& field);

// Names of all entries, as in "TrainSpec.epochs".
std::vector<std::string> TableEntries();

// The first sentence of the field's help, without its full stop.
std::string Summary(const Field& field);

}  // namespace muster::spec

#endif  // MUSTER_SPEC_FIELDS_H_
