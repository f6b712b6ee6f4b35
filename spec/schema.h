// What spec knows of the spec's fields beyond their protobuf descriptors. Reader and writer
// both use it, so that what one writes the other reads.
#ifndef MUSTER_SPEC_SCHEMA_H_
#define MUSTER_SPEC_SCHEMA_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"

namespace muster::spec {

enum class FieldForm {
  kPlain,
  kDuration,         // 90s
  kSize,             // 25MiB
  kNodeCount,        // 2, or {min: 1, max: 4}
  kLostCoordinator,  // continue, or {stop_after: 10m}
  kLayer,            // relu, or {conv2d: {…}}: exactly one field
};
FieldForm FormOf(const google::protobuf::FieldDescriptor& field);

// For a number without presence whose zero means "not given": such a zero is refused when somebody
// writes it, and not written out.
bool ZeroMeansUnset(const google::protobuf::FieldDescriptor& field);

// Residual blocks lie in each other at most so deep; a layer outside of any is at depth 1.
inline constexpr int kLayerDepth = 8;

std::vector<std::string> FieldNames(const google::protobuf::Descriptor& message);

// "unknown field 'epoch' in train; did you mean 'epochs'?". A field that only another part of the
// spec has is named with its path. `where` is the message's own path, empty for the spec itself.
std::string UnknownField(const google::protobuf::Descriptor& message, absl::string_view where,
                         absl::string_view name);

// where.name, or name at the top.
std::string JoinPath(absl::string_view where, absl::string_view name);

}  // namespace muster::spec

#endif  // MUSTER_SPEC_SCHEMA_H_
