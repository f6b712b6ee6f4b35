#include "docs/reference/markdown.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "docs/reference/pages.h"

namespace muster::reference {
namespace {

std::string Line(const Row& cells) {
  std::string line = "|";
  for (const std::string& cell : cells) {
    absl::StrAppend(&line, " ", absl::StrReplaceAll(cell, {{"|", "\\|"}, {"\n", " "}}), " |");
  }
  return line + "\n";
}

}  // namespace

std::string Table(const Row& heads, const std::vector<Row>& rows) {
  if (rows.empty()) return "";
  std::string table = Line(heads);
  for (size_t i = 0; i < heads.size(); ++i) table += "|---";
  table += "|\n";
  for (const Row& row : rows) table += Line(row);
  return table + "\n";
}

std::string Code(absl::string_view text) {
  return text.empty() ? "" : absl::StrCat("`", text, "`");
}

std::string GeneratedFrom(absl::string_view source) {
  return absl::StrCat("Generated from ", source, "; to update it run\n", Code(kWriteCommand),
                      ".\n\n");
}

}  // namespace muster::reference
