// UTF-8 validation.
#ifndef MUSTER_SPEC_UTF8_H_
#define MUSTER_SPEC_UTF8_H_

#include "absl/strings/string_view.h"

namespace muster::spec {

// Whether `text` is valid UTF-8 as protobuf requires for strings: shortest forms only, no
// surrogates, code points up to U+10FFFF.
bool IsUtf8(absl::string_view text);

}  // namespace muster::spec

#endif  // MUSTER_SPEC_UTF8_H_
