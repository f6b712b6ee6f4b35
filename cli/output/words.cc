#include "cli/output/words.h"

#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/time/proto_time.h"

namespace muster::cli {
namespace {

struct CodePoint {
  uint32_t value;  // the byte itself when not valid
  size_t size_bytes;
  bool valid;
};

// `text` must not be empty.
CodePoint NextCodePoint(absl::string_view text) {
  const unsigned char first = text[0];
  if (first < 0x80) return {first, 1, true};
  const size_t size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  uint32_t value = first & (0x7F >> size);
  if (first < 0xC2 || first > 0xF4 || text.size() < size) return {first, 1, false};
  for (size_t i = 1; i < size; ++i) {
    const unsigned char byte = text[i];
    if ((byte & 0xC0) != 0x80) return {first, 1, false};
    value = value << 6 | (byte & 0x3F);
  }
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  if (value < kLeast[size] || value > 0x10FFFF || surrogate) return {first, 1, false};
  return {value, size, true};
}

struct Range {
  uint32_t first, last;
};

constexpr Range kControl[] = {{0x00, 0x08},
                              {0x0B, 0x1F},
                              {0x7F, 0x9F},
                              // Writing directions: text could be made to look like other text.
                              {0x200E, 0x200F},
                              {0x2028, 0x202E},
                              {0x2066, 0x2069}};
constexpr Range kZeroWidth[] = {{0x0300, 0x036F}, {0x1AB0, 0x1AFF}, {0x200B, 0x200D},
                                {0x20D0, 0x20FF}, {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}};
constexpr Range kDoubleWidth[] = {{0x1100, 0x115F},   {0x2E80, 0x303E},   {0x3041, 0xA4CF},
                                  {0xAC00, 0xD7A3},   {0xF900, 0xFAFF},   {0xFE30, 0xFE6F},
                                  {0xFF00, 0xFF60},   {0xFFE0, 0xFFE6},   {0x1F300, 0x1F64F},
                                  {0x1F680, 0x1F6FF}, {0x1F900, 0x1F9FF}, {0x20000, 0x3FFFD}};

template <size_t N>
bool InRanges(uint32_t value, const Range (&ranges)[N]) {
  return std::any_of(std::begin(ranges), std::end(ranges), [value](const Range& range) {
    return value >= range.first && value <= range.last;
  });
}

bool IsControl(uint32_t value) { return InRanges(value, kControl); }

constexpr uint32_t kDefaultWidth = 80;
constexpr uint32_t kMinWidth = 60;

}  // namespace

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

std::string HexId(uint64_t id) { return absl::StrFormat("%016x", id); }

std::string SignalName(int signal) {
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? absl::StrCat("signal ", signal) : absl::StrCat("SIG", name);
}

std::string Printable(absl::string_view text) {
  std::string out;
  while (!text.empty()) {
    const CodePoint point = NextCodePoint(text);
    const absl::string_view bytes = text.substr(0, point.size_bytes);
    text.remove_prefix(point.size_bytes);
    if (point.valid && !IsControl(point.value)) {
      out.append(bytes.data(), bytes.size());
    } else if (point.valid && point.value > 0xFF) {
      absl::StrAppendFormat(&out, "\\u%04x", point.value);
    } else {
      absl::StrAppendFormat(&out, "\\x%02x", point.value);
    }
  }
  return out;
}

size_t DisplayWidth(absl::string_view text) {
  size_t width = 0;
  while (!text.empty()) {
    const CodePoint point = NextCodePoint(text);
    text.remove_prefix(point.size_bytes);
    if (!InRanges(point.value, kZeroWidth)) width += InRanges(point.value, kDoubleWidth) ? 2 : 1;
  }
  return width;
}

size_t TextWidth() {
  uint32_t width = kDefaultWidth;
  const char* columns = std::getenv("COLUMNS");
  winsize size;
  if (columns == nullptr || !absl::SimpleAtoi(columns, &width)) {
    const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    width = known ? size.ws_col : kDefaultWidth;
  }
  return std::max(width, kMinWidth);
}

std::vector<std::string> WrappedLines(absl::string_view text, size_t width) {
  std::vector<std::string> lines;
  size_t used = 0;  // columns of the last line
  for (const absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    const size_t columns = DisplayWidth(word);
    if (lines.empty() || used + 1 + columns > width) {
      lines.emplace_back(word);
      used = columns;
    } else {
      absl::StrAppend(&lines.back(), " ", word);
      used += 1 + columns;
    }
  }
  return lines;
}

}  // namespace muster::cli
