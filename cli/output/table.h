// A text table with a header row and no borders.
#ifndef MUSTER_CLI_OUTPUT_TABLE_H_
#define MUSTER_CLI_OUTPUT_TABLE_H_

#include <cstddef>
#include <string>
#include <vector>

namespace muster::cli {

class Table {
 public:
  explicit Table(std::vector<std::string> heads);
  // Adds a row, which must have as many cells as there are heads. Line breaks become spaces,
  // control characters are escaped, and an empty cell is printed as '-'.
  void AddRow(std::vector<std::string> cells);
  // The table as text. Each column is as wide as its widest cell; columns are separated by two
  // spaces, without trailing spaces.
  std::string Text() const;
  // The same, with the widest columns wrapped so that no line is longer than `width` columns, as
  // far as the words allow it.
  std::string Text(size_t width) const;

 private:
  // Widths of the columns, given a function with the width of a cell.
  std::vector<size_t> Widths(size_t (*width_of)(const std::string& cell)) const;

  std::vector<std::vector<std::string>> rows_;
};

}  // namespace muster::cli

#endif  // MUSTER_CLI_OUTPUT_TABLE_H_
