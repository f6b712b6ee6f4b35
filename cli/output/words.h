// Formats numbers, times and untrusted text for a terminal, and wraps text to its width.
#ifndef MUSTER_CLI_OUTPUT_WORDS_H_
#define MUSTER_CLI_OUTPUT_WORDS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "google/protobuf/timestamp.pb.h"

namespace muster::cli {

// "12s", "3m20s", "5h12m", "8d4h": at most two units, down to seconds. Negative durations count as
// zero.
std::string Age(absl::Duration duration);
// The age of `time` at `now`; empty if `time` is unset.
std::string AgeSince(const google::protobuf::Timestamp& time, absl::Time now);
// "0.31 s", "63.2 s", "5m12s".
std::string Elapsed(absl::Duration duration);
// "41,234".
std::string Grouped(uint64_t number);
// "210 MiB".
std::string Bytes(uint64_t size_bytes);
// "00ffee0123456789": a random 64-bit id.
std::string HexId(uint64_t id);
// "SIGKILL", or "signal 42" for one without a name.
std::string SignalName(int signal);
// Makes untrusted text safe to print on a terminal: escapes control characters except newline and
// tab, characters that change the writing direction, and bytes that are not UTF-8.
std::string Printable(absl::string_view text);
// The number of terminal columns of one line of printable text: 0 for combining characters, 2 for
// East Asian characters and emoji.
size_t DisplayWidth(absl::string_view text);

// The number of columns of help and other wrapped text: COLUMNS, else the width of the terminal
// that stdout is, else 80; at least 60.
size_t TextWidth();

// The words of `text` in lines of at most `width` columns. A longer word gets a line of its own.
std::vector<std::string> WrappedLines(absl::string_view text, size_t width);

}  // namespace muster::cli

#endif  // MUSTER_CLI_OUTPUT_WORDS_H_
