#include "cli/experiment/tables.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "cli/experiment/metrics.h"
#include "cli/output/table.h"
#include "cli/output/words.h"
#include "nlohmann/json.hpp"

namespace muster::cli {
namespace {

using nlohmann::ordered_json;

// The header and rows of the table for the terminal and for Markdown.
struct Grid {
  std::vector<std::string> heads;
  std::vector<std::vector<std::string>> rows;
};

Grid MakeGrid(const Experiment& experiment, const std::vector<CellResult>& results) {
  Grid grid;
  grid.rows.resize(results.size());
  const auto add = [&](const std::string& head, const auto& text_of) {
    grid.heads.push_back(head);
    for (size_t i = 0; i < results.size(); ++i) grid.rows[i].push_back(text_of(results[i]));
  };
  for (size_t axis = 0; axis < experiment.axes.size(); ++axis) {
    add(experiment.axes[axis].name,
        [axis](const CellResult& result) { return result.cell.labels[axis]; });
  }
  if (experiment.axes.empty()) {
    add("cell", [](const CellResult& result) { return result.cell.name; });
  }
  add("state", [](const CellResult& result) { return CellStateWord(result.state); });
  if (experiment.repeat > 1) {
    add("runs", [](const CellResult& result) { return absl::StrCat(result.runs); });
  }
  add("devices", [](const CellResult& result) {
    return result.devices == 0 ? "" : absl::StrCat(result.devices);
  });
  for (const Metric& metric : Metrics()) {
    const bool measured = std::any_of(
        results.begin(), results.end(),
        [&metric](const CellResult& result) { return result.medians.count(metric.name) > 0; });
    if (metric.head == nullptr || !measured) continue;
    add(metric.head, [&metric](const CellResult& result) {
      const auto value = result.medians.find(metric.name);
      return value == result.medians.end() ? "" : MetricText(metric.unit, value->second);
    });
  }
  return grid;
}

// One line for each cell that failed or was skipped.
std::vector<std::string> Reasons(const std::vector<CellResult>& results) {
  std::vector<std::string> lines;
  for (const CellResult& result : results) {
    if (result.reason.empty()) continue;
    lines.push_back(absl::StrCat(result.cell.name, ": ", CellStateWord(result.state), ": ",
                                 Printable(result.reason)));
  }
  return lines;
}

std::string CsvField(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
}

std::string CsvRow(const std::vector<std::string>& fields) {
  return absl::StrJoin(fields, ",",
                       [](std::string* out, const std::string& field) {
                         absl::StrAppend(out, CsvField(field));
                       }) +
         "\n";
}

using Rows = std::vector<std::vector<std::string>>;

std::string Row(const std::vector<std::string>& cells) {
  std::string row = "|";
  for (const std::string& cell : cells) {
    absl::StrAppend(&row, " ", absl::StrReplaceAll(Printable(cell), {{"|", "\\|"}, {"\n", " "}}),
                    " |");
  }
  return row + "\n";
}

// A table in Markdown; cells may contain any text, which is escaped.
std::string MarkdownTable(const std::vector<std::string>& heads,
                          const std::vector<std::vector<std::string>>& rows) {
  std::string table = Row(heads) + "|";
  for (size_t i = 0; i < heads.size(); ++i) table += "---|";
  table += "\n";
  for (const std::vector<std::string>& row : rows) table += Row(row);
  return table;
}

// A titled table; the first field of each row is the cell's name.
std::string Section(const char* title, const std::vector<std::string>& heads, const Rows& rows) {
  if (rows.empty()) return "";
  return absl::StrCat("\n## ", title, "\n\n", MarkdownTable(heads, rows));
}

std::string Seconds(double seconds) { return MetricText(Unit::kSeconds, seconds); }

std::string Phases(const std::vector<CellResult>& results) {
  // In order of occurrence; hybrid has one phase more than dp.
  std::vector<std::string> names;
  for (const CellResult& result : results) {
    for (const v1::StepPart& part : result.summary.parts()) {
      if (std::find(names.begin(), names.end(), part.name()) == names.end()) {
        names.push_back(part.name());
      }
    }
  }
  Rows rows;
  for (const CellResult& result : results) {
    if (result.summary.parts().empty()) continue;
    std::vector<std::string> row(names.size() + 1);
    row[0] = result.cell.name;
    for (const v1::StepPart& part : result.summary.parts()) {
      const auto place = std::find(names.begin(), names.end(), part.name()) - names.begin();
      row[static_cast<size_t>(place) + 1] = Seconds(part.seconds());
    }
    row.push_back(Seconds(result.summary.median_step_seconds()));
    rows.push_back(std::move(row));
  }
  std::vector<std::string> heads = {"cell"};
  heads.insert(heads.end(), names.begin(), names.end());
  heads.push_back("step");
  return Section("Phases of a step", heads, rows);
}

std::string Devices(const std::vector<CellResult>& results) {
  Rows rows;
  for (const CellResult& result : results) {
    for (const v1::DeviceUse& use : result.summary.devices()) {
      rows.push_back({result.cell.name, absl::StrCat(use.rank()), use.node(), use.device(),
                      Bytes(use.parameter_bytes()), Bytes(use.gradient_bytes()),
                      Bytes(use.optimizer_bytes()), Bytes(use.activation_bytes()),
                      Bytes(use.gathered_bytes()),
                      use.busy_seconds() > 0 ? Seconds(use.busy_seconds()) : ""});
    }
  }
  return Section("Memory per device",
                 {"cell", "rank", "node", "device", "parameters", "gradients", "optimizer",
                  "activations", "gathered", "busy per step"},
                 rows);
}

std::string Stages(const std::vector<CellResult>& results) {
  Rows rows;
  for (const CellResult& result : results) {
    for (const v1::StageUse& use : result.summary.stages()) {
      rows.push_back({result.cell.name, absl::StrCat(use.stage()),
                      absl::StrCat(use.first_layer(), " to ", use.last_layer()),
                      Seconds(use.forward_seconds()), Seconds(use.backward_seconds()),
                      Seconds(use.waiting_seconds()), absl::StrCat(use.activation_slots()),
                      Bytes(use.activation_bytes())});
    }
  }
  return Section("Pipeline stages",
                 {"cell", "stage", "layers", "forward per micro-batch", "backward",
                  "waiting per step", "activation slots", "activations"},
                 rows);
}

// Tables that explain why the cells differ: phases of a step, memory per device, and pipeline
// stages. Empty if no cell's job reported such data.
std::string DetailMarkdown(const std::vector<CellResult>& results) {
  return absl::StrCat(Phases(results), Devices(results), Stages(results));
}

}  // namespace

std::string CellStateWord(CellState state) {
  switch (state) {
    case CellState::kPending:
      return "pending";
    case CellState::kSucceeded:
      return "succeeded";
    case CellState::kFailed:
      return "failed";
    case CellState::kSkipped:
      return "left out";
  }
  return "";
}

std::string ResultTable(const Experiment& experiment, const std::vector<CellResult>& results) {
  Grid grid = MakeGrid(experiment, results);
  for (std::string& head : grid.heads) absl::AsciiStrToUpper(&head);
  Table table(grid.heads);
  for (std::vector<std::string>& row : grid.rows) table.AddRow(std::move(row));
  std::string text = table.Text();
  for (const std::string& line : Reasons(results)) absl::StrAppend(&text, line, "\n");
  return text;
}

std::string ResultMarkdown(const Experiment& experiment, const std::vector<CellResult>& results) {
  const Grid grid = MakeGrid(experiment, results);
  std::string text = absl::StrCat(
      "# ", experiment.title.empty() ? experiment.name : experiment.title, "\n\n",
      "For users and contributors: the results of the experiment ", experiment.name,
      ", as `muster experiment` wrote them.\n\n", MarkdownTable(grid.heads, grid.rows));
  if (experiment.repeat > 1) {
    absl::StrAppend(&text, "\nMedians of ", experiment.repeat, " runs of each cell.\n");
  }
  const std::vector<std::string> reasons = Reasons(results);
  if (!reasons.empty()) text += "\n";
  for (const std::string& line : reasons) absl::StrAppend(&text, "- ", line, "\n");
  text += DetailMarkdown(results);
  if (!experiment.found.empty()) {
    absl::StrAppend(&text, "\n## Published results\n\n",
                    absl::StripTrailingAsciiWhitespace(experiment.found), "\n");
  }
  return text;
}

std::string ResultCsv(const Experiment& experiment, const std::vector<CellResult>& results) {
  std::vector<std::string> heads;
  for (const Axis& axis : experiment.axes) heads.push_back(axis.name);
  for (const char* head : {"state", "runs", "devices"}) heads.push_back(head);
  for (const Metric& metric : Metrics()) heads.push_back(metric.name);
  heads.push_back("reason");
  std::string text = CsvRow(heads);
  for (const CellResult& result : results) {
    std::vector<std::string> row = result.cell.labels;
    row.push_back(CellStateWord(result.state));
    row.push_back(absl::StrCat(result.runs));
    row.push_back(result.devices == 0 ? "" : absl::StrCat(result.devices));
    for (const Metric& metric : Metrics()) {
      const auto value = result.medians.find(metric.name);
      row.push_back(value == result.medians.end() ? "" : absl::StrFormat("%.9g", value->second));
    }
    row.push_back(result.reason);
    text += CsvRow(row);
  }
  return text;
}

ordered_json ResultDocument(const Experiment& experiment, const std::vector<CellResult>& results) {
  ordered_json document = {{"experiment", experiment.name}};
  if (!experiment.title.empty()) document["title"] = experiment.title;
  document["repeat"] = experiment.repeat;
  ordered_json& axes = document["axes"] = ordered_json::object();
  for (const Axis& axis : experiment.axes) {
    ordered_json& labels = axes[axis.name] = ordered_json::array();
    for (const AxisValue& value : axis.values) labels.push_back(value.label);
  }
  ordered_json& cells = document["cells"] = ordered_json::array();
  for (const CellResult& result : results) {
    ordered_json cell = {{"name", result.cell.name}, {"labels", ordered_json::object()}};
    for (size_t i = 0; i < result.cell.labels.size(); ++i) {
      cell["labels"][experiment.axes[i].name] = result.cell.labels[i];
    }
    cell["state"] = CellStateWord(result.state);
    cell["reason"] = result.reason;
    cell["digest"] = result.cell.digest;
    cell["runs"] = result.runs;
    cell["devices"] = result.devices;
    ordered_json& metrics = cell["metrics"] = ordered_json::object();
    for (const Metric& metric : Metrics()) {
      const auto value = result.medians.find(metric.name);
      if (value != result.medians.end()) metrics[metric.name] = value->second;
    }
    cells.push_back(std::move(cell));
  }
  if (!experiment.found.empty()) document["found"] = experiment.found;
  return document;
}

}  // namespace muster::cli
