// `muster submit` and `muster run`.
#include <optional>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "cli/context.h"
#include "cli/exit_code.h"
#include "cli/follow.h"
#include "cli/follow_printer.h"
#include "cli/interrupt.h"
#include "cli/job_text.h"
#include "cli/output/json.h"
#include "cli/spec_file.h"
#include "common/spec/spec.h"
#include "common/status.h"
#include "nlohmann/json.hpp"

namespace muster::cli {
namespace {

struct SubmitFlags {
  std::string path;
  std::vector<std::string> overrides;
  std::string name;
  std::optional<int32_t> priority;
  std::string idempotency_key;
  bool dry_run = false;
  bool follow = false;
  bool losses = false;
};

// From the file, the flags and what stood behind `--`. Checked as the coordinator will check it;
// defaults are left to the coordinator.
absl::StatusOr<v1::JobSpec> MakeSpec(const Context& context, const SubmitFlags& flags) {
  v1::JobSpec spec;
  if (!flags.path.empty()) {
    ASSIGN_OR_RETURN(spec, ReadSpecFile(flags.path, flags.overrides));
  } else if (!flags.overrides.empty()) {
    ASSIGN_OR_RETURN(spec, spec::Parse("{}", "command line", flags.overrides));
  }
  if (!flags.name.empty()) spec.set_name(flags.name);
  if (flags.priority.has_value()) spec.set_priority(*flags.priority);
  if (!context.trailing.empty()) {
    spec.clear_command();
    for (const std::string& argument : context.trailing) spec.add_command(argument);
  }
  if (flags.losses && spec.has_train()) spec.mutable_train()->set_record_losses(true);
  v1::JobSpec defaulted = spec;
  spec::ApplyDefaults(defaulted);
  RETURN_IF_ERROR(spec::Validate(defaulted));
  return spec;
}

void PrintSubmitted(Context& context, const v1::SubmitJobResponse& response, bool follow) {
  const std::string& id = response.job().job_id();
  if (response.already_existed()) context.console.Note(absl::StrCat(id, " was submitted before"));
  if (context.output == Output::kName) {
    context.console.Out(absl::StrCat(id, "\n"));
  } else if (follow) {
    context.console.Note(id);
  } else if (context.structured()) {
    context.Print(JobToJson(response.job()));
  } else {
    context.console.Out(absl::StrCat(id, "\n"));
    context.console.Note(absl::StrCat("muster logs ", id, " -f   # what its ranks print\n",
                                      "muster wait ", id, "      # until it is over\n",
                                      "muster describe ", id, " --ranks --events\n",
                                      "muster cancel ", id));
  }
}

int Follow(Context& context, ClusterClient& client, const std::string& job_id, bool losses) {
  Stopper stopper;
  const RunInterrupt interrupt(context.console, stopper, [&] {
    v1::CancelJobRequest request;
    request.set_job_id(job_id);
    const absl::StatusOr<v1::Job> job = client.CancelJob(request);
    if (!job.ok()) context.Fail(job.status());
  });
  FollowPrinter printer(context.console);
  const absl::StatusOr<v1::Job> job = FollowJob(client, job_id, FollowOptions(), stopper, printer);
  if (!job.ok()) {
    if (!stopper.stopped()) return context.Fail(job.status());
    context.console.ClearStatus();
    context.console.Note(
        absl::StrCat("no longer following ", job_id, "; muster wait ", job_id, " waits for it"));
    return kInterrupted;
  }
  PrintOutcome(*job, context.structured() || context.output == Output::kName, context.console);
  if (context.structured()) context.Print(JobToJson(*job, losses));
  return interrupt.interrupted() ? static_cast<int>(kInterrupted) : ExitCodeOf(*job);
}

int Submit(Context& context, const SubmitFlags& flags) {
  absl::StatusOr<v1::JobSpec> spec = MakeSpec(context, flags);
  if (!spec.ok()) return context.Fail(spec.status(), SpecExitCode(spec.status()));

  v1::SubmitJobRequest request;
  *request.mutable_spec() = *std::move(spec);
  request.set_idempotency_key(flags.idempotency_key);
  request.set_validate_only(flags.dry_run);
  ClusterClient client(context.client_options());
  const absl::StatusOr<v1::SubmitJobResponse> response = client.SubmitJob(request);
  if (!response.ok()) {
    const bool bad_spec = response.status().code() == absl::StatusCode::kInvalidArgument;
    return bad_spec ? context.Fail(response.status(), kBadSpec) : context.Fail(response.status());
  }
  if (flags.dry_run) {
    const v1::JobSpec& defaulted = response->job().spec();
    context.output == Output::kJson ? context.Print(ToJson(defaulted))
                                    : context.console.Out(spec::ToYaml(defaulted));
    return kSuccess;
  }
  PrintSubmitted(context, *response, flags.follow);
  if (!flags.follow) return kSuccess;
  return Follow(context, client, response->job().job_id(), flags.losses);
}

void DeclareOptions(CLI::App& verb, SubmitFlags& flags) {
  verb.add_option("FILE", flags.path, "The spec, YAML or JSON; - for standard input");
  verb.add_option("--set", flags.overrides, "a.b=c: overrides a field; may be repeated")
      ->expected(1)
      ->take_all();
  verb.add_option("--name", flags.name, "Instead of the spec's");
  verb.add_option("--priority", flags.priority, "Instead of the spec's; higher goes first");
  verb.add_option("--idempotency-key", flags.idempotency_key,
                  "The same key gives the same job, however often it is submitted");
  verb.add_flag("--dry-run", flags.dry_run,
                "Print the spec as the coordinator would take it; queue nothing");
  verb.add_flag("--losses", flags.losses,
                "Record each step's loss; -o json prints them when following");
  verb.footer("-- CMD ARGS… runs a program in place of the spec's command");
}

void DeclareAction(CLI::App& verb, Context& context, std::shared_ptr<SubmitFlags> flags) {
  verb.callback([&context, flags] {
    if (flags->path.empty() && context.trailing.empty()) {
      throw CLI::RequiredError("FILE, or -- CMD ARGS…");
    }
    context.action = [&context, flags] { return Submit(context, *flags); };
  });
}

}  // namespace

void AddSubmitVerbs(CLI::App& app, Context& context) {
  CLI::App* submit = app.add_subcommand("submit", "Queue a job");
  auto submit_flags = std::make_shared<SubmitFlags>();
  DeclareOptions(*submit, *submit_flags);
  submit->add_flag("--follow", submit_flags->follow, "As run does");
  DeclareAction(*submit, context, submit_flags);

  CLI::App* run = app.add_subcommand("run", "Queue a job and follow it; exits with its status");
  auto run_flags = std::make_shared<SubmitFlags>();
  run_flags->follow = true;
  DeclareOptions(*run, *run_flags);
  DeclareAction(*run, context, run_flags);
}

}  // namespace muster::cli
