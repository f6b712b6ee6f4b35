// Whether bytes are text.
#ifndef MUSTER_SPEC_UTF8_H_
#define MUSTER_SPEC_UTF8_H_

#include "absl/strings/string_view.h"

namespace muster::spec {

// Shortest forms only, no surrogates, up to U+10FFFF: what protobuf takes for a string.
bool IsUtf8(absl::string_view text);

}  // namespace muster::spec

#endif  // MUSTER_SPEC_UTF8_H_
