// The text of `muster compare`: tables with a column per job, whose cells continue on further
// lines.
#ifndef MUSTER_CLI_COMPARE_COMPARISON_TEXT_H_
#define MUSTER_CLI_COMPARE_COMPARISON_TEXT_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "cli/compare/comparison.h"

namespace muster::cli {

// `text` in pieces of at most `width` terminal columns, cut after a blank, comma, slash or dot
// where there is one in the second half of a piece. Control characters are escaped.
std::vector<std::string> CutToWidth(absl::string_view text, size_t width);

// The rows, all of which have as many cells, in at most `width` columns. The first column gets at
// most two fifths of it, or half of it beside two others, and these get equal parts of the rest.
std::string ColumnsText(const std::vector<std::vector<std::string>>& rows, size_t width);

// Jobs that fit next to each other in 80 columns.
inline constexpr size_t kMaxComparedJobs = 4;

// Tables with a column per job, no wider than `width`, which is at least 60: longer values continue
// on further lines. Spec and environment have only rows that differ, unless `with_equal`.
std::string ComparisonText(const Comparison& comparison, bool with_equal, size_t width);

}  // namespace muster::cli

#endif  // MUSTER_CLI_COMPARE_COMPARISON_TEXT_H_
