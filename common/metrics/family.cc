#include "common/metrics/family.h"

#include <utility>

namespace muster::metrics {

std::vector<std::string> Family::label_names() const {
  std::vector<std::string> names;
  for (const char* const* name = labels; *name != nullptr; ++name) names.emplace_back(*name);
  return names;
}

void Collection::Add(const Family& family, std::vector<std::string> labels, double value) {
  prometheus::MetricFamily& exported = families_[family.name];
  exported.name = std::string(family.name);
  exported.help = family.help;
  exported.type = family.type;
  prometheus::ClientMetric& metric = exported.metric.emplace_back();
  for (size_t i = 0; i < labels.size() && family.labels[i] != nullptr; ++i) {
    metric.label.push_back({family.labels[i], std::move(labels[i])});
  }
  (family.type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
}

std::vector<prometheus::MetricFamily> Collection::Take() {
  std::vector<prometheus::MetricFamily> families;
  for (auto& [name, family] : families_) families.push_back(std::move(family));
  families_.clear();
  return families;
}

}  // namespace muster::metrics
