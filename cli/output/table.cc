#include "cli/output/table.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_replace.h"
#include "cli/output/words.h"
#include "common/time/proto_time.h"

namespace muster::cli {
namespace {

constexpr size_t kGap = 2;  // spaces between columns

size_t LongestWord(const std::string& cell) {
  size_t longest = 0;
  for (const std::string& word : WrappedLines(cell, 0)) {
    longest = std::max(longest, DisplayWidth(word));
  }
  return longest;
}

// Narrows the widest columns, each to at least its `least`, until the columns fit into `width`.
void Fit(const std::vector<size_t>& least, size_t width, std::vector<size_t>& widths) {
  size_t total = kGap * (widths.size() - 1);
  for (const size_t column : widths) total += column;
  while (total > width) {
    size_t* widest = nullptr;
    for (size_t i = 0; i < widths.size(); ++i) {
      if (widths[i] > least[i] && (widest == nullptr || widths[i] > *widest)) widest = &widths[i];
    }
    if (widest == nullptr) return;
    --*widest;
    --total;
  }
}

// One line of a row whose cells are wrapped into lines.
std::string Line(const std::vector<std::vector<std::string>>& cells, size_t line,
                 const std::vector<size_t>& widths) {
  std::string text;
  size_t blanks = 0;  // before the next cell
  for (size_t i = 0; i < cells.size(); ++i) {
    const std::string cell = line < cells[i].size() ? cells[i][line] : "";
    if (!cell.empty()) text.append(std::exchange(blanks, 0), ' ');
    text += cell;
    blanks += widths[i] - std::min(widths[i], DisplayWidth(cell)) + kGap;
  }
  return text;
}

}  // namespace

Table::Table(std::vector<std::string> heads) { rows_.push_back(std::move(heads)); }

void Table::AddRow(std::vector<std::string> cells) {
  cells.resize(rows_[0].size());
  for (std::string& cell : cells) {
    std::replace_if(
        cell.begin(), cell.end(), [](char c) { return c == '\n' || c == '\t' || c == '\r'; }, ' ');
    cell = cell.empty() ? "-" : Printable(cell);
  }
  rows_.push_back(std::move(cells));
}

std::vector<size_t> Table::Widths(size_t (*width_of)(const std::string& cell)) const {
  std::vector<size_t> widths(rows_[0].size(), 0);
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  return widths;
}

std::string Table::Text() const { return Text(std::numeric_limits<size_t>::max()); }

std::string Table::Text(size_t width) const {
  std::vector<size_t> widths = Widths([](const std::string& cell) { return DisplayWidth(cell); });
  Fit(Widths(LongestWord), width, widths);
  std::string text;
  for (const auto& row : rows_) {
    std::vector<std::vector<std::string>> cells;
    size_t lines = 1;
    for (size_t i = 0; i < row.size(); ++i) {
      const bool fits = DisplayWidth(row[i]) <= widths[i];
      cells.push_back(fits ? std::vector<std::string>{row[i]} : WrappedLines(row[i], widths[i]));
      lines = std::max(lines, cells.back().size());
    }
    for (size_t line = 0; line < lines; ++line) text += Line(cells, line, widths) + "\n";
  }
  return text;
}

void FieldList::Add(absl::string_view name, absl::string_view value) {
  if (value.empty()) return;
  const std::string indent(column_, ' ');
  absl::StrAppend(&text_, name, ":", indent.substr(std::min(name.size() + 1, column_ - 1)),
                  absl::StrReplaceAll(Printable(value), {{"\n", "\n" + indent}}), "\n");
}

void FieldList::AddTime(absl::string_view name, bool known, const google::protobuf::Timestamp& time,
                        absl::Time now) {
  if (!known) return;
  Add(name,
      absl::StrCat(absl::FormatTime("%Y-%m-%d %H:%M:%S %z", FromProto(time), absl::LocalTimeZone()),
                   " (", AgeSince(time, now), " ago)"));
}

}  // namespace muster::cli
