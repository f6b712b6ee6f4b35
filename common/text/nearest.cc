#include "common/text/nearest.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace muster {
namespace {

// Longer words are truncated before the comparison, because its cost is quadratic and the text is
// untrusted.
constexpr size_t kComparedLength = 64;
constexpr size_t kQuotedLength = 80;

// Shorter words are not suggested, or suggested for, because of a common beginning.
constexpr size_t kMinPrefix = 3;

char Fold(char c) { return c == '-' ? '_' : absl::ascii_tolower(c); }

bool HasPrefix(absl::string_view word, absl::string_view prefix) {
  return prefix.size() >= kMinPrefix && absl::StartsWithIgnoreCase(word, prefix);
}

}  // namespace

size_t EditDistance(absl::string_view a, absl::string_view b) {
  a = a.substr(0, kComparedLength);
  b = b.substr(0, kComparedLength);
  // Three rows of the optimal string alignment table: d(i-2), d(i-1), d(i).
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool equal = Fold(a[i - 1]) == Fold(b[j - 1]);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (equal ? 0 : 1)});
      if (i > 1 && j > 1 && Fold(a[i - 1]) == Fold(b[j - 2]) && Fold(a[i - 2]) == Fold(b[j - 1])) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::string Nearest(absl::string_view word, absl::Span<const std::string> candidates) {
  std::string nearest;
  size_t fewest = SIZE_MAX;
  for (const std::string& candidate : candidates) {
    const size_t edits = EditDistance(word, candidate);
    const bool near = edits <= std::max<size_t>(1, word.size() / 3) || HasPrefix(candidate, word) ||
                      HasPrefix(word, candidate);
    if (near && edits < fewest) {
      fewest = edits;
      nearest = candidate;
    }
  }
  return nearest;
}

std::string DidYouMean(absl::string_view word, absl::Span<const std::string> candidates) {
  const std::string nearest = Nearest(word, candidates);
  return nearest.empty() ? "" : absl::StrCat("; did you mean '", nearest, "'?");
}

std::string Quoted(absl::string_view text) {
  if (text.size() <= kQuotedLength) return absl::StrCat("'", absl::Utf8SafeCHexEscape(text), "'");
  size_t end = kQuotedLength;
  // Do not cut a UTF-8 sequence.
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return absl::StrCat("'", absl::Utf8SafeCHexEscape(text.substr(0, end)), "…'");
}

}  // namespace muster
