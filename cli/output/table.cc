#include "cli/output/table.h"

#include <algorithm>
#include <utility>

#include "cli/output/words.h"

namespace muster::cli {
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

std::string Table::Text() const {
  std::vector<size_t> widths(rows_[0].size(), 0);
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], DisplayWidth(row[i]));
  }
  std::string text;
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) {
      text += row[i];
      if (i + 1 < row.size()) text.append(widths[i] - DisplayWidth(row[i]) + 2, ' ');
    }
    text += '\n';
  }
  return text;
}

}  // namespace muster::cli
