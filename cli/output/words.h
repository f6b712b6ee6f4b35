// Numbers and times as people read them.
#ifndef MUSTER_CLI_OUTPUT_WORDS_H_
#define MUSTER_CLI_OUTPUT_WORDS_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "google/protobuf/timestamp.pb.h"

namespace muster::cli {

// "12s", "3m20s", "5h12m", "8d4h": two units at most, nothing finer than a second. Below zero is
// zero.
std::string Age(absl::Duration duration);
// Since `time` until `now`; empty for a time that was never set.
std::string AgeSince(const google::protobuf::Timestamp& time, absl::Time now);
// "0.31 s", "63.2 s", "5m12s".
std::string Elapsed(absl::Duration duration);
// "41,234".
std::string Grouped(uint64_t number);
// "210 MiB".
std::string Bytes(uint64_t size_bytes);
// "SIGKILL", or "signal 42" for one without a name.
std::string SignalName(int signal);
// Text from elsewhere, safe on a terminal: control characters but newline and tab, characters that
// turn the direction of writing, and what is not UTF-8 are shown escaped.
std::string Printable(absl::string_view text);
// Columns that a terminal needs for printable text of one line: none for accents that combine, two
// for East Asian characters and pictures.
size_t DisplayWidth(absl::string_view text);

}  // namespace muster::cli

#endif  // MUSTER_CLI_OUTPUT_WORDS_H_
