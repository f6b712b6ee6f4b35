// Wraps text to the width of the terminal.
#ifndef MUSTER_CLI_OUTPUT_WRAP_H_
#define MUSTER_CLI_OUTPUT_WRAP_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace muster::cli {

// The number of columns of help and other wrapped text: COLUMNS, else the width of the terminal
// that stdout is, else 80; at least 60.
size_t TextWidth();

// The words of `text` in lines of at most `width` columns. A longer word gets a line of its own.
std::vector<std::string> WrappedLines(absl::string_view text, size_t width);

}  // namespace muster::cli

#endif  // MUSTER_CLI_OUTPUT_WRAP_H_
