// Suggestions for misspelled words ("did you mean …?") and quoting of untrusted text in errors.
#ifndef MUSTER_COMMON_TEXT_NEAREST_H_
#define MUSTER_COMMON_TEXT_NEAREST_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace muster {

// Number of edits (insert, delete, replace, transpose adjacent characters) between two words.
// Ignores case and treats '-' and '_' as equal.
size_t EditDistance(absl::string_view a, absl::string_view b);

// The candidate that `word` is probably a misspelling of: the nearest one, the first on ties, of
// those within an edit per three characters, or of which one begins with the other. Empty if there
// is none.
std::string Nearest(absl::string_view word, absl::Span<const std::string> candidates);

// "; did you mean 'candidate'?" with the nearest candidate; empty if there is none.
std::string DidYouMean(absl::string_view word, absl::Span<const std::string> candidates);

// Untrusted text, quoted for a one-line error message: control characters are escaped and long text
// is truncated.
std::string Quoted(absl::string_view text);

}  // namespace muster

#endif  // MUSTER_COMMON_TEXT_NEAREST_H_
