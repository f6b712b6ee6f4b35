#include "cli/experiment/details.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "cli/experiment/markdown.h"
#include "cli/experiment/metrics.h"
#include "cli/output/words.h"

namespace muster::cli {
namespace {

using Rows = std::vector<std::vector<std::string>>;

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

}  // namespace

std::string DetailMarkdown(const std::vector<CellResult>& results) {
  return absl::StrCat(Phases(results), Devices(results), Stages(results));
}

}  // namespace muster::cli
