#include "cli/compare/columns.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cli/output/words.h"

namespace muster::cli {
namespace {

constexpr size_t kGap = 2;

// The number of bytes of the first code point of valid UTF-8.
size_t CodePointBytes(absl::string_view text) {
  size_t bytes = 1;
  while (bytes < text.size() && (text[bytes] & 0xC0) == 0x80) ++bytes;
  return bytes;
}

// The number of bytes of `text` that fit into `width` columns; at least one code point.
size_t FittingBytes(absl::string_view text, size_t width) {
  size_t bytes = 0;
  size_t used = 0;
  while (bytes < text.size()) {
    const size_t next = CodePointBytes(text.substr(bytes));
    used += DisplayWidth(text.substr(bytes, next));
    if (used > width && bytes > 0) break;
    bytes += next;
  }
  return bytes;
}

std::string Padded(const std::string& text, size_t width) {
  const size_t used = DisplayWidth(text);
  return used < width ? text + std::string(width - used, ' ') : text;
}

size_t WidestCell(const std::vector<std::vector<std::string>>& rows, size_t column) {
  size_t widest = 0;
  for (const auto& row : rows) widest = std::max(widest, DisplayWidth(row[column]));
  return widest;
}

}  // namespace

std::vector<std::string> CutToWidth(absl::string_view text, size_t width) {
  const std::string printable = absl::StrReplaceAll(Printable(text), {{"\n", " "}, {"\t", " "}});
  absl::string_view rest = printable;
  std::vector<std::string> pieces;
  while (!rest.empty()) {
    size_t bytes = FittingBytes(rest, width);
    if (bytes < rest.size()) {
      const size_t cut = rest.substr(0, bytes).find_last_of(" ,/.");
      if (cut != absl::string_view::npos && cut + 1 > bytes / 2) bytes = cut + 1;
    }
    pieces.emplace_back(absl::StripTrailingAsciiWhitespace(rest.substr(0, bytes)));
    rest.remove_prefix(bytes);
    rest = absl::StripLeadingAsciiWhitespace(rest);
  }
  return pieces;
}

std::string ColumnsText(const std::vector<std::vector<std::string>>& rows, size_t width) {
  if (rows.empty() || rows.front().empty()) return "";
  const size_t columns = rows.front().size();
  const size_t most = columns <= 3 ? width / 2 : width * 2 / 5;
  std::vector<size_t> widths(columns, std::min(WidestCell(rows, 0), most));
  for (size_t i = 1; i < columns; ++i) {
    const size_t share = (width - widths[0]) / (columns - 1) - kGap;
    widths[i] = std::min(WidestCell(rows, i), share);
  }
  std::string out;
  for (const auto& row : rows) {
    std::vector<std::vector<std::string>> cells;
    size_t lines = 1;
    for (size_t i = 0; i < columns; ++i) {
      cells.push_back(CutToWidth(row[i].empty() ? "-" : row[i], widths[i]));
      lines = std::max(lines, cells.back().size());
    }
    for (size_t line = 0; line < lines; ++line) {
      std::string text;
      for (size_t i = 0; i < columns; ++i) {
        const std::string piece = line < cells[i].size() ? cells[i][line] : "";
        absl::StrAppend(&text, Padded(piece, widths[i]), std::string(kGap, ' '));
      }
      absl::StrAppend(&out, absl::StripTrailingAsciiWhitespace(text), "\n");
    }
  }
  return out;
}

}  // namespace muster::cli
