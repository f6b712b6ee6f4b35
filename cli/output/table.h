// A text table with a header row and no borders.
#ifndef MUSTER_CLI_OUTPUT_TABLE_H_
#define MUSTER_CLI_OUTPUT_TABLE_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "google/protobuf/timestamp.pb.h"

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

// Lines "NAME:      value" of a description.
class FieldList {
 public:
  // `column`: where the values begin, 0 for the first column.
  explicit FieldList(size_t column) : column_(column) {}
  // Adds a field unless the value is empty. Further lines of the value are indented, and control
  // characters are escaped.
  void Add(absl::string_view name, absl::string_view value);
  // As Add, for a field with a time: "2026-01-05 10:00:00 +0100 (5m ago)".
  void AddTime(absl::string_view name, bool known, const google::protobuf::Timestamp& time,
               absl::Time now);
  // Adds lines that are not a field.
  void AddText(absl::string_view text) { absl::StrAppend(&text_, text); }
  const std::string& text() const { return text_; }

 private:
  const size_t column_;
  std::string text_;
};

}  // namespace muster::cli

#endif  // MUSTER_CLI_OUTPUT_TABLE_H_
