#include "common/metrics/differences.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace muster::metrics {
namespace {

const Family* FindIn(absl::Span<const Family> table, absl::string_view name) {
  const auto found = std::find_if(table.begin(), table.end(),
                                  [name](const Family& family) { return family.name == name; });
  return found == table.end() ? nullptr : &*found;
}

std::string SortedLabels(std::vector<std::string> labels) {
  std::sort(labels.begin(), labels.end());
  return absl::StrJoin(labels, ",");
}

}  // namespace

std::vector<std::string> Differences(const std::vector<prometheus::MetricFamily>& exported,
                                     absl::Span<const Family> table) {
  std::vector<std::string> differences;
  std::set<absl::string_view> names;
  for (const prometheus::MetricFamily& family : exported) {
    const Family* expected = FindIn(table, family.name);
    if (expected == nullptr) {
      differences.push_back(absl::StrCat(family.name, ": not in the table"));
      continue;
    }
    if (!family.metric.empty()) names.insert(expected->name);
    if (family.type != expected->type || family.help != expected->help) {
      differences.push_back(absl::StrCat(family.name, ": type or help differs from the table"));
    }
    for (const prometheus::ClientMetric& metric : family.metric) {
      std::vector<std::string> labels;
      for (const auto& label : metric.label) labels.push_back(label.name);
      if (SortedLabels(labels) == SortedLabels(expected->label_names())) continue;
      differences.push_back(absl::StrCat(family.name, ": has labels ", SortedLabels(labels)));
    }
  }
  for (const Family& family : table) {
    if (names.count(family.name) == 0) {
      differences.push_back(absl::StrCat(family.name, ": not exported"));
    }
  }
  return differences;
}

std::vector<std::string> UnknownFamilies(absl::string_view scrape, absl::Span<const Family> table) {
  std::vector<std::string> unknown;
  for (const absl::string_view line : absl::StrSplit(scrape, '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    if (words.size() != 4 || words[1] != "TYPE") continue;
    if (FindIn(table, words[2]) == nullptr) unknown.push_back(words[2]);
  }
  return unknown;
}

}  // namespace muster::metrics
