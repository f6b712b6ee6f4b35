#include "cli/experiment/cells.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/sha256.h"
#include "common/status.h"
#include "common/text/nearest.h"
#include "google/protobuf/util/message_differencer.h"
#include "spec/array.h"
#include "spec/spec.h"

namespace muster::cli {
namespace {

// Maximum number of cells listed with a problem.
constexpr size_t kCellsShown = 3;

std::string DigestOf(const v1::JobSpec& spec) {
  std::string text = spec::ToYaml(spec);
  for (const v1::FileSpec& file : spec.files()) absl::StrAppend(&text, file.sha256(), "\n");
  return Sha256Hex(text);
}

// Of a job: its name and priority do not change what it measures.
std::string JobDigestOf(v1::JobSpec defaulted) {
  defaulted.clear_name();
  defaulted.clear_priority();
  return DigestOf(defaulted);
}

// Collects distinct problems in the order of their occurrence, with the cells that have them.
class CellProblems {
 public:
  void Add(const std::string& cell, const absl::Status& status) {
    for (absl::string_view line : absl::StrSplit(status.message(), '\n')) {
      std::vector<std::string>& cells = cells_[std::string(line)];
      if (cells.empty()) lines_.emplace_back(line);
      if (cells.empty() || cells.back() != cell) cells.push_back(cell);
    }
  }

  absl::Status status() const {
    if (lines_.empty()) return absl::OkStatus();
    std::vector<std::string> texts;
    for (const std::string& line : lines_) {
      const std::vector<std::string>& cells = cells_.at(line);
      const size_t shown = std::min(cells.size(), kCellsShown);
      std::string text =
          absl::StrCat(line, " (in ", absl::StrJoin(cells.begin(), cells.begin() + shown, "; "));
      if (shown < cells.size()) absl::StrAppend(&text, " and ", cells.size() - shown, " more");
      texts.push_back(text + ")");
    }
    return absl::InvalidArgumentError(absl::StrJoin(texts, "\n"));
  }

 private:
  std::vector<std::string> lines_;
  std::map<std::string, std::vector<std::string>> cells_;
};

absl::Status CheckSelection(const Selection& only, const std::vector<Axis>& axes) {
  std::vector<std::string> names;
  for (const Axis& axis : axes) names.push_back(axis.name);
  for (const auto& [name, labels] : only) {
    const auto axis = std::find_if(axes.begin(), axes.end(),
                                   [&name = name](const Axis& a) { return a.name == name; });
    if (axis == axes.end()) {
      return absl::InvalidArgumentError(absl::StrCat("--only: ", Quoted(name),
                                                     " is not an axis of the grid; its axes are ",
                                                     absl::StrJoin(names, ", ")));
    }
    std::vector<std::string> known;
    for (const AxisValue& value : axis->values) known.push_back(value.label);
    for (const std::string& label : labels) {
      if (std::find(known.begin(), known.end(), label) != known.end()) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("--only: ", Quoted(label), " is not a label of axis ", name,
                       "; its labels are ", absl::StrJoin(known, ", ")));
    }
  }
  return absl::OkStatus();
}

// The values that overrides set, without those of fields that all tasks of an array share. The last
// override of a field counts.
v1::ArrayTaskValues TaskValues(absl::Span<const std::string> overrides) {
  v1::ArrayTaskValues task;
  for (const std::string& text : overrides) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
    const absl::string_view top = absl::string_view(parts.first).substr(0, parts.first.find('.'));
    if (top == "name" || top == "files" || top == "after") continue;
    auto& values = *task.mutable_values();
    values.erase(
        std::remove_if(values.begin(), values.end(),
                       [&](const v1::ArrayValue& value) { return value.field() == parts.first; }),
        values.end());
    v1::ArrayValue& value = *values.Add();
    value.set_field(parts.first);
    value.set_value(parts.second);
  }
  return task;
}

// Whether the only task of an array gives the cell's job.
bool GivesJob(v1::JobSpec shared, const v1::ArrayTaskValues& values, const Cell& cell) {
  *shared.mutable_array()->add_tasks() = values;
  const absl::StatusOr<std::vector<spec::ArrayTask>> tasks = spec::ExpandArray(shared);
  return tasks.ok() &&
         google::protobuf::util::MessageDifferencer::Equals(*tasks->front().spec, cell.defaulted);
}

// Fills in the cell's job. `base` is the spec that the axes have not changed.
absl::Status MakeSpec(const Experiment& experiment, const v1::JobSpec& base,
                      absl::Span<const size_t> places, Place place, Cell& cell) {
  std::vector<std::string> of_axes;
  for (size_t i = 0; i < places.size(); ++i) {
    const std::vector<std::string>& more = experiment.axes[i].values[places[i]].overrides;
    of_axes.insert(of_axes.end(), more.begin(), more.end());
  }
  std::vector<std::string> overrides = experiment.overrides;
  overrides.insert(overrides.end(), of_axes.begin(), of_axes.end());
  ASSIGN_OR_RETURN(cell.spec, spec::Parse(experiment.base_text, experiment.base_source, overrides));
  if (cell.spec.has_array()) {
    return absl::InvalidArgumentError("array: an experiment cannot have an array; use its grid");
  }
  cell.spec.set_name(experiment.name);
  const std::string workdir = cell.spec.workdir();
  RETURN_IF_ERROR(AddJobFiles(experiment.base_source, /*more=*/{}, place, cell.spec, cell.files));
  cell.defaulted = cell.spec;
  spec::ApplyDefaults(cell.defaulted);
  RETURN_IF_ERROR(spec::Validate(cell.defaulted));
  cell.digest = JobDigestOf(cell.defaulted);

  cell.shared = base;
  cell.shared.set_name(experiment.name);
  *cell.shared.mutable_files() = cell.spec.files();
  cell.shared.clear_after();
  if (cell.spec.has_after()) *cell.shared.mutable_after() = cell.spec.after();
  // AddJobFiles has set it.
  if (cell.spec.workdir() != workdir) cell.shared.set_workdir(cell.spec.workdir());
  cell.values = TaskValues(of_axes);
  if (!GivesJob(cell.shared, cell.values, cell)) {
    cell.shared = cell.spec;
    cell.values.clear_values();
  }
  cell.shared_digest = DigestOf(cell.shared);
  return absl::OkStatus();
}

// Advances to the next combination, the last axis fastest; false after the last one.
bool Advance(const std::vector<Axis>& axes, std::vector<size_t>& places) {
  for (size_t i = places.size(); i-- > 0;) {
    if (++places[i] < axes[i].values.size()) return true;
    places[i] = 0;
  }
  return false;
}

}  // namespace

absl::StatusOr<Selection> ParseSelection(absl::Span<const std::string> texts) {
  Selection selection;
  for (const std::string& text : texts) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
    if (parts.first.empty() || parts.second.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--only ", Quoted(text), ": expected AXIS=LABEL,…"));
    }
    for (absl::string_view label : absl::StrSplit(parts.second, ',')) {
      selection[parts.first].emplace_back(label);
    }
  }
  return selection;
}

bool Selects(const Selection& selection, const std::vector<Axis>& axes, const Cell& cell) {
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto labels = selection.find(axes[i].name);
    if (labels == selection.end()) continue;
    if (std::find(labels->second.begin(), labels->second.end(), cell.labels[i]) ==
        labels->second.end()) {
      return false;
    }
  }
  return true;
}

absl::StatusOr<std::vector<Cell>> MakeCells(const Experiment& experiment, const Selection& only,
                                            Place place) {
  RETURN_IF_ERROR(CheckSelection(only, experiment.axes));
  size_t count = 1;
  for (const Axis& axis : experiment.axes) {
    count *= axis.values.size();
    if (count > kMaxCells) {
      return absl::InvalidArgumentError(
          absl::StrCat(experiment.base_source, ": the grid has more than ", kMaxCells, " cells"));
    }
  }
  // If it cannot be parsed, neither can any cell's spec.
  const v1::JobSpec base =
      spec::Parse(experiment.base_text, experiment.base_source, experiment.overrides)
          .value_or(v1::JobSpec());
  std::vector<Cell> cells;
  CellProblems problems;
  std::vector<size_t> places(experiment.axes.size(), 0);
  do {
    Cell cell;
    std::vector<std::string> words;
    for (size_t i = 0; i < places.size(); ++i) {
      cell.labels.push_back(experiment.axes[i].values[places[i]].label);
      words.push_back(absl::StrCat(experiment.axes[i].name, "=", cell.labels.back()));
    }
    cell.name = words.empty() ? "base" : absl::StrJoin(words, " ");
    if (!Selects(only, experiment.axes, cell)) continue;
    for (const SkipRule& rule : experiment.skips) {
      if (cell.skip_reason.empty() && Selects(rule.when, experiment.axes, cell)) {
        cell.skip_reason = rule.reason;
      }
    }
    if (cell.skip_reason.empty()) {
      const absl::Status status = MakeSpec(experiment, base, places, place, cell);
      if (!status.ok()) problems.Add(cell.name, status);
    }
    cells.push_back(std::move(cell));
  } while (Advance(experiment.axes, places));
  RETURN_IF_ERROR(problems.status());
  return cells;
}

uint32_t DevicesOf(const v1::JobSpec& defaulted) {
  const uint32_t ranks = spec::MaxWorldSize(defaulted);
  if (!spec::DrivesSeveralDevices(defaulted.train().strategy())) return ranks;
  uint32_t devices = 0;
  if (!absl::SimpleAtoi(defaulted.resources().devices_per_rank(), &devices)) return 0;
  return ranks * devices;
}

}  // namespace muster::cli
