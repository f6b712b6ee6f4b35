#include "cli/experiment/experiment.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "cli/experiment/cells.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kFile[] = R"(experiment: {name: trial, title: A trial, repeat: 2}
parameters: {steps: 40, folder: /data}
base:
  train:
    model: {name: mlp}
    dataset: {name: fashion_mnist, path: $folder}
    max_steps: $steps
    optimizer: {name: sgd, learning_rate: 0.1}
grid:
  ranks:
    - {label: one, set: {resources.ranks_per_node: 1}}
    - {label: two, set: {resources.ranks_per_node: 2, train.strategy: {bucket_bytes: 1MiB}}}
  precision: {field: train.precision, values: [O0, O2]}
skip:
  - {when: {ranks: two, precision: O2}, reason: too slow}
baseline: {ranks: one}
found: |
  Others were faster.
)";

Experiment Parsed(const std::string& text, const std::vector<std::string>& settings = {}) {
  const absl::StatusOr<Experiment> experiment = ParseExperiment(text, "trial.yaml", settings);
  EXPECT_TRUE(experiment.ok()) << experiment.status();
  return experiment.ok() ? *experiment : Experiment();
}

std::vector<Cell> Cells(const Experiment& experiment, const Selection& only = {}) {
  const absl::StatusOr<std::vector<Cell>> cells = MakeCells(experiment, only);
  EXPECT_TRUE(cells.ok()) << cells.status();
  return cells.ok() ? *cells : std::vector<Cell>();
}

std::vector<std::string> Names(const std::vector<Cell>& cells) {
  std::vector<std::string> names;
  for (const Cell& cell : cells) names.push_back(cell.name);
  return names;
}

std::string Problem(const std::string& text) {
  return std::string(ParseExperiment(text, "trial.yaml", {}).status().message());
}

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST(Experiment, ParsesAFile) {
  const Experiment experiment = Parsed(kFile);
  EXPECT_EQ(experiment.name, "trial");
  EXPECT_EQ(experiment.title, "A trial");
  EXPECT_EQ(experiment.repeat, 2u);
  ASSERT_EQ(experiment.axes.size(), 2u);
  EXPECT_EQ(experiment.axes[0].name, "ranks");
  EXPECT_EQ(experiment.axes[1].values[1].label, "O2");
  EXPECT_THAT(experiment.axes[1].values[1].overrides, ElementsAre("train.precision=O2"));
  EXPECT_EQ(experiment.found, "Others were faster.\n");
}

TEST(Experiment, GridHasEveryCombination) {
  const std::vector<Cell> cells = Cells(Parsed(kFile));
  EXPECT_THAT(Names(cells), ElementsAre("ranks=one precision=O0", "ranks=one precision=O2",
                                        "ranks=two precision=O0", "ranks=two precision=O2"));
  EXPECT_EQ(cells[1].spec.train().precision(), "O2");
  EXPECT_EQ(cells[1].spec.name(), "trial");
  EXPECT_EQ(cells[2].spec.resources().ranks_per_node(), 2u);
  EXPECT_EQ(cells[2].spec.train().strategy().bucket_bytes(), 1u << 20);
  EXPECT_EQ(cells[2].spec.train().dataset().path(), "/data");
  EXPECT_EQ(cells[3].skip_reason, "too slow");
  EXPECT_EQ(cells[0].skip_reason, "");
  EXPECT_EQ(DevicesOf(cells[0].defaulted), 1u);
  EXPECT_EQ(DevicesOf(cells[2].defaulted), 2u);
}

TEST(Experiment, OnlySelectsCells) {
  const absl::StatusOr<Selection> only = ParseSelection({"ranks=two", "precision=O0,O2"});
  ASSERT_TRUE(only.ok());
  const std::vector<Cell> cells = Cells(Parsed(kFile), *only);
  ASSERT_EQ(cells.size(), 2u);
  EXPECT_EQ(cells[0].name, "ranks=two precision=O0");
  const auto problem = [](const std::string& text) {
    return std::string(MakeCells(Parsed(kFile), *ParseSelection({text})).status().message());
  };
  EXPECT_EQ(problem("rank=two"),
            "--only: 'rank' is not an axis of the grid; its axes are ranks, precision");
  EXPECT_EQ(problem("ranks=three"),
            "--only: 'three' is not a label of axis ranks; its labels are one, two");
  EXPECT_FALSE(ParseSelection({"ranks"}).ok());
}

TEST(Experiment, SettingsChangeParametersAndTheBase) {
  const std::vector<Cell> cells =
      Cells(Parsed(kFile, {"steps=7", "train.seed=5", "train.precision=O1"}));
  EXPECT_EQ(cells[0].spec.train().max_steps(), 7u);
  EXPECT_EQ(cells[0].spec.train().seed(), 5u);
  // The grid overrides --set.
  EXPECT_EQ(cells[0].spec.train().precision(), "O0");
  EXPECT_FALSE(ParseExperiment(kFile, "f", {"steps="}).ok());
}

std::vector<std::string> ValuesOf(const Cell& cell) {
  std::vector<std::string> values;
  for (const v1::ArrayValue& value : cell.values.values()) {
    values.push_back(value.field() + "=" + value.value());
  }
  return values;
}

TEST(Experiment, CellsThatDifferInValuesShareASpec) {
  const std::vector<Cell> cells = Cells(Parsed(kFile));
  EXPECT_EQ(cells[0].shared_digest, cells[1].shared_digest);
  EXPECT_EQ(cells[0].shared_digest, cells[2].shared_digest);
  EXPECT_EQ(cells[0].shared.name(), "trial");
  EXPECT_THAT(ValuesOf(cells[2]),
              ElementsAre("resources.ranks_per_node=2", "train.strategy={bucket_bytes: 1MiB}",
                          "train.precision=O0"));
}

TEST(Experiment, CellsThatDifferOtherwiseShareNothing) {
  const std::vector<Cell> cells =
      Cells(Parsed("experiment: {name: trial}\n"
                   "base: {command: [/bin/true]}\n"
                   "grid:\n"
                   "  after:\n"
                   "    - {label: nothing, set: {name: x, priority: 1}}\n"
                   "    - {label: job, set: {after: {any: [a]}, priority: 1}}\n"
                   "  class: {field: priority, values: [2, 3]}\n"));
  // Fields that are the same for all tasks of an array are not values; the last value counts.
  EXPECT_THAT(ValuesOf(cells[0]), ElementsAre("priority=2"));
  EXPECT_EQ(cells[0].shared_digest, cells[1].shared_digest);
  EXPECT_NE(cells[0].shared_digest, cells[2].shared_digest);
  EXPECT_EQ(cells[2].shared.after().any(0), "a");
  EXPECT_EQ(cells[2].shared_digest, cells[3].shared_digest);
}

TEST(Experiment, HasNoArray) {
  const absl::Status status =
      MakeCells(Parsed("experiment: {name: a}\nbase: {command: [x], array: {count: 2}}\n"))
          .status();
  EXPECT_EQ(std::string(status.message()),
            "array: an experiment cannot have an array; use its grid (in base)");
}

TEST(Experiment, DigestIdentifiesJobs) {
  const std::vector<Cell> cells = Cells(Parsed(kFile));
  EXPECT_NE(cells[0].digest, cells[1].digest);
  EXPECT_NE(cells[0].digest, Cells(Parsed(kFile, {"steps=41"}))[0].digest);
  // Labels, names and explicit defaults do not change the job.
  const std::string renamed =
      Replaced(Replaced(kFile, "name: trial", "name: other"), "label: one", "label: single");
  const std::string again = Replaced(renamed, "baseline: {ranks: one}", "");
  EXPECT_EQ(cells[0].digest, Cells(Parsed(again, {"train.seed=1"}))[0].digest);
}

TEST(Experiment, DigestIdentifiesFiles) {
  const std::filesystem::path folder = ::testing::TempDir();
  const Experiment experiment =
      *ParseExperiment("experiment: {name: one}\nbase: {command: [sh, run.sh], files: [run.sh]}\n",
                       (folder / "one.yaml").string(), {});
  const auto cell_with = [&](const std::string& script) {
    std::ofstream(folder / "run.sh") << script;
    return Cells(experiment).at(0);
  };
  const Cell first = cell_with("true");
  ASSERT_EQ(first.spec.files_size(), 1);
  EXPECT_EQ(first.files.files().at("run.sh").source, (folder / "run.sh").string());
  EXPECT_NE(first.digest, cell_with("false").digest);
  EXPECT_EQ(first.digest, cell_with("true").digest);
}

TEST(Experiment, CommandsRunInTheCurrentFolderOfThisMachine) {
  const Experiment experiment = Parsed("experiment: {name: one}\nbase: {command: [./run.sh]}\n");
  EXPECT_EQ(Cells(experiment)[0].spec.workdir(), "");
  const auto cells = MakeCells(experiment, {}, Place::kThisMachine);
  ASSERT_TRUE(cells.ok()) << cells.status();
  EXPECT_EQ(cells->at(0).spec.workdir(), std::filesystem::current_path().string());
}

TEST(Experiment, HasOneCellWithoutAGrid) {
  const Experiment experiment = Parsed("experiment: {name: one}\nbase: {command: [/bin/true]}\n");
  EXPECT_EQ(experiment.repeat, 1u);
  const std::vector<Cell> cells = Cells(experiment);
  ASSERT_EQ(cells.size(), 1u);
  EXPECT_EQ(cells[0].name, "base");
}

TEST(Experiment, ReplacesOnlyParameters) {
  const std::vector<Cell> cells =
      Cells(Parsed("experiment: {name: shell}\n"
                   "parameters: {n: 3}\n"
                   "base: {command: [sh, -c, 'echo $n $nn $HOME $ $']}\n"));
  EXPECT_EQ(cells[0].spec.command(2), "echo 3 $nn $HOME $ $");
}

TEST(Experiment, ErrorsNameTheLine) {
  EXPECT_EQ(Problem(Replaced(kFile, "field: train.precision", "feld: train.precision")),
            "trial.yaml:13: grid.precision: unknown field 'feld'; did you mean 'field'?\n"
            "trial.yaml:13: grid.precision.field: is missing");
  EXPECT_EQ(Problem(Replaced(kFile, "precision: O2}, reason", "precision: O3}, reason")),
            "trial.yaml:15: skip.when.precision: 'O3' is not one of O0, O2");
  EXPECT_EQ(Problem(Replaced(kFile, "found: |", "plots: [{metric: steps}]\nfound: |")),
            "trial.yaml:17: plots: plots are not drawn; remove it and use results.csv");
  EXPECT_EQ(Problem(Replaced(kFile, "label: two", "label: one")),
            "trial.yaml:11: grid.ranks: 'one' is given twice\n"
            "trial.yaml:15: skip.when.ranks: 'two' is not one of one, one");
  EXPECT_EQ(Problem(Replaced(kFile, "steps: 40", "name: 40")),
            "trial.yaml:2: parameters.name: is also a field of the spec; rename the parameter");
  EXPECT_EQ(Problem(Replaced(kFile, "repeat: 2", "repeat: 0")),
            "trial.yaml:1: experiment.repeat: expected a number from 1 to 100");
  EXPECT_THAT(Problem(Replaced(kFile, "name: trial", "name: Trial")), HasSubstr("experiment.name"));
  EXPECT_THAT(Problem("experiment: [\n"), HasSubstr("trial.yaml:2: invalid YAML"));
  EXPECT_THAT(Problem("- 1\n"), HasSubstr("expected fields"));
  EXPECT_THAT(Problem("experiment: {name: a}\n"), HasSubstr("base: expected a job spec"));
  EXPECT_THAT(Problem(""), HasSubstr("expected fields"));
}

TEST(Experiment, ReportsEachProblemOnceWithItsCells) {
  std::string text = Replaced(kFile, "values: [O0, O2]", "values: [O0, O2, O7]");
  text = Replaced(text, "name: mlp", "nam: mlp");
  const absl::Status base = MakeCells(Parsed(text)).status();
  EXPECT_EQ(base.code(), absl::StatusCode::kInvalidArgument);
  // The line in the file, although the base was extracted from it.
  EXPECT_THAT(std::string(base.message()),
              HasSubstr("trial.yaml:5: unknown field 'nam' in train.model"));
  EXPECT_THAT(std::string(base.message()),
              HasSubstr("(in ranks=one precision=O0; ranks=one precision=O2; ranks=one "
                        "precision=O7 and 2 more)"));
  text = Replaced(text, "nam: mlp", "name: mlp");
  const absl::Status cells = MakeCells(Parsed(text)).status();
  EXPECT_THAT(std::string(cells.message()), HasSubstr("train.precision"));
  EXPECT_THAT(std::string(cells.message()),
              HasSubstr("(in ranks=one precision=O7; ranks=two precision=O7)"));
}

TEST(Experiment, AcceptsJson) {
  const std::vector<Cell> cells = Cells(Parsed(
      R"({"experiment": {"name": "j"}, "base": {"command": ["/bin/true"]}, "grid": {"n": {"field": "resources.nodes", "values": [1, 2]}}})"));
  ASSERT_EQ(cells.size(), 2u);
  EXPECT_EQ(cells[1].spec.resources().nodes().max(), 2u);
}

TEST(Experiment, LimitsTheNumberOfCells) {
  std::string text = "experiment: {name: big}\nbase: {command: [/bin/true]}\ngrid:\n";
  for (const char* axis : {"a", "b", "c", "d"}) {
    text += std::string("  ") + axis + ": {field: priority, values: [1, 2, 3, 4, 5, 6]}\n";
  }
  EXPECT_THAT(std::string(MakeCells(Parsed(text)).status().message()),
              HasSubstr("more than 1000 cells"));
}

}  // namespace
}  // namespace muster::cli
