// `muster wait`.
#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "cli/context.h"
#include "cli/duration_option.h"
#include "cli/exit_code.h"
#include "cli/follow.h"
#include "cli/follow_printer.h"
#include "cli/job_text.h"
#include "cli/output/json.h"
#include "cli/output/words.h"
#include "cli/signals.h"
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
    return timed_out ? context.Fail(job.status(), kTimeLimit) : context.Fail(job.status());
  }
  if (context.structured()) {
    context.Print(JobToJson(*job, flags.losses));
  } else if (context.output == Output::kName) {
    context.console.Out(absl::StrCat(job_id, "\n"));
  } else {
    context.console.Out(absl::StrCat(job_id, " ", StateWord(job->state()), "\n"));
  }
  if (!IsOver(job->state())) return kSuccess;
  if (job->state() != v1::SUCCEEDED && !job->message().empty()) {
    context.console.Note(Printable(absl::StrCat(job->reason(), ": ", job->message())));
  }
  NoteFailure(*job, context.console);
  return ExitCodeOf(*job);
}

}  // namespace

void AddWaitVerb(CLI::App& app, Context& context) {
  CLI::App* verb = app.add_subcommand("wait", "Wait for a job; exits with its status");
  auto flags = std::make_shared<WaitFlags>();
  verb->add_option("JOB", flags->job_id, "Its id, or a unique prefix")->required();
  verb->add_option("--for", flags->target, "running or done")
      ->check(CLI::IsMember({"running", "done"}))
      ->capture_default_str();
  AddDurationOption(*verb, "--timeout", flags->timeout, "Give up after this long, with status 124");
  verb->add_flag("--losses", flags->losses, "With -o json: the summary's losses too");
  verb->callback(
      [&context, flags] { context.action = [&context, flags] { return Wait(context, *flags); }; });
}

}  // namespace muster::cli
