// `muster wait`.
#include <algorithm>
#include <optional>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "cli/client.h"
#include "cli/context.h"
#include "cli/exit_code.h"
#include "cli/follow/follow.h"
#include "cli/follow/follow_printer.h"
#include "cli/follow/signals.h"
#include "cli/output/json.h"
#include "cli/output/words.h"
#include "cli/text/array_text.h"
#include "cli/text/job_text.h"
#include "cli/verb.h"
#include "common/time/now.h"
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
  // Set once the job is, or all tasks of the array are, in the state that was waited for.
  std::optional<nlohmann::ordered_json> document;
};

// The result of a wait that ended with `status`.
WaitResult Failed(Context& context, const absl::Status& status, const std::string& id,
                  const FollowOptions& options, const WaitFlags& flags, const Stopper& stopper) {
  if (!absl::IsDeadlineExceeded(status) || stopper.stopped()) {
    return {context.Fail(status), std::nullopt};
  }
  const std::string text =
      absl::StrCat(id, options.until_running ? " did not start running" : " did not finish",
                   " within ", absl::FormatDuration(flags.timeout), "; see `muster why ", id, "`");
  return {context.Fail(absl::DeadlineExceededError(text), kExitTimeLimit), std::nullopt};
}

WaitResult WaitForJob(Context& context, ClusterClient& client, const std::string& job_id,
                      FollowOptions options, const WaitFlags& flags, Stopper& stopper) {
  QuietObserver observer(context.console);
  const absl::StatusOr<v1::Job> job = FollowJob(client, job_id, options, stopper, observer);
  if (!job.ok()) return Failed(context, job.status(), job_id, options, flags, stopper);
  if (context.output == Output::kName) {
    context.console.Out(absl::StrCat(job_id, "\n"));
  } else if (!context.structured()) {
    context.console.Out(absl::StrCat(job_id, " ", StateWord(job->state()), "\n"));
  }
  nlohmann::ordered_json document = JobToJson(*job, flags.losses);
  if (!IsOver(job->state())) return {kExitSuccess, std::move(document)};
  if (job->state() != v1::SUCCEEDED && !job->message().empty()) {
    context.console.Note(Printable(absl::StrCat(job->reason(), ": ", job->message())));
  }
  NoteFailure(*job, /*output_shown=*/false, context.console);
  return {ExitCodeOf(*job), std::move(document)};
}

WaitResult WaitForTasks(Context& context, ClusterClient& client, const v1::GetArrayResponse& array,
                        const FollowOptions& options, const WaitFlags& flags, Stopper& stopper) {
  const std::string& id = array.array().array_id();
  QuietObserver observer(context.console);
  const auto note_failure = [&](const v1::Job& task) {
    if (!IsOver(task.state()) || task.state() == v1::SUCCEEDED) return;
    context.console.Note(Printable(absl::StrCat("task ", task.array_index(), " (", task.job_id(),
                                                ") ", StateWord(task.state()),
                                                task.reason().empty() ? "" : ": ", task.reason())));
  };
  const absl::StatusOr<ArrayResult> result =
      WaitForArray(client, array, options, stopper, observer, note_failure);
  if (!result.ok()) return Failed(context, result.status(), id, options, flags, stopper);
  if (context.output == Output::kName) {
    context.console.Out(absl::StrCat(id, "\n"));
  } else if (!context.structured()) {
    context.console.Out(absl::StrCat(id, " ", StateWord(result->array.array().state()), ", ",
                                     ArrayProgress(result->array.array()), "\n"));
  }
  return {result->exit_code, ArrayToJson(result->array)};
}

// Returns the exit code of the first job, in the order of the arguments, that has none of 0.
int Wait(Context& context, const WaitFlags& flags) {
  Stopper stopper;
  const SignalWatcher watcher([&stopper](int) { stopper.Stop(); });
  ClusterClient client(context.client_options());
  std::vector<JobOrArray> targets;
  for (const std::string& given : flags.job_ids) {
    // A coordinator that is unreachable at the start is an error; later, the client retries.
    absl::StatusOr<JobOrArray> target = FindJobOrArray(client, given, &stopper);
    if (!target.ok()) return context.Fail(target.status());
    targets.push_back(*std::move(target));
  }
  const SteadyTime begin = Now().steady;
  FollowOptions options;
  options.until_running = flags.target == "running";
  int exit_code = kExitSuccess;
  std::vector<nlohmann::ordered_json> documents;
  for (const JobOrArray& target : targets) {
    options.timeout = std::max(flags.timeout - (Now().steady - begin), absl::ZeroDuration());
    const v1::Job* const job = std::get_if<v1::Job>(&target);
    const WaitResult result =
        job != nullptr ? WaitForJob(context, client, job->job_id(), options, flags, stopper)
                       : WaitForTasks(context, client, std::get<v1::GetArrayResponse>(target),
                                      options, flags, stopper);
    if (exit_code == kExitSuccess) exit_code = result.exit_code;
    if (!result.document.has_value()) break;
    documents.push_back(*result.document);
  }
  if (context.structured()) context.PrintOneOrList(std::move(documents), targets.size());
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
            "in the order given, that did not succeed. Waits for all tasks of an array."},
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
  verb.add_option("JOB", flags->job_ids,
                  "Ids or names of jobs or arrays, or unique prefixes of them")
      ->required();
  verb.add_option("--for", flags->target, "State to wait for: running or done")
      ->type_name("running|done")
      ->check(OneOf({"running", "done"}))
      ->capture_default_str();
  AddDurationOption(verb, "--timeout", flags->timeout, "Give up after this long, with status 124");
  verb.add_flag("--losses", flags->losses, "With -o json: include the losses in the summary");
  SetAction(verb, context, flags, Wait);
}

}  // namespace muster::cli
