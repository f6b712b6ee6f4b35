#include "cli/output/words.h"

#include <string.h>

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/proto_time.h"

namespace muster::cli {

std::string Age(absl::Duration duration) {
  const int64_t seconds = std::max<int64_t>(0, absl::ToInt64Seconds(duration));
  struct Unit {
    int64_t seconds;
    const char* name;
  };
  constexpr Unit kUnits[] = {{86400, "d"}, {3600, "h"}, {60, "m"}, {1, "s"}};
  for (size_t i = 0; i + 1 < std::size(kUnits); ++i) {
    if (seconds < kUnits[i].seconds) continue;
    const int64_t rest = seconds % kUnits[i].seconds / kUnits[i + 1].seconds;
    const std::string text = absl::StrCat(seconds / kUnits[i].seconds, kUnits[i].name);
    return rest == 0 ? text : absl::StrCat(text, rest, kUnits[i + 1].name);
  }
  return absl::StrCat(seconds, "s");
}

std::string AgeSince(const google::protobuf::Timestamp& time, absl::Time now) {
  if (time.seconds() == 0 && time.nanos() == 0) return "";
  return Age(now - FromProto(time));
}

std::string Elapsed(absl::Duration duration) {
  const double seconds = std::max(0.0, absl::ToDoubleSeconds(duration));
  if (seconds < 10) return absl::StrFormat("%.2f s", seconds);
  if (seconds < 120) return absl::StrFormat("%.1f s", seconds);
  return Age(duration);
}

std::string Grouped(uint64_t number) {
  std::string text = absl::StrCat(number);
  for (int i = static_cast<int>(text.size()) - 3; i > 0; i -= 3) text.insert(i, ",");
  return text;
}

std::string Bytes(uint64_t size_bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(size_bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return absl::StrFormat("%.*f %s", value < 10 && unit > 0 ? 1 : 0, value, kUnits[unit]);
}

std::string SignalName(int signal) {
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? absl::StrCat("signal ", signal) : absl::StrCat("SIG", name);
}

std::string Printable(absl::string_view text) {
  std::string out;
  for (const char c : text) {
    const unsigned char byte = c;
    if ((byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7F) {
      absl::StrAppendFormat(&out, "\\x%02x", byte);
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace muster::cli
