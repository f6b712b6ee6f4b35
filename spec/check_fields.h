// Checks single fields against the table in spec/fields.h: presence, range, allowed values, paths,
// and fields that do not apply.
#ifndef MUSTER_SPEC_CHECK_FIELDS_H_
#define MUSTER_SPEC_CHECK_FIELDS_H_

#include <string>

#include "google/protobuf/message.h"
#include "spec/problems.h"

namespace muster::spec {

// Adds each problem of the fields of `message` and its sections to `problems`. `where` is the path
// of `message`, empty for the spec itself. Does not descend into lists of layers. Thread-safe.
void CheckFields(const google::protobuf::Message& message, const std::string& where,
                 Problems& problems);

// Adds "path: is missing; …" with a description of the field or its allowed values.
void AddMissing(const google::protobuf::FieldDescriptor& field, absl::string_view path,
                Problems& problems);

}  // namespace muster::spec

#endif  // MUSTER_SPEC_CHECK_FIELDS_H_
