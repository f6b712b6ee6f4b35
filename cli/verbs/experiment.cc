// `muster experiment`.
#include "cli/experiment/experiment.h"

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "cli/context.h"
#include "cli/exit_code.h"
#include "cli/experiment/cells.h"
#include "cli/experiment/results.h"
#include "cli/experiment/runner.h"
#include "cli/experiment/tables.h"
#include "cli/local/local_cluster.h"
#include "cli/output/json.h"
#include "cli/spec/spec_file.h"
#include "cli/verb.h"
#include "common/status.h"
#include "nlohmann/json.hpp"

namespace muster::cli {
namespace {

struct ExperimentFlags {
  std::string path;
  std::vector<std::string> settings;
  std::vector<std::string> only;
  std::string directory;
  bool dry_run = false;
  bool rerun = false;
  bool local = false;
  uint32_t parallel = 1;
  LocalClusterOptions cluster;
};

void PrintNames(Context& context, const std::vector<Cell>& cells) {
  for (const Cell& cell : cells) context.console.Out(absl::StrCat(cell.name, "\n"));
}

int PrintCells(Context& context, const Experiment& experiment, const std::vector<Cell>& cells) {
  const std::vector<CellResult> results = Collect(experiment, cells, nullptr);
  if (context.structured()) {
    nlohmann::ordered_json document = ResultDocument(experiment, results);
    for (size_t i = 0; i < cells.size(); ++i) {
      if (cells[i].skip_reason.empty()) document["cells"][i]["spec"] = ToJson(cells[i].defaulted);
    }
    context.Print(document);
  } else if (context.output == Output::kName) {
    PrintNames(context, cells);
  } else {
    context.console.Out(ResultTable(experiment, results));
  }
  return kExitSuccess;
}

void PrintResults(Context& context, const Experiment& experiment, const std::vector<Cell>& cells,
                  const RunStore& store) {
  const std::vector<CellResult> results = Collect(experiment, cells, &store);
  if (context.structured()) {
    context.Print(ResultDocument(experiment, results));
  } else if (context.output == Output::kName) {
    PrintNames(context, cells);
  } else {
    context.console.Out(ResultTable(experiment, results));
    if (!experiment.found.empty()) {
      context.console.Note("\npublished results:\n", experiment.found);
    }
  }
}

RunnerOptions RunnerOptionsOf(const ExperimentFlags& flags) {
  return {.rerun = flags.rerun, .parallel = flags.parallel};
}

int RunLocally(Context& context, const ExperimentFlags& flags, const Experiment& experiment,
               const std::vector<Cell>& cells, RunStore& store) {
  LocalClusterOptions options = flags.cluster;
  for (const Cell& cell : cells) {
    if (cell.skip_reason.empty()) FitToJob(cell.defaulted, options);
  }
  options.slots *= flags.parallel;
  NoteSharedCores(options, context.console);
  const absl::StatusOr<std::unique_ptr<LocalCluster>> cluster = LocalCluster::Start(options);
  if (!cluster.ok()) return context.Fail(cluster.status(), ExitCodeOfStart(cluster.status()));
  // Use the token of the coordinator that was just started, and no other.
  setenv("MUSTER_TOKEN_DIR", absl::StrCat((*cluster)->directory(), "/tokens").c_str(), 1);
  Stopper stopper;
  (*cluster)->Watch([&stopper] { stopper.Stop(); });
  ClusterClient::Options client_options;
  client_options.address = (*cluster)->address();
  ClusterClient client(client_options);
  const int exit_code =
      RunCells(context, client, experiment, cells, RunnerOptionsOf(flags), store, stopper);
  const absl::Status daemons = (*cluster)->status();
  return daemons.ok() ? exit_code : context.Fail(daemons, kExitFailure);
}

int RunExperiment(Context& context, const ExperimentFlags& flags) {
  const absl::StatusOr<std::string> text = ReadSpecText(flags.path);
  if (!text.ok()) return context.Fail(text.status(), SpecExitCode(text.status()));
  const absl::StatusOr<Experiment> experiment =
      ParseExperiment(*text, flags.path == "-" ? "standard input" : flags.path, flags.settings);
  if (!experiment.ok()) return context.Fail(experiment.status(), kExitBadSpec);
  const absl::StatusOr<Selection> only = ParseSelection(flags.only);
  if (!only.ok()) return context.Fail(only.status(), kExitUsage);
  const absl::StatusOr<std::vector<Cell>> cells =
      MakeCells(*experiment, *only, flags.local ? Place::kThisMachine : Place::kCluster);
  if (!cells.ok()) return context.Fail(cells.status(), kExitBadSpec);
  if (flags.dry_run) return PrintCells(context, *experiment, *cells);

  absl::StatusOr<RunStore> store = RunStore::Open(
      flags.directory.empty() ? experiment->name : flags.directory, experiment->name);
  if (!store.ok()) return context.Fail(store.status(), kExitCannotCreate);
  int exit_code;
  if (flags.local) {
    exit_code = RunLocally(context, flags, *experiment, *cells, *store);
  } else {
    Stopper stopper;
    ClusterClient client(context.client_options());
    exit_code =
        RunCells(context, client, *experiment, *cells, RunnerOptionsOf(flags), *store, stopper);
  }
  PrintResults(context, *experiment, *cells, *store);
  return exit_code;
}

}  // namespace

void AddExperimentVerb(CLI::App& app, Context& context) {
  auto flags = std::make_shared<ExperimentFlags>();
  Verb& verb = AddVerb(
      app, "experiment", kJobVerbs,
      {.summary = "Run one job spec over a grid of variants",
       .usage = "FILE [OPTIONS]",
       .paragraphs =
           {"FILE contains a spec and a grid of axes, whose values set fields of the spec. Each "
            "combination is a job, and all jobs are submitted as one array. They run one after "
            "another, so that they do not slow each other, unless --parallel allows more. Results "
            "are written to a directory (results.json, results.md and results.csv), and a table of "
            "them to stdout. docs/reference/experiments.md describes the file format; "
            "deploy/experiments/ has examples.",
            "Files that the base spec names, relative to FILE, and a command's script in the "
            "current folder are uploaded as by `muster run`; with --local, commands run in the "
            "current folder as with `muster local`.",
            "All specs are validated before the first job is queued. A failed job is recorded with "
            "its reason, and the others still run. Ctrl-C cancels the array. If the command ends "
            "otherwise, the jobs still run. Run it again to collect their results; cells that "
            "failed or changed are run again."},
       .exits = {{"0", "Every cell succeeded"},
                 {"1", "At least one cell failed"},
                 {"66, 78", "FILE cannot be read; FILE is invalid"},
                 {"69", "The coordinator does not answer; results so far are kept"},
                 {"73", "Results cannot be written"},
                 {"130", "Interrupted; results so far are kept"}},
       .examples = {
           {"muster experiment precision.yaml --dry-run", "list the jobs without running them"},
           {"muster experiment precision.yaml --local", "run on this machine, without a cluster"},
           {"muster experiment guide-a.yaml --set epochs=1 --only model=resnet50",
            "a shorter run of a part of the grid"}}});
  verb.add_option("FILE", flags->path, "The experiment as YAML or JSON; - for standard input")
      ->required();
  Repeatable(verb.add_option("--set", flags->settings,
                             "Set a parameter of the file, as in epochs=1, or a field of its base "
                             "spec, as in train.seed=2; may be repeated"))
      ->type_name("FIELD=VALUE");
  Repeatable(
      verb.add_option("--only", flags->only, "Run only these values of an axis; may be repeated"))
      ->type_name("AXIS=LABEL,LABEL");
  verb.add_option("--out", flags->directory,
                  "Directory for results (default: the experiment's name)")
      ->type_name("DIR");
  verb.add_flag("--dry-run", flags->dry_run, "Print the cells of the grid; queue nothing");
  verb.add_flag("--rerun", flags->rerun, "Also run cells that have already succeeded");
  verb.add_option(
          "--parallel", flags->parallel,
          "Maximum number of concurrent jobs; above 1 their times are not comparable (default: 1)")
      ->type_name("N")
      ->check(AboveZero);
  verb.add_flag("--local", flags->local,
                "Start a coordinator and workers on this machine, as `muster local` does");
  verb.add_option("--coordinator-binary", flags->cluster.coordinator_binary,
                  "With --local: path of muster-coordinator (default: next to this program)")
      ->type_name("FILE");
  verb.add_option("--worker-binary", flags->cluster.worker_binary,
                  "With --local: path of muster-worker (default: next to this program)")
      ->type_name("FILE");
  verb.callback([&context, flags] {
    context.action = [&context, flags] { return RunExperiment(context, *flags); };
  });
}

}  // namespace muster::cli
