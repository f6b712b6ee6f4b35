// "Did you mean": the known word closest to an unknown one.
#ifndef MUSTER_COMMON_NEAREST_H_
#define MUSTER_COMMON_NEAREST_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace muster {

// Edits (insert, delete, replace, swap neighbours) between two words; letter case and '-' against
// '_' cost nothing.
size_t EditDistance(absl::string_view a, absl::string_view b);

// The candidate with the fewest edits, the first of equals; empty when there are no candidates.
std::string Nearest(absl::string_view word, absl::Span<const std::string> candidates);

// Text from outside, quoted and made fit for one line of an error: control characters escaped, long
// text cut.
std::string Quoted(absl::string_view text);

}  // namespace muster

#endif  // MUSTER_COMMON_NEAREST_H_
