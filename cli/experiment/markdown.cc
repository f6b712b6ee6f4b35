#include "cli/experiment/markdown.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cli/output/words.h"

namespace muster::cli {
namespace {

std::string Row(const std::vector<std::string>& cells) {
  std::string row = "|";
  for (const std::string& cell : cells) {
    absl::StrAppend(&row, " ", absl::StrReplaceAll(Printable(cell), {{"|", "\\|"}, {"\n", " "}}),
                    " |");
  }
  return row + "\n";
}

}  // namespace

std::string MarkdownTable(const std::vector<std::string>& heads,
                          const std::vector<std::vector<std::string>>& rows) {
  std::string table = Row(heads) + "|";
  for (size_t i = 0; i < heads.size(); ++i) table += "---|";
  table += "\n";
  for (const std::vector<std::string>& row : rows) table += Row(row);
  return table;
}

}  // namespace muster::cli
