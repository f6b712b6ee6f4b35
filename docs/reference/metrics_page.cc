#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "coordinator/metric_families.h"
#include "docs/reference/markdown.h"
#include "docs/reference/pages.h"
#include "worker/metric_families.h"

namespace muster::reference {
namespace {

const char* TypeName(metrics::MetricType type) {
  switch (type) {
    case metrics::MetricType::Counter:
      return "counter";
    case metrics::MetricType::Gauge:
      return "gauge";
    case metrics::MetricType::Histogram:
      return "histogram";
    default:
      return "untyped";
  }
}

const char* StabilityName(metrics::Stability stability) {
  switch (stability) {
    case metrics::Stability::Stable:
      return "stable";
    case metrics::Stability::Experimental:
      return "experimental";
  }
  return "";
}

// Prometheus metrics have their unit in their name.
std::string UnitOf(absl::string_view name) {
  absl::ConsumeSuffix(&name, "_total");
  for (const char* unit : {"seconds", "bytes", "ratio", "celsius", "watts"}) {
    if (absl::EndsWith(name, absl::StrCat("_", unit))) return unit;
  }
  return "";
}

std::string FamilyTable(absl::Span<const metrics::Family> families) {
  std::vector<Row> rows;
  for (const metrics::Family& family : families) {
    rows.push_back({Code(family.name), TypeName(family.type),
                    absl::StrJoin(family.label_names(), ", "), UnitOf(family.name),
                    StabilityName(family.stability), family.help});
  }
  return Table({"metric", "type", "labels", "unit", "stability", "description"}, rows);
}

}  // namespace

std::string MetricsPage() {
  return absl::StrCat(
      "# Metrics reference\n\n"
      "For operators: the Prometheus metrics at `/metrics` of `muster-coordinator` and "
      "`muster-worker`. ",
      GeneratedFrom("the tables in `coordinator/metric_families.h` and "
                    "`worker/metric_families.h`"),
      "A metric without series is left out of a scrape: metrics of jobs appear with the first job, "
      "metrics of GPUs where there are GPUs.\n\n"
      "A stable metric keeps its name, type, labels and meaning until the next major version; "
      "values "
      "and labels may be added. An experimental metric can change or disappear in any version; the "
      "changelog says so.\n\n"
      "## muster-coordinator\n\n",
      FamilyTable(AllCoordinatorFamilies()), "## muster-worker\n\n",
      "The worker also exports the metrics of the ranks on its node.\n\n",
      FamilyTable(kWorkerFamilies), "### GPUs\n\n", FamilyTable(kGpuFamilies));
}

}  // namespace muster::reference
