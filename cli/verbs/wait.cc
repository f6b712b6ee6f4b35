// `muster wait`.
#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "cli/context.h"
#include "cli/duration_option.h"
#include "cli/exit_code.h"
#include "cli/follow/follow.h"
#include "cli/follow/follow_printer.h"
#include "cli/follow/signals.h"
#include "cli/output/json.h"
#include "cli/output/words.h"
#include "cli/text/job_text.h"
#include "cli/verb.h"
#include "nlohmann/json.hpp"

namespace muster::cli {
namespace {

struct WaitFlags {
  std::string job_id;
  std::string target = "done";
  absl::Duration timeout = absl::InfiniteDuration();
  bool losses = false;
};

// Waiting is silent but for the coordinator's absence.
class QuietObserver : public FollowObserver {
 public:
  explicit QuietObserver(Console& console) : console_(console) {}
  void OnJob(const v1::Job& job) override {}
  void OnCoordinatorAway(const absl::Status& status) override {
    console_.Note("coordinator away; waiting");
  }
  void OnCoordinatorBack() override { console_.Note("coordinator is back"); }

 private:
  Console& console_;
};

int Wait(Context& context, const WaitFlags& flags) {
  Stopper stopper;
  const SignalWatcher watcher([&stopper](int) { stopper.Stop(); });
  ClusterClient client(context.client_options());
  // A coordinator that is not there at the start is an error; one that goes away later is waited
  // for.
  absl::StatusOr<v1::Job> job = client.GetJob(flags.job_id, &stopper);
  if (!job.ok()) return context.Fail(job.status());

  QuietObserver observer(context.console);
  FollowOptions options;
  options.until_running = flags.target == "running";
  options.timeout = flags.timeout;
  const std::string job_id = job->job_id();
  job = FollowJob(client, job_id, options, stopper, observer);
  if (!job.ok()) {
    const bool timed_out =
        job.status().code() == absl::StatusCode::kDeadlineExceeded && !stopper.stopped();
    if (!timed_out) return context.Fail(job.status());
    const std::string text =
        absl::StrCat(job_id, options.until_running ? " did not run" : " was not over", " within ",
                     absl::FormatDuration(flags.timeout), "; `muster why ", job_id, "` says why");
    return context.Fail(absl::DeadlineExceededError(text), kExitTimeLimit);
  }
  if (context.structured()) {
    context.Print(JobToJson(*job, flags.losses));
  } else if (context.output == Output::kName) {
    context.console.Out(absl::StrCat(job_id, "\n"));
  } else {
    context.console.Out(absl::StrCat(job_id, " ", StateWord(job->state()), "\n"));
  }
  if (!IsOver(job->state())) return kExitSuccess;
  if (job->state() != v1::SUCCEEDED && !job->message().empty()) {
    context.console.Note(Printable(absl::StrCat(job->reason(), ": ", job->message())));
  }
  NoteFailure(*job, context.console);
  return ExitCodeOf(*job);
}

}  // namespace

void AddWaitVerb(CLI::App& app, Context& context) {
  Verb& verb = AddVerb(
      app, "wait", kJobVerbs,
      {.summary = "Wait for a job, and exit as it did",
       .usage = "JOB [OPTIONS]",
       .paragraphs = {"Waits through restarts of the coordinator. A job that is over already is "
                      "answered at once."},
       .exits = {{"0", "The job succeeded; with --for running, it runs"},
                 {"1 to 255", "The code of the first rank that failed; 128+n for a signal"},
                 {"1", "The job failed without a code, or there is no such job"},
                 {"69", "No coordinator answered at the start"},
                 {"124", "--timeout passed, or the job's own time limit"},
                 {"130", "Interrupted; the job goes on"}},
       .examples = {{"muster wait train-x7k2 && deploy", "go on only after success"},
                    {"muster wait train-x7k2 --for running --timeout 5m", "until it has started"},
                    {"muster wait train-x7k2 -o json | jq .summary", "how it ended, as data"}}});
  auto flags = std::make_shared<WaitFlags>();
  verb.add_option("JOB", flags->job_id, "Its id, or a unique prefix")->required();
  verb.add_option("--for", flags->target, "What to wait for: running or done")
      ->type_name("running|done")
      ->check(OneOf({"running", "done"}))
      ->capture_default_str();
  AddDurationOption(verb, "--timeout", flags->timeout, "Give up after this long, with status 124");
  verb.add_flag("--losses", flags->losses, "With -o json: the summary's losses too");
  verb.callback(
      [&context, flags] { context.action = [&context, flags] { return Wait(context, *flags); }; });
}

}  // namespace muster::cli
