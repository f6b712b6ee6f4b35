// Properties of fields, derived from their descriptors and the table in spec/fields.h. Shared by
// reader, writer, defaults and validation, so that these agree on the syntax.
#ifndef MUSTER_SPEC_SCHEMA_H_
#define MUSTER_SPEC_SCHEMA_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace muster::spec {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

enum class FieldForm {
  kPlain,
  kDuration,         // 90s
  kSize,             // 25MiB
  kNodeCount,        // 2, or {min: 1, max: 4}
  kLostCoordinator,  // continue, or {stop_after: 10m}
  kLayer,            // relu, or {conv2d: {…}}: exactly one field
  kFile,             // train.py, or {path: train.py}
  kEnvironment,      // {NAME: value, TOKEN: {secret: NAME}}; the latter is stored in secret_env
  kMatrix,           // {train.epochs: [1, 2]}
  kTaskValues,       // {train.epochs: 1, train.seed: 2}
};
FieldForm FormOf(const FieldDescriptor& field);

// True for a number without presence whose range excludes 0, so that 0 means "not set". An explicit
// 0 is rejected when parsing, and 0 is not written.
bool ZeroMeansUnset(const FieldDescriptor& field);

// Whether the field is set: a list has elements, a section or optional value is present, any other
// value is not zero.
bool IsSet(const Message& message, const FieldDescriptor& field);

// Whether the field's condition (Field::only_with) holds in `message`.
bool Applies(const Message& message, const FieldDescriptor& field);

// "from 4 to 1024", "above 0", "from 1 to 4GiB", "0 or more"; empty for a field without a range.
std::string RangeText(const FieldDescriptor& field);

// The word for a value of an enum; its number if there is none.
std::string EnumText(const FieldDescriptor& field, int value);

// "a, b or c".
std::string AnyOf(const std::vector<std::string>& words);

// Maximum nesting depth of layers; a layer outside of residual blocks is at depth 1.
inline constexpr int kLayerDepth = 8;

std::vector<std::string> FieldNames(const Descriptor& message);

// The path of the field that is probably meant by the unknown field `name` of `message`: by its
// synonyms, by spelling, or a field of this name in another section. Empty if there is none.
// `where` is the path of `message`, empty for the spec itself.
std::string MeantField(const Descriptor& message, absl::string_view where, absl::string_view name);

// "unknown field 'epoch' in train; did you mean 'epochs'?". A suggestion from another section is
// shown with its path. `where` is the path of `message`, empty for the spec itself.
std::string UnknownField(const Descriptor& message, absl::string_view where,
                         absl::string_view name);

// "where.name", or "name" if `where` is empty.
std::string JoinPath(absl::string_view where, absl::string_view name);

}  // namespace muster::spec

#endif  // MUSTER_SPEC_SCHEMA_H_
