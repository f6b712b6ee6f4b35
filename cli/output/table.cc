#include "cli/output/table.h"

#include <algorithm>
#include <utility>

namespace muster::cli {
namespace {

// Code points; good enough for the words that stand in tables.
size_t Width(const std::string& text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

}  // namespace

Table::Table(std::vector<std::string> heads) { rows_.push_back(std::move(heads)); }

void Table::AddRow(std::vector<std::string> cells) {
  cells.resize(rows_[0].size());
  for (std::string& cell : cells) {
    std::replace_if(
        cell.begin(), cell.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; }, ' ');
    if (cell.empty()) cell = "-";
  }
  rows_.push_back(std::move(cells));
}

std::string Table::Text() const {
  std::vector<size_t> widths(rows_[0].size(), 0);
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Width(row[i]));
  }
  std::string text;
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) {
      text += row[i];
      if (i + 1 < row.size()) text.append(widths[i] - Width(row[i]) + 2, ' ');
    }
    text += '\n';
  }
  return text;
}

}  // namespace muster::cli
