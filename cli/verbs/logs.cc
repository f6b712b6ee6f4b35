// `muster logs`.
#include "CLI/CLI.hpp"
#include "cli/context.h"
#include "cli/exit_code.h"
#include "cli/log_reader.h"
#include "cli/rank_set.h"
#include "cli/signals.h"

namespace muster::cli {

void AddLogsVerb(CLI::App& app, Context& context) {
  CLI::App* verb = app.add_subcommand("logs", "What a job's ranks wrote to stdout and stderr");
  auto options = std::make_shared<LogOptions>();
  auto ranks = std::make_shared<std::string>();
  verb->add_option("JOB", options->job_id, "Its id, or a unique prefix")->required();
  verb->add_flag("-f,--follow", options->follow, "Go on until the job is over");
  verb->add_option("--rank", *ranks, "Only these, as in 0,3-5")->check([](const std::string& text) {
    return std::string(ParseRankSet(text).status().message());
  });
  verb->add_option("--generation", options->generation, "An earlier one; default: the newest")
      ->check(CLI::PositiveNumber);
  verb->add_option("--tail", options->tail_lines, "Start so many lines before the end")
      ->check(CLI::PositiveNumber);
  verb->callback([&context, options, ranks] {
    context.action = [&context, options, ranks] {
      if (!ranks->empty()) options->ranks = *ParseRankSet(*ranks);
      Stopper stopper;
      const SignalWatcher watcher([&stopper](int) { stopper.Stop(); });
      ClusterClient client(context.client_options());
      const absl::Status status = PrintLogs(client, *options, stopper, context.console);
      if (stopper.stopped()) return static_cast<int>(kInterrupted);
      return status.ok() ? static_cast<int>(kSuccess) : context.Fail(status);
    };
  });
}

}  // namespace muster::cli
