// `muster exec`.
#include <unistd.h>

#include <optional>

#include "CLI/CLI.hpp"
#include "cli/context.h"
#include "cli/exec/exec_run.h"
#include "cli/exit_code.h"
#include "cli/verb.h"

namespace muster::cli {
namespace {

struct ExecFlags {
  std::string job_id;
  uint32_t rank = 0;
  bool tty = false;
  bool no_tty = false;
};

int Exec(Context& context, const ExecFlags& flags) {
  v1::ExecInput::Start start;
  start.set_job_id(flags.job_id);
  start.set_rank(flags.rank);
  start.mutable_command()->Assign(context.trailing.begin(), context.trailing.end());
  const bool interactive = isatty(STDIN_FILENO) != 0 && isatty(STDOUT_FILENO) != 0;
  start.set_terminal(flags.tty || (interactive && !flags.no_tty));
  if (const char* term = std::getenv("TERM"); term != nullptr) start.set_term(term);
  const absl::StatusOr<int> exit_code = RunExec(context.client_options(), start, context.console);
  return exit_code.ok() ? *exit_code : context.Fail(exit_code.status());
}

}  // namespace

void AddExecVerb(CLI::App& app, Context& context) {
  Verb& verb = AddVerb(
      app, "exec", kJobVerbs,
      {.summary = "Run a command beside a running rank",
       .usage = "JOB [OPTIONS] -- CMD ARGS...",
       .paragraphs =
           {"The command runs on the rank's node, in its working directory, with its environment, "
            "resources and CPUs. It is connected to this process's stdin, stdout and stderr; if "
            "stdin and stdout are terminals, it runs in a terminal. It is killed when the rank "
            "exits or this process is disconnected.",
            "Only the owner of the job and admins may run commands. Ctrl-C is passed on to the "
            "command; without a terminal, a second Ctrl-C kills it."},
       .exits = {{"0 to 255", "Exit code of the command; 128+n for signal n"},
                 {"1", "The job does not exist, or the rank does not run"},
                 {"69", "The coordinator or the rank's node is unreachable"},
                 {"77", "The job belongs to another user"},
                 {"130", "Interrupted"}},
       .examples = {{"muster exec train-x7k2 -- nvidia-smi", "on the node of rank 0"},
                    {"muster exec train-x7k2 --rank 3 -- bash", "a shell beside rank 3"},
                    {"muster exec train-x7k2 -- sh -c 'py-spy dump --pid $(pgrep -n python3)'",
                     "stacks of a rank's Python process"}}});
  auto flags = std::make_shared<ExecFlags>();
  verb.add_option("JOB", flags->job_id, "Job id or name, or a unique prefix of one")->required();
  verb.add_option("--rank", flags->rank, "Rank beside which the command runs")
      ->type_name("N")
      ->capture_default_str();
  CLI::Option* tty =
      verb.add_flag("-t,--tty", flags->tty, "Run in a terminal even if stdin or stdout is not one");
  verb.add_flag("-T,--no-tty", flags->no_tty, "Do not run in a terminal")->excludes(tty);
  verb.callback([&context, flags] {
    if (context.trailing.empty()) throw CLI::RequiredError("a command after `--`");
    context.action = [&context, flags] { return Exec(context, *flags); };
  });
}

}  // namespace muster::cli
