// Tables of metric families. A program exports its metrics by such a table, and
// docs/reference/metrics.md is generated from it.
#ifndef MUSTER_COMMON_METRICS_FAMILY_H_
#define MUSTER_COMMON_METRICS_FAMILY_H_

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "prometheus/metric_family.h"
#include "prometheus/metric_type.h"

namespace muster::metrics {

using prometheus::MetricType;

// How far users may rely on a metric. docs/reference/metrics.md explains the levels.
enum class Stability {
  Stable,
  Experimental,
};

struct Family {
  absl::string_view name;
  MetricType type;
  Stability stability;
  const char* labels[6];  // label names; the first null pointer ends them
  const char* help;

  std::vector<std::string> label_names() const;
};

// The family of that name. Does not compile if `table` has none.
template <size_t N>
consteval const Family& Find(const Family (&table)[N], absl::string_view name) {
  for (const Family& family : table) {
    if (family.name == name) return family;
  }
  throw "no such metric family";
}

// The series of counters and gauges that one scrape exports.
class Collection {
 public:
  // Adds a series; `labels` are the values of the family's labels, in the family's order.
  void Add(const Family& family, std::vector<std::string> labels, double value);

  // Returns the families that have series, sorted by name.
  std::vector<prometheus::MetricFamily> Take();

 private:
  std::map<absl::string_view, prometheus::MetricFamily> families_;
};

}  // namespace muster::metrics

#endif  // MUSTER_COMMON_METRICS_FAMILY_H_
