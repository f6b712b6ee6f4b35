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
      {.summary = "Print what a job's ranks wrote",
       .usage = "JOB [OPTIONS]",
       .paragraphs =
           {"Both stdout and stderr of every rank, or of those chosen, whole lines at a time; with "
            "several ranks each line begins with its rank. -f goes on through restarts of the job, "
            "of workers and of the coordinator, and ends when the job is over and all is printed.",
            "-o json prints an object a line, with rank, stream and node; -o wide names stream and "
            "node before each line; -o name prints the logs' names."},
       .exits = {{"0", "All was printed, however the job ended"},
                 {"69", "A node with logs is away; the rest was printed"},
                 {"130", "Interrupted"}},
       .examples = {{"muster logs train-x7k2", "all that there is so far"},
                    {"muster logs train-x7k2 -f --rank 0", "follow rank 0"},
                    {"muster logs train-x7k2 --rank 0,3-5 --tail 20", "the ends of four logs"},
                    {"muster logs train-x7k2 --generation 1", "from before the restart"}}});
  auto options = std::make_shared<LogOptions>();
  auto ranks = std::make_shared<std::string>();
  verb.add_option("JOB", options->job_id, "Its id, or a unique prefix")->required();
  CLI::Option* follow =
      verb.add_flag("-f,--follow", options->follow, "Go on until the job is over");
  verb.add_option("--rank", *ranks, "Only these ranks, as in 0,3-5")
      ->type_name("RANKS")
      ->check([](const std::string& text) {
        return std::string(ParseRankSet(text).status().message());
      });
  verb.add_option("--node", options->node, "Only ranks on this node")->type_name("NODE");
  verb.add_option("--generation", options->generation,
                  "An earlier generation; the newest is printed otherwise")
      ->type_name("N")
      ->check(AboveZero);
  verb.add_option("--tail", options->tail_lines, "Begin this many lines before the end")
      ->type_name("N")
      ->check(AboveZero);
  verb.add_flag("--timestamps", options->style.timestamps,
                "With -f: before each line, when it arrived here")
      ->needs(follow);
  verb.callback([&context, options, ranks] {
    context.action = [&context, options, ranks] {
      if (!ranks->empty()) options->ranks = *ParseRankSet(*ranks);
      return Logs(context, *options);
    };
  });
}

}  // namespace muster::cli
