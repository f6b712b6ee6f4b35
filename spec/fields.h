// What each field of the spec is for, in words for its users, and the words that it takes.
#ifndef MUSTER_SPEC_FIELDS_H_
#define MUSTER_SPEC_FIELDS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"

namespace muster::spec {

struct FieldNotes {
  absl::string_view text;  // sentences; the first one stands alone in a list of fields
  // Of a field that is one of some words: those of this build, and those that only others have.
  std::vector<std::string> words = {};
  std::vector<std::string> words_elsewhere = {};
  // Where spec/defaults.cc computes it from other fields.
  absl::string_view computed_default = {};
};

// Every field of the spec has notes; a test says so. Empty ones for any other field.
const FieldNotes& NotesOn(const google::protobuf::FieldDescriptor& field);

}  // namespace muster::spec

#endif  // MUSTER_SPEC_FIELDS_H_
