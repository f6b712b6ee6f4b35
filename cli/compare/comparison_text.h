// The text of `muster compare`.
#ifndef MUSTER_CLI_COMPARE_COMPARISON_TEXT_H_
#define MUSTER_CLI_COMPARE_COMPARISON_TEXT_H_

#include <cstddef>
#include <string>

#include "cli/compare/comparison.h"

namespace muster::cli {

// Jobs that fit next to each other in 80 columns.
inline constexpr size_t kMaxComparedJobs = 4;

// Tables with a column per job, no wider than `width`, which is at least 60: longer values continue
// on further lines. Spec and environment have only rows that differ, unless `with_equal`.
std::string ComparisonText(const Comparison& comparison, bool with_equal, size_t width);

}  // namespace muster::cli

#endif  // MUSTER_CLI_COMPARE_COMPARISON_TEXT_H_
