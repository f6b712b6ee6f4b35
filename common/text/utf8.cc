#include "common/text/utf8.h"

#include <cstdint>

#include "absl/strings/str_cat.h"

namespace muster {
namespace {

// The length of the UTF-8 sequence at the start of `bytes`; 0 if invalid.
size_t SequenceLength(absl::string_view bytes) {
  const auto byte = [&bytes](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || bytes.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Rejects overlong forms, surrogates, and values beyond the last code point.
  if ((lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xED && byte(1) > 0x9F) ||
      (lead == 0xF0 && byte(1) < 0x90) || (lead == 0xF4 && byte(1) > 0x8F)) {
    return 0;
  }
  return length;
}

bool IsInsideCharacter(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

}  // namespace

std::string ToUtf8(absl::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const size_t length = SequenceLength(bytes);
    if (length == 0) {
      text += '?';
      bytes.remove_prefix(1);
    } else {
      absl::StrAppend(&text, bytes.substr(0, length));
      bytes.remove_prefix(length);
    }
  }
  return text;
}

void KeepFirst(size_t size_bytes, std::string& text) {
  if (text.size() <= size_bytes) return;
  while (size_bytes > 0 && IsInsideCharacter(text[size_bytes])) --size_bytes;
  text.resize(size_bytes);
}

void KeepLast(size_t size_bytes, std::string& text) {
  if (text.size() <= size_bytes) return;
  size_t begin = text.size() - size_bytes;
  while (begin < text.size() && IsInsideCharacter(text[begin])) ++begin;
  text.erase(0, begin);
}

}  // namespace muster
