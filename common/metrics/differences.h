// Comparison of exported metrics with the table that documents them; for tests.
#ifndef MUSTER_COMMON_METRICS_DIFFERENCES_H_
#define MUSTER_COMMON_METRICS_DIFFERENCES_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/metrics/family.h"

namespace muster::metrics {

// One line for each family that is only in `exported` or only in `table`, and for each that differs
// in type, help or labels; empty if there is none.
std::vector<std::string> Differences(const std::vector<prometheus::MetricFamily>& exported,
                                     absl::Span<const Family> table);

// The names of families in the text of a scrape that are not in `table`.
std::vector<std::string> UnknownFamilies(absl::string_view scrape, absl::Span<const Family> table);

}  // namespace muster::metrics

#endif  // MUSTER_COMMON_METRICS_DIFFERENCES_H_
