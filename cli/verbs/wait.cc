// `muster wait`.
#include <algorithm>
#include <optional>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "cli/context.h"
#include "cli/duration_option.h"
#include "cli/exit_code.h"
#include "cli/follow/follow.h"
#include "cli/follow/follow_printer.h"
#include "cli/follow/quiet_observer.h"
#include "cli/follow/signals.h"
#include "cli/output/json.h"
#include "cli/output/words.h"
#include "cli/text/job_text.h"
#include "cli/verb.h"
#include "common/now.h"
#include "nlohmann/json.hpp"

namespace muster::cli {
namespace {

struct WaitFlags {
  std::vector<std::string> job_ids;
  std::string target = "done";
  absl::Duration timeout = absl::InfiniteDuration();
  bool losses = false;
};

struct WaitResult {
  int exit_code = kExitSuccess;
  std::optional<v1::Job> job;  // set once the job is in the state that was waited for
};

WaitResult WaitForJob(Context& context, ClusterClient& client, const std::string& job_id,
                      FollowOptions options, const WaitFlags& flags, Stopper& stopper) {
  QuietObserver observer(context.console);
  const absl::StatusOr<v1::Job> job = FollowJob(client, job_id, options, stopper, observer);
  if (!job.ok()) {
    const bool timed_out =
        job.status().code() == absl::StatusCode::kDeadlineExceeded && !stopper.stopped();
    if (!timed_out) return {context.Fail(job.status()), std::nullopt};
    const std::string text = absl::StrCat(
        job_id, options.until_running ? " did not start running" : " did not finish", " within ",
        absl::FormatDuration(flags.timeout), "; see `muster why ", job_id, "`");
    return {context.Fail(absl::DeadlineExceededError(text), kExitTimeLimit), std::nullopt};
  }
  if (context.output == Output::kName) {
    context.console.Out(absl::StrCat(job_id, "\n"));
  } else if (!context.structured()) {
    context.console.Out(absl::StrCat(job_id, " ", StateWord(job->state()), "\n"));
  }
  if (!IsOver(job->state())) return {kExitSuccess, *job};
  if (job->state() != v1::SUCCEEDED && !job->message().empty()) {
    context.console.Note(Printable(absl::StrCat(job->reason(), ": ", job->message())));
  }
  NoteFailure(*job, /*output_shown=*/false, context.console);
  return {ExitCodeOf(*job), *job};
}

// Returns the exit code of the first job, in the order of the arguments, that has none of 0.
int Wait(Context& context, const WaitFlags& flags) {
  Stopper stopper;
  const SignalWatcher watcher([&stopper](int) { stopper.Stop(); });
  ClusterClient client(context.client_options());
  std::vector<std::string> job_ids;
  for (const std::string& given : flags.job_ids) {
    // A coordinator that is unreachable at the start is an error; later, the client retries.
    const absl::StatusOr<v1::Job> job = client.GetJob(given, &stopper);
    if (!job.ok()) return context.Fail(job.status());
    job_ids.push_back(job->job_id());
  }
  const SteadyTime begin = Now().steady;
  FollowOptions options;
  options.until_running = flags.target == "running";
  int exit_code = kExitSuccess;
  std::vector<nlohmann::ordered_json> documents;
  for (const std::string& job_id : job_ids) {
    options.timeout = std::max(flags.timeout - (Now().steady - begin), absl::ZeroDuration());
    const WaitResult result = WaitForJob(context, client, job_id, options, flags, stopper);
    if (exit_code == kExitSuccess) exit_code = result.exit_code;
    if (!result.job.has_value()) break;
    if (context.structured()) documents.push_back(JobToJson(*result.job, flags.losses));
  }
  if (context.structured()) context.PrintOneOrList(std::move(documents), job_ids.size());
  return exit_code;
}

}  // namespace

void AddWaitVerb(CLI::App& app, Context& context) {
  Verb& verb = AddVerb(
      app, "wait", kJobVerbs,
      {.summary = "Wait for jobs and exit with their status",
       .usage = "JOB... [OPTIONS]",
       .paragraphs =
           {"Waits through restarts of the coordinator. Returns at once if the jobs have "
            "already finished. Of several jobs, the exit status is that of the first one, "
            "in the order given, that did not succeed."},
       .exits = {{"0", "The jobs succeeded; with --for running, they are or were running"},
                 {"1 to 255", "Exit code of the first rank that failed; 128+n for signal n"},
                 {"1", "The job failed without an exit code, was cancelled, or does not exist"},
                 {"69", "The coordinator did not answer at the start"},
                 {"124", "--timeout or the job's time limit expired"},
                 {"130", "Interrupted; the jobs keep running"}},
       .examples = {
           {"muster wait train-x7k2 && deploy", "run a command only after success"},
           {"muster wait train-x7k2 eval-9qd3", "wait for both; fail if one of them fails"},
           {"muster wait train-x7k2 --for running --timeout 5m", "wait until the job runs"},
           {"muster wait train-x7k2 -o json | jq .summary", "the job's summary, as JSON"}}});
  auto flags = std::make_shared<WaitFlags>();
  verb.add_option("JOB", flags->job_ids, "Job ids or names, or unique prefixes of them")
      ->required();
  verb.add_option("--for", flags->target, "State to wait for: running or done")
      ->type_name("running|done")
      ->check(OneOf({"running", "done"}))
      ->capture_default_str();
  AddDurationOption(verb, "--timeout", flags->timeout, "Give up after this long, with status 124");
  verb.add_flag("--losses", flags->losses, "With -o json: include the losses in the summary");
  verb.callback(
      [&context, flags] { context.action = [&context, flags] { return Wait(context, *flags); }; });
}

}  // namespace muster::cli
