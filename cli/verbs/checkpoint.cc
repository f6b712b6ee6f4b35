// `muster checkpoint`.
#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cli/context.h"
#include "cli/exit_code.h"
#include "cli/follow/follow.h"
#include "cli/follow/signals.h"
#include "cli/output/json.h"
#include "cli/output/words.h"
#include "cli/verb.h"
#include "common/text/checkpoint_texts.h"
#include "nlohmann/json.hpp"

namespace muster::cli {
namespace {

struct CheckpointFlags {
  std::string job_id;
  absl::Duration timeout = absl::Minutes(10);
  bool no_wait = false;
};

// Returns once the requested checkpoint has been written or will not be.
absl::StatusOr<v1::Job> AwaitCheckpoint(Context& context, ClusterClient& client,
                                        const v1::Job& requested, absl::Duration timeout,
                                        Stopper& stopper) {
  FollowOptions options;
  options.timeout = timeout;
  options.until = [&requested](const v1::Job& job) {
    const absl::StatusOr<bool> written = IsCheckpointWritten(requested, job);
    return !written.ok() || *written;
  };
  QuietObserver observer(context.console);
  return FollowJob(client, requested.job_id(), options, stopper, observer);
}

int Checkpoint(Context& context, const CheckpointFlags& flags) {
  Stopper stopper;
  const SignalWatcher watcher([&stopper](int) { stopper.Stop(); });
  ClusterClient client(context.client_options());
  const absl::StatusOr<v1::Job> requested =
      client.CallForJob<v1::CheckpointJobRequest>(flags.job_id);
  if (!requested.ok()) return context.Fail(requested.status());
  if (flags.no_wait) {
    context.Show(requested->job_id(), JobToJson(*requested),
                 absl::StrCat(requested->job_id(), " checkpoint requested\n"));
    return kExitSuccess;
  }
  const absl::StatusOr<v1::Job> job =
      AwaitCheckpoint(context, client, *requested, flags.timeout, stopper);
  if (absl::IsDeadlineExceeded(job.status()) && !stopper.stopped()) {
    const std::string text = absl::StrCat(
        "job ", requested->job_id(), " has written no checkpoint within ",
        absl::FormatDuration(flags.timeout), "; see `muster why ", requested->job_id(), "`");
    return context.Fail(absl::DeadlineExceededError(text), kExitTimeLimit);
  }
  if (!job.ok()) return context.Fail(job.status());
  const absl::StatusOr<bool> written = IsCheckpointWritten(*requested, *job);
  if (!written.ok()) return context.Fail(written.status(), kExitFailure);
  const v1::CheckpointStatus& status = job->checkpoint();
  context.console.Note(
      Printable(absl::StrCat("checkpoint of step ", status.step(),
                             status.node().empty() ? "" : absl::StrCat(" on ", status.node()))));
  context.Show(job->job_id(), JobToJson(*job),
               absl::StrCat(Printable(NewestCheckpointPath(status)), "\n"));
  return kExitSuccess;
}

}  // namespace

void AddCheckpointVerb(CLI::App& app, Context& context) {
  Verb& verb = AddVerb(
      app, "checkpoint", kJobVerbs,
      {.summary = "Write a checkpoint of a running training",
       .usage = "JOB [OPTIONS]",
       .paragraphs =
           {"The training continues meanwhile. Waits until the job has a checkpoint of at least "
            "the step that it had reached, and prints its path, as seen from the node of rank 0. "
            "Only for train jobs: a command saves on its own or when it is stopped."},
       .exits = {{"0", "The checkpoint was written; with --no-wait, requested"},
                 {"1", "It could not be written, the job ended before, or it cannot write one"},
                 {"69", "The coordinator did not answer at the start"},
                 {"124", "--timeout expired; the checkpoint may still be written"},
                 {"130", "Interrupted; the checkpoint may still be written"}},
       .examples = {{"muster checkpoint train-x7k2", "write a checkpoint and print its path"},
                    {"muster checkpoint train-x7k2 && muster cancel train-x7k2",
                     "cancel without losing a step"}}});
  auto flags = std::make_shared<CheckpointFlags>();
  verb.add_option("JOB", flags->job_id, "Job id or name, or a unique prefix of it")->required();
  AddDurationOption(verb, "--timeout", flags->timeout,
                    "Give up after this long, with status 124 (default: 10m)");
  verb.add_flag("--no-wait", flags->no_wait, "Return once the coordinator has asked the training");
  SetAction(verb, context, flags, Checkpoint);
}

}  // namespace muster::cli
