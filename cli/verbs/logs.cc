// `muster logs`.
#include "CLI/CLI.hpp"
#include "cli/context.h"
#include "cli/exit_code.h"
#include "cli/follow/signals.h"
#include "cli/logs/log_reader.h"
#include "cli/logs/rank_set.h"
#include "cli/verb.h"

namespace muster::cli {
namespace {

int Logs(Context& context, LogOptions options) {
  if (context.structured()) {
    options.style.form = context.output == Output::kJson ? LogForm::kJson : LogForm::kYaml;
  }
  options.wide = context.output == Output::kWide;
  options.names_only = context.output == Output::kName;
  if (options.names_only) options.follow = false;
  Stopper stopper;
  const SignalWatcher watcher([&stopper](int) { stopper.Stop(); });
  ClusterClient client(context.client_options());
  const absl::Status status = PrintLogs(client, options, stopper, context.console);
  if (stopper.stopped()) return kExitInterrupted;
  return status.ok() ? static_cast<int>(kExitSuccess) : context.Fail(status);
}

}  // namespace

void AddLogsVerb(CLI::App& app, Context& context) {
  Verb& verb = AddVerb(
      app, "logs", kJobVerbs,
      {.summary = "Print logs of a job's ranks",
       .usage = "JOB [OPTIONS]",
       .paragraphs =
           {"Prints stdout and stderr of all ranks, or of the selected ones, in whole lines; with "
            "several ranks, each line is prefixed with its rank. -f continues through restarts of "
            "the job, the workers and the coordinator, and ends when the job has finished and its "
            "logs are printed.",
            "-o json prints one object per line, with rank, stream and node; -o wide prefixes each "
            "line with node and stream; -o name prints the names of the logs."},
       .exits = {{"0", "All logs were printed, whether or not the job succeeded"},
                 {"69", "A node that has logs is unreachable; the other logs were printed"},
                 {"130", "Interrupted"}},
       .examples = {
           {"muster logs train-x7k2", "all logs written so far"},
           {"muster logs train-x7k2 -f --rank 0", "follow rank 0"},
           {"muster logs train-x7k2 --rank 0,3-5 --tail 20", "the last 20 lines of four ranks"},
           {"muster logs train-x7k2 --generation 1",
            "logs of the first generation, before the restart"}}});
  auto options = std::make_shared<LogOptions>();
  auto ranks = std::make_shared<std::string>();
  verb.add_option("JOB", options->job_id, "Job id, or a unique prefix of one")->required();
  CLI::Option* follow =
      verb.add_flag("-f,--follow", options->follow, "Print new lines until the job has finished");
  verb.add_option("--rank", *ranks, "Print only these ranks, as in 0,3-5")
      ->type_name("RANKS")
      ->check([](const std::string& text) {
        return std::string(ParseRankSet(text).status().message());
      });
  verb.add_option("--node", options->node, "Print only ranks on this node")->type_name("NODE");
  verb.add_option("--generation", options->generation, "Generation to print (default: the newest)")
      ->type_name("N")
      ->check(AboveZero);
  verb.add_option("--tail", options->tail_lines, "Print only the last N lines of each log")
      ->type_name("N")
      ->check(AboveZero);
  verb.add_flag("--timestamps", options->style.timestamps,
                "With -f: prefix each line with its arrival time")
      ->needs(follow);
  verb.callback([&context, options, ranks] {
    context.action = [&context, options, ranks] {
      if (!ranks->empty()) options->ranks = *ParseRankSet(*ranks);
      return Logs(context, *options);
    };
  });
}

}  // namespace muster::cli
