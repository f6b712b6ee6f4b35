#include "cli/compare/comparison.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/output/json.h"
#include "common/time/proto_time.h"

namespace muster::cli {
namespace {

using nlohmann::ordered_json;
using History = v1::JobHistory;

// Rows in the order in which their names are first added.
class Rows {
 public:
  explicit Rows(size_t jobs) : jobs_(jobs) {}

  void Set(size_t job, const std::string& name, ordered_json value) {
    const auto [found, is_new] = index_.try_emplace(name, rows_.size());
    if (is_new) rows_.push_back({name, std::vector<ordered_json>(jobs_)});
    rows_[found->second].values[job] = std::move(value);
  }
  std::vector<ComparedRow> Take() { return std::move(rows_); }

 private:
  const size_t jobs_;
  std::map<std::string, size_t> index_;
  std::vector<ComparedRow> rows_;
};

// Calls `visit` with the dotted path of each value that is no object. Lists are one value.
void Flatten(const ordered_json& value, const std::string& path,
             const std::function<void(const std::string&, const ordered_json&)>& visit) {
  if (!value.is_object()) {
    visit(path, value);
    return;
  }
  for (const auto& [key, part] : value.items()) {
    Flatten(part, path.empty() ? key : absl::StrCat(path, ".", key), visit);
  }
}

std::vector<ComparedRow> CompareSpecs(absl::Span<const History> histories) {
  std::map<std::string, ComparedRow> rows;  // sorted, so that sections stay together
  for (size_t i = 0; i < histories.size(); ++i) {
    Flatten(ToJson(histories[i].job().spec()), "",
            [&](const std::string& path, const ordered_json& value) {
              ComparedRow& row = rows[path];
              row.name = path;
              row.values.resize(histories.size());
              row.values[i] = value;
            });
  }
  std::vector<ComparedRow> sorted;
  for (auto& [path, row] : rows) sorted.push_back(std::move(row));
  return sorted;
}

// "0.1.0" or, of nodes that differ, "0.1.0, 0.2.0"; null if no node has the value.
ordered_json Distinct(const History& history,
                      const std::function<std::string(const v1::NodeEnvironment&)>& value) {
  std::set<std::string> distinct;
  for (const v1::NodeEnvironment& node : history.nodes()) {
    std::string text = value(node);
    if (!text.empty()) distinct.insert(std::move(text));
  }
  return distinct.empty() ? ordered_json() : ordered_json(absl::StrJoin(distinct, ", "));
}

// "2 x NVIDIA H200", over all nodes.
ordered_json Devices(const History& history) {
  std::map<std::string, int> counts;
  for (const v1::NodeEnvironment& node : history.nodes()) {
    for (const std::string& device : node.devices()) ++counts[device];
  }
  if (counts.empty()) return {};
  return absl::StrJoin(counts, ", ", [](std::string* out, const auto& entry) {
    absl::StrAppend(out, entry.second, " x ", entry.first);
  });
}

ordered_json TextOrNull(const std::string& text) {
  return text.empty() ? ordered_json() : ordered_json(text);
}

std::string CountText(uint64_t count) { return count == 0 ? "" : absl::StrCat(count); }

std::vector<ComparedRow> CompareEnvironments(absl::Span<const History> histories) {
  Rows rows(histories.size());
  for (size_t i = 0; i < histories.size(); ++i) {
    const History& history = histories[i];
    const v1::TrainSummary& summary = history.job().summary();
    rows.Set(i, "coordinator_version", TextOrNull(history.coordinator_version()));
    rows.Set(i, "worker_version",
             Distinct(history, [](const auto& node) { return node.software_version(); }));
    rows.Set(i, "driver_version",
             Distinct(history, [](const auto& node) { return node.driver_version(); }));
    rows.Set(i, "nodes",
             history.node_count() == 0 ? ordered_json() : ordered_json(history.node_count()));
    rows.Set(i, "node_names", Distinct(history, [](const auto& node) { return node.node(); }));
    rows.Set(i, "cpus_per_node",
             Distinct(history, [](const auto& node) { return CountText(node.cpu_count()); }));
    rows.Set(i, "memory_bytes_per_node",
             Distinct(history, [](const auto& node) { return CountText(node.memory_bytes()); }));
    rows.Set(i, "gpus", Devices(history));
    rows.Set(i, "device", TextOrNull(summary.device()));
    rows.Set(i, "precision", TextOrNull(summary.precision()));
    rows.Set(i, "strategy", TextOrNull(summary.strategy()));
  }
  std::vector<ComparedRow> all = rows.Take();
  std::erase_if(all, [](const ComparedRow& row) {
    return std::all_of(row.values.begin(), row.values.end(),
                       [](const ordered_json& value) { return value.is_null(); });
  });
  return all;
}

std::optional<absl::Duration> Between(const google::protobuf::Timestamp& begin, bool has_begin,
                                      absl::Time end) {
  if (!has_begin) return std::nullopt;
  return end - FromProto(begin);
}

// Results of a train job: those of its summary, or while it has none those of its latest report.
void SetTrainingResults(const v1::Job& job, size_t index, Rows& rows) {
  const v1::Progress& progress = job.progress();
  const v1::TrainSummary& summary = job.summary();
  const bool over = job.has_summary();
  const auto set = [&](const char* name, double value) {
    if (value != 0) rows.Set(index, name, value);
  };
  if (over || progress.step() > 0)
    rows.Set(index, "steps", over ? summary.steps() : progress.step());
  set("final_loss", over ? summary.final_loss() : progress.loss());
  set("test_accuracy", over ? summary.test_accuracy() : progress.test_accuracy());
  set("test_loss", over ? summary.test_loss() : progress.test_loss());
  set("images_per_second", over ? summary.images_per_second() : progress.images_per_second());
  set("step_seconds", over ? summary.median_step_seconds() : progress.step_seconds());
  set("data_wait_seconds", over ? summary.data_wait_seconds() : progress.data_wait_seconds());
  set("exposed_communication_seconds",
      over ? summary.exposed_communication_seconds() : progress.exposed_communication_seconds());
  if (summary.peak_memory_bytes() > 0) {
    rows.Set(index, "peak_memory_bytes", summary.peak_memory_bytes());
  }
  set("seconds_to_first_step", summary.seconds_to_first_step());
}

std::vector<ComparedRow> CompareResults(absl::Span<const History> histories, absl::Time now) {
  Rows rows(histories.size());
  for (size_t i = 0; i < histories.size(); ++i) {
    const v1::Job& job = histories[i].job();
    rows.Set(i, "state", v1::JobState_Name(job.state()));
    rows.Set(i, "reason", TextOrNull(job.reason()));
    SetTrainingResults(job, i, rows);
    const absl::Time end = job.has_finish_time() ? FromProto(job.finish_time()) : now;
    if (const auto ran = Between(job.start_time(), job.has_start_time(), end)) {
      rows.Set(i, "duration_seconds", absl::ToDoubleSeconds(*ran));
    }
    if (const auto waited =
            Between(job.submit_time(), job.has_submit_time() && job.has_start_time(),
                    FromProto(job.start_time()))) {
      rows.Set(i, "queued_seconds", absl::ToDoubleSeconds(*waited));
    }
    rows.Set(i, "restarts", job.restarts());
    rows.Set(i, "preemptions", job.preemptions());
    if (FromProto(job.goodput().slots_held_time()) > absl::ZeroDuration()) {
      rows.Set(i, "goodput_ratio", job.goodput().goodput_ratio());
    }
  }
  return rows.Take();
}

std::vector<ComparedRow> CompareCauses(absl::Span<const History> histories) {
  Rows rows(histories.size());
  for (size_t i = 0; i < histories.size(); ++i) {
    std::map<std::string, double> seconds;  // the nodes of lost_to_node are added up
    std::vector<std::string> order;
    for (const v1::Goodput::Cause& cause : histories[i].job().goodput().causes()) {
      if (seconds.count(cause.cause()) == 0) order.push_back(cause.cause());
      seconds[cause.cause()] += absl::ToDoubleSeconds(FromProto(cause.wall_time()));
    }
    for (const std::string& cause : order) rows.Set(i, cause, seconds[cause]);
  }
  return rows.Take();
}

// The loss at `step`, interpolated between the neighbouring points, which are means of several
// steps. Null outside of the curve.
ordered_json LossAt(const v1::Curves& curves, uint64_t step) {
  const auto after =
      std::find_if(curves.points().begin(), curves.points().end(),
                   [step](const v1::CurvePoint& point) { return point.step() >= step; });
  if (after == curves.points().end() || after->loss() == 0) return {};
  if (after->step() == step) return after->loss();
  if (after == curves.points().begin() || std::prev(after)->loss() == 0) return {};
  const v1::CurvePoint& before = *std::prev(after);
  const double share = static_cast<double>(step - before.step()) /
                       static_cast<double>(after->step() - before.step());
  return before.loss() + share * (after->loss() - before.loss());
}

ordered_json TestAccuracyAt(const v1::Curves& curves, uint64_t step) {
  ordered_json accuracy;
  for (const v1::CurvePoint& point : curves.points()) {
    if (point.step() > step) break;
    if (point.test_accuracy() > 0) accuracy = point.test_accuracy();
  }
  return accuracy;
}

// The steps are spread evenly over what all curves cover.
std::vector<CurveRow> CompareCurves(absl::Span<const History> histories, size_t curve_steps) {
  uint64_t first = 0;
  uint64_t last = std::numeric_limits<uint64_t>::max();
  size_t with_curves = 0;
  for (const History& history : histories) {
    const auto& points = history.curves().points();
    if (points.empty()) continue;
    ++with_curves;
    first = std::max(first, points.begin()->step());
    last = std::min(last, points.rbegin()->step());
  }
  std::vector<CurveRow> rows;
  if (with_curves == 0 || first > last || curve_steps == 0) return rows;
  const uint64_t count = std::min<uint64_t>(curve_steps, last - first + 1);
  for (uint64_t k = 0; k < count; ++k) {
    CurveRow row;
    row.step = count == 1 ? last : first + (last - first) * k / (count - 1);
    for (const History& history : histories) {
      row.loss.push_back(LossAt(history.curves(), row.step));
      row.test_accuracy.push_back(TestAccuracyAt(history.curves(), row.step));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

ordered_json RowsJson(const char* key, const std::vector<ComparedRow>& rows, bool with_equal) {
  ordered_json list = ordered_json::array();
  for (const ComparedRow& row : rows) {
    if (with_equal || row.Differs()) list.push_back({{key, row.name}, {"values", row.values}});
  }
  return list;
}

}  // namespace

bool ComparedRow::Differs() const {
  return std::any_of(values.begin(), values.end(),
                     [this](const ordered_json& value) { return value != values.front(); });
}

Comparison Compare(absl::Span<const v1::JobHistory> histories, size_t curve_steps, absl::Time now) {
  Comparison comparison;
  for (const History& history : histories) comparison.jobs.push_back(history.job());
  comparison.spec = CompareSpecs(histories);
  comparison.environment = CompareEnvironments(histories);
  comparison.results = CompareResults(histories, now);
  comparison.seconds_by_cause = CompareCauses(histories);
  comparison.curves = CompareCurves(histories, curve_steps);
  return comparison;
}

ordered_json ComparisonJson(const Comparison& comparison, bool with_equal) {
  ordered_json jobs = ordered_json::array();
  for (const v1::Job& job : comparison.jobs) jobs.push_back(job.job_id());
  ordered_json curves = ordered_json::array();
  for (const CurveRow& row : comparison.curves) {
    curves.push_back(
        {{"step", row.step}, {"loss", row.loss}, {"test_accuracy", row.test_accuracy}});
  }
  return {{"jobs", jobs},
          {"spec", RowsJson("field", comparison.spec, with_equal)},
          {"environment", RowsJson("name", comparison.environment, with_equal)},
          {"results", RowsJson("name", comparison.results, /*with_equal=*/true)},
          {"seconds_by_cause", RowsJson("cause", comparison.seconds_by_cause, true)},
          {"curves", curves}};
}

}  // namespace muster::cli
