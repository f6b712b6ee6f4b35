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

// Prints only that the coordinator became unreachable or reachable again.
class QuietObserver : public FollowObserver {
 public:
  explicit QuietObserver(Console& console) : console_(console) {}
  void OnJob(const v1::Job& job) override {}
  void OnCoordinatorAway(const absl::Status& status) override {
    console_.Note("coordinator unreachable; retrying");
  }
  void OnCoordinatorBack() override { console_.Note("coordinator reachable again"); }

 private:
  Console& console_;
};

int Wait(Context& context, const WaitFlags& flags) {
  Stopper stopper;
  const SignalWatcher watcher([&stopper](int) { stopper.Stop(); });
  ClusterClient client(context.client_options());
  // A coordinator that is unreachable at the start is an error; later, the client retries.
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
    const std::string text = absl::StrCat(
        job_id, options.until_running ? " did not start running" : " did not finish", " within ",
        absl::FormatDuration(flags.timeout), "; see `muster why ", job_id, "`");
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
      {.summary = "Wait for a job and exit with its status",
       .usage = "JOB [OPTIONS]",
       .paragraphs = {"Waits through restarts of the coordinator. Returns at once if the job has "
                      "already finished."},
       .exits = {{"0", "The job succeeded; with --for running, the job is running"},
                 {"1 to 255", "Exit code of the first rank that failed; 128+n for signal n"},
                 {"1", "The job failed without an exit code, or does not exist"},
                 {"69", "The coordinator did not answer at the start"},
                 {"124", "--timeout or the job's time limit expired"},
                 {"130", "Interrupted; the job keeps running"}},
       .examples = {
           {"muster wait train-x7k2 && deploy", "run a command only after success"},
           {"muster wait train-x7k2 --for running --timeout 5m", "wait until the job runs"},
           {"muster wait train-x7k2 -o json | jq .summary", "the job's summary, as JSON"}}});
  auto flags = std::make_shared<WaitFlags>();
  verb.add_option("JOB", flags->job_id, "Job id, or a unique prefix of one")->required();
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
