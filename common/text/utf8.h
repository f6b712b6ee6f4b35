// UTF-8, as the string fields of protobuf messages require it: a message with other bytes in such a
// field can be written but not parsed.
#ifndef MUSTER_COMMON_TEXT_UTF8_H_
#define MUSTER_COMMON_TEXT_UTF8_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace muster {

// Replaces each byte that is not part of valid UTF-8 by '?'.
std::string ToUtf8(absl::string_view bytes);

// Truncate a text to at most `size_bytes`, at a character boundary.
void KeepFirst(size_t size_bytes, std::string& text);
void KeepLast(size_t size_bytes, std::string& text);

}  // namespace muster

#endif  // MUSTER_COMMON_TEXT_UTF8_H_
