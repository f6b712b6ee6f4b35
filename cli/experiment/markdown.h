// Formats Markdown tables.
#ifndef MUSTER_CLI_EXPERIMENT_MARKDOWN_H_
#define MUSTER_CLI_EXPERIMENT_MARKDOWN_H_

#include <string>
#include <vector>

namespace muster::cli {

// Cells may contain any text, which is escaped; each row has as many cells as there are heads.
std::string MarkdownTable(const std::vector<std::string>& heads,
                          const std::vector<std::vector<std::string>>& rows);

}  // namespace muster::cli

#endif  // MUSTER_CLI_EXPERIMENT_MARKDOWN_H_
