// `muster logs`.
#include "CLI/CLI.hpp"
#include "absl/time/clock.h"
#include "cli/client.h"
#include "cli/context.h"
#include "cli/exit_code.h"
#include "cli/follow/signals.h"
#include "cli/logs/log_reader.h"
#include "cli/logs/selection.h"
#include "cli/verb.h"

namespace muster::cli {
namespace {

absl::Status Print(Context& context, ClusterClient& client, const LogOptions& options,
                   Stopper& stopper) {
  const absl::Status status = PrintLogs(client, options, stopper, context.console);
  if (!MayBeArray(status)) return status;
  const absl::StatusOr<v1::GetArrayResponse> array = client.GetArray(options.job_id);
  // The error may also concern a rank, a node or a generation of an existing job.
  if (!array.ok()) return status;
  return PrintArrayLogs(client, *array, options, stopper, context.console);
}

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
  const absl::Status status = Print(context, client, options, stopper);
  if (stopper.stopped()) {
    context.console.EraseEcho();
    return kExitInterrupted;
  }
  return status.ok() ? static_cast<int>(kExitSuccess) : context.Fail(status);
}

}  // namespace

void AddLogsVerb(CLI::App& app, Context& context) {
  Verb& verb = AddVerb(
      app, "logs", kJobVerbs,
      {.summary = "Print logs of a job's ranks",
       .usage = "JOB [OPTIONS]",
       .paragraphs =
           {"Prints stdout and stderr of all ranks, or of the selected ones, merged in the order "
            "in which the ranks began the lines; with several ranks, each line is prefixed with "
            "its rank. Each rank has one log of both, or two if the job's spec says output: "
            "separate. More than 256 ranks are merged in groups of 256.",
            "-f prints what exists in the same order and then new lines as they arrive. It "
            "continues through restarts of the job, the workers and the coordinator, and ends when "
            "the job has finished and its logs are printed.",
            "Lines that a program redraws with carriage returns, such as progress bars: with -f on "
            "a terminal they are redrawn in place; with several ranks, the last line of the screen "
            "shows the rank that wrote last. With -f to a file or pipe, the state of such a line "
            "is printed at most once a second and when the line ends. Without -f, the output of a "
            "single rank is printed unmodified; with several ranks or --timestamps, only the last "
            "state is printed.",
            "For an array, each line is prefixed with the index of its task, as in 3| or, if tasks "
            "have several ranks, 3/0|. The logs of one task follow those of another, except with "
            "-f, which accepts at most 64 tasks.",
            "-o json prints one object per line, with time, rank, stream and node; -o wide "
            "prefixes each line with node and stream; -o name prints the names of the logs."},
       .exits = {{"0", "All logs were printed, whether or not the job succeeded"},
                 {"69", "A node that has logs is unreachable; the other logs were printed"},
                 {"130", "Interrupted"}},
       .examples = {
           {"muster logs train-x7k2", "all logs written so far"},
           {"muster logs train-x7k2 -f --rank 0", "follow rank 0"},
           {"muster logs train-x7k2 --rank 0,3-5 --tail 20", "the last 20 lines of four ranks"},
           {"muster logs train-x7k2 --since 10m --timestamps",
            "lines of the last ten minutes, with their times"},
           {"muster logs train-x7k2 --generation 1",
            "logs of the first generation, before the restart"}}});
  auto options = std::make_shared<LogOptions>();
  auto ranks = std::make_shared<std::string>();
  auto since = std::make_shared<std::string>();
  verb.add_option("JOB", options->job_id, "Id or name of a job or array, or a unique prefix of one")
      ->required();
  verb.add_flag("-f,--follow", options->follow, "Print new lines until the job has finished");
  verb.add_option("--rank", *ranks, "Print only these ranks, as in 0,3-5")
      ->type_name("RANKS")
      ->check([](const std::string& text) {
        return std::string(ParseRankSet(text).status().message());
      });
  verb.add_option("--node", options->node, "Print only ranks on this node")->type_name("NODE");
  verb.add_option("--stream", options->stream,
                  "Print only this stream of a job with output: separate: stdout or stderr")
      ->type_name("STREAM")
      ->check(OneOf({"stdout", "stderr"}));
  verb.add_option("--generation", options->generation, "Generation to print (default: the newest)")
      ->type_name("N")
      ->check(AboveZero);
  verb.add_option(
          "--since", *since,
          "Print only lines from this time on: a duration before now, as in 10m, or a time, "
          "as in 2026-11-22T10:00:00Z")
      ->type_name("TIME")
      ->check([](const std::string& text) {
        return std::string(ParseSince(text, absl::Now()).status().message());
      });
  CLI::Option* const tail = verb.add_option("--tail", options->tail_lines,
                                            "Print only the last N lines of all selected logs");
  tail->type_name("N")->check(AboveZero);
  verb.add_option("--tail-per-rank", options->tail_per_rank,
                  "Print only the last N lines of each rank")
      ->type_name("N")
      ->check(AboveZero)
      ->excludes(tail);
  verb.add_flag("--timestamps", options->style.timestamps,
                "Prefix each line with the time at which the rank began it; - if it is not known");
  verb.callback([&context, options, ranks, since] {
    context.action = [&context, options, ranks, since] {
      if (!since->empty()) options->since = *ParseSince(*since, absl::Now());
      if (!ranks->empty()) options->ranks = *ParseRankSet(*ranks);
      return Logs(context, *options);
    };
  });
}

}  // namespace muster::cli
