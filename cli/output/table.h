// Rows under upper-case heads, no borders.
#ifndef MUSTER_CLI_OUTPUT_TABLE_H_
#define MUSTER_CLI_OUTPUT_TABLE_H_

#include <string>
#include <vector>

namespace muster::cli {

class Table {
 public:
  explicit Table(std::vector<std::string> heads);
  // As many cells as heads. Line breaks become spaces, what a terminal would obey is escaped, and an
  // empty cell is shown as '-'.
  void AddRow(std::vector<std::string> cells);
  // Columns as wide as their widest cell, two spaces between, nothing behind the last.
  std::string Text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace muster::cli

#endif  // MUSTER_CLI_OUTPUT_TABLE_H_
