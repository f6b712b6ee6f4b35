#include "cli/experiment/plots.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/experiment/metrics.h"
#include "cli/experiment/svg_plot.h"

namespace muster::cli {
namespace {

constexpr size_t kNoAxis = static_cast<size_t>(-1);

size_t AxisIndex(const Experiment& experiment, const std::string& name) {
  for (size_t i = 0; i < experiment.axes.size(); ++i) {
    if (experiment.axes[i].name == name) return i;
  }
  return kNoAxis;
}

// The label, reduced to characters that are allowed in a file name.
std::string FileWord(const std::string& label) {
  std::string word;
  for (const char c : label) {
    word += absl::ascii_isalnum(c) || c == '.' ? absl::ascii_tolower(c) : '-';
  }
  return word;
}

std::vector<std::string> LabelsOf(const Axis& axis) {
  std::vector<std::string> labels;
  for (const AxisValue& value : axis.values) labels.push_back(value.label);
  return labels;
}

// The text of a label in a title or legend: a number alone is prefixed with the name of its axis.
std::string LabelText(const Axis& axis, const std::string& label) {
  double number;
  return absl::SimpleAtod(label, &number) ? absl::StrCat(axis.name, "=", label) : label;
}

// Draws one plot, of the cells that agree on all axes but x and series.
class Facet {
 public:
  Facet(const Experiment& experiment, const PlotRequest& request)
      : experiment_(experiment),
        request_(request),
        metric_(*FindMetric(request.metric)),
        x_(AxisIndex(experiment, request.x)),
        series_(AxisIndex(experiment, request.series)) {}

  // The labels of the other axes.
  std::vector<std::string> Others(const Cell& cell) const {
    std::vector<std::string> labels;
    for (size_t i = 0; i < cell.labels.size(); ++i) {
      if (i != x_ && i != series_) labels.push_back(cell.labels[i]);
    }
    return labels;
  }

  std::optional<PlotFile> Draw(const std::vector<std::string>& others,
                               const std::vector<const CellResult*>& cells) const {
    std::map<std::pair<std::string, std::string>, double> values;  // by series and x
    for (const CellResult* cell : cells) {
      const auto value = cell->medians.find(metric_.name);
      if (value == cell->medians.end()) continue;
      values[{SeriesOf(cell->cell), cell->cell.labels[x_]}] =
          PlotValue(metric_.unit, value->second);
    }
    if (values.empty()) return std::nullopt;
    std::string title = request_.title.empty() ? metric_.title : request_.title;
    std::vector<std::string> label_texts;
    for (size_t i = 0; i < experiment_.axes.size(); ++i) {
      if (i == x_ || i == series_) continue;
      label_texts.push_back(LabelText(experiment_.axes[i], others[label_texts.size()]));
    }
    if (!label_texts.empty()) absl::StrAppend(&title, ": ", absl::StrJoin(label_texts, ", "));
    PlotFile file;
    file.name = absl::StrCat(metric_.name, "-by-", request_.x);
    if (series_ != kNoAxis) absl::StrAppend(&file.name, "-", request_.series);
    for (const std::string& label : others) absl::StrAppend(&file.name, "-", FileWord(label));
    const bool lines = request_.kind == PlotRequest::Kind::kLines;
    file.name += lines ? "-lines.svg" : ".svg";
    file.svg = lines ? Lines(title, values) : Bars(title, values);
    return file;
  }

 private:
  using Values = std::map<std::pair<std::string, std::string>, double>;

  std::string SeriesOf(const Cell& cell) const {
    return series_ == kNoAxis ? "" : cell.labels[series_];
  }
  std::string SeriesTitle(const std::string& label) const {
    return series_ == kNoAxis ? "" : LabelText(experiment_.axes[series_], label);
  }
  // The series that have a value, in the order of the file.
  std::vector<std::string> SeriesIn(const Values& values) const {
    if (series_ == kNoAxis) return {""};
    std::vector<std::string> names = LabelsOf(experiment_.axes[series_]);
    const auto is_empty = [&values](const std::string& name) {
      return std::none_of(values.begin(), values.end(),
                          [&name](const auto& entry) { return entry.first.first == name; });
    };
    names.erase(std::remove_if(names.begin(), names.end(), is_empty), names.end());
    return names;
  }

  std::string Bars(const std::string& title, const Values& values) const {
    BarPlot plot = {title, UnitName(metric_.unit), request_.x, LabelsOf(experiment_.axes[x_]), {}};
    for (const std::string& name : SeriesIn(values)) {
      BarSeries series = {SeriesTitle(name), {}};
      for (const std::string& label : plot.groups) {
        const auto value = values.find({name, label});
        series.values.push_back(value == values.end() ? std::nullopt
                                                      : std::optional<double>(value->second));
      }
      plot.series.push_back(std::move(series));
    }
    return BarSvg(plot);
  }

  std::string Lines(const std::string& title, const Values& values) const {
    LinePlot plot = {title, UnitName(metric_.unit), request_.x, {}, {}};
    std::vector<std::string> labels = LabelsOf(experiment_.axes[x_]);
    double number;
    const bool numbers = std::all_of(
        labels.begin(), labels.end(),
        [&number](const std::string& label) { return absl::SimpleAtod(label, &number); });
    if (!numbers) plot.x_names = labels;
    for (const std::string& name : SeriesIn(values)) {
      LineSeries series = {SeriesTitle(name), {}};
      for (size_t i = 0; i < labels.size(); ++i) {
        const auto value = values.find({name, labels[i]});
        if (value == values.end()) continue;
        double x = static_cast<double>(i);
        if (numbers && !absl::SimpleAtod(labels[i], &x)) continue;
        series.points.emplace_back(x, value->second);
      }
      std::sort(series.points.begin(), series.points.end());
      plot.series.push_back(std::move(series));
    }
    return LineSvg(plot);
  }

  const Experiment& experiment_;
  const PlotRequest& request_;
  const Metric& metric_;
  const size_t x_;
  const size_t series_;
};

}  // namespace

std::vector<PlotFile> DrawPlots(const Experiment& experiment,
                                const std::vector<CellResult>& results) {
  std::vector<PlotRequest> requests = experiment.plots;
  if (requests.empty() && !experiment.axes.empty()) {
    PlotRequest request;
    request.metric = "images_per_second";
    request.x = experiment.axes[0].name;
    if (experiment.axes.size() > 1) request.series = experiment.axes[1].name;
    requests.push_back(request);
  }
  std::vector<PlotFile> files;
  for (const PlotRequest& request : requests) {
    const Facet facet(experiment, request);
    std::map<std::vector<std::string>, std::vector<const CellResult*>> by_others;
    for (const CellResult& result : results) {
      by_others[facet.Others(result.cell)].push_back(&result);
    }
    for (const auto& [others, cells] : by_others) {
      std::optional<PlotFile> file = facet.Draw(others, cells);
      if (file.has_value()) files.push_back(*std::move(file));
    }
  }
  return files;
}

}  // namespace muster::cli
