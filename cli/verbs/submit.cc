// `muster submit`, `muster run` and `muster rerun`.
#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/client.h"
#include "cli/context.h"
#include "cli/exit_code.h"
#include "cli/files/upload.h"
#include "cli/follow/follow.h"
#include "cli/follow/follow_run.h"
#include "cli/follow/signals.h"
#include "cli/output/json.h"
#include "cli/spec/job_options.h"
#include "cli/spec/spec_file.h"
#include "cli/text/array_text.h"
#include "cli/text/job_text.h"
#include "cli/text/queue_text.h"
#include "cli/verb.h"
#include "common/status.h"
#include "nlohmann/json.hpp"
#include "spec/array.h"
#include "spec/spec.h"

namespace muster::cli {
namespace {

struct SubmitFlags {
  JobOptions job;
  std::string idempotency_key;
  bool dry_run = false;
  bool follow = false;
};

void PrintSubmitted(Context& context, const v1::SubmitJobResponse& response, bool follow) {
  const bool is_array = response.has_array();
  const std::string& id = is_array ? response.array().array_id() : response.job().job_id();
  if (response.already_existed()) context.console.Note(id, " was already submitted");
  if (!response.job().unplaceable().empty()) {
    context.console.Note("warning: ", id,
                         " does not fit on the cluster: ", response.job().unplaceable());
  }
  if (context.output == Output::kName) {
    context.console.Out(absl::StrCat(id, "\n"));
  } else if (follow) {
    context.console.Note(id);
  } else if (context.structured()) {
    context.Print(is_array ? ToJson(response.array()) : JobToJson(response.job()));
  } else {
    context.console.Out(absl::StrCat(id, "\n"));
    context.console.Note("muster logs ", id, " -f   # follow its logs\n", "muster wait ", id,
                         "      # wait until it has finished\n", "muster describe ", id,
                         is_array ? "  # results of its tasks\n" : " --ranks --events\n",
                         "muster cancel ", id);
  }
}

// Prints the end of each task of a submitted array, and at the end a table of the results.
int FollowArray(Context& context, ClusterClient& client, const std::string& array_id) {
  Stopper stopper;
  const SignalWatcher watcher([&stopper](int) { stopper.Stop(); });
  const absl::StatusOr<v1::GetArrayResponse> array = client.GetArray(array_id);
  if (!array.ok()) return context.Fail(array.status());
  QuietObserver observer(context.console);
  const absl::StatusOr<ArrayResult> result = WaitForArray(
      client, *array, FollowOptions(), stopper, observer, [&context](const v1::Job& task) {
        context.console.Note("task ", task.array_index(), " ", StateWord(task.state()));
      });
  if (stopper.stopped()) {
    context.console.Note("detached from ", array_id, "; it keeps running\n", "muster wait ",
                         array_id, "\nmuster cancel ", array_id);
    return kExitInterrupted;
  }
  if (!result.ok()) return context.Fail(result.status());
  if (context.structured()) {
    context.Print(ArrayToJson(result->array));
  } else if (context.output != Output::kName) {
    context.console.Out(ResultsTable(result->array, context.output == Output::kWide, absl::Now()));
  }
  return result->exit_code;
}

// Fails with the exit code of an invalid spec if that is the error.
int FailSubmission(Context& context, const absl::Status& status) {
  return absl::IsInvalidArgument(status) ? context.Fail(status, kExitBadSpec)
                                         : context.Fail(status);
}

// Uploads `files` first.
int SubmitSpec(Context& context, const SubmitFlags& flags, v1::JobSpec spec,
               const LocalFiles& files) {
  v1::SubmitJobRequest request;
  *request.mutable_spec() = std::move(spec);
  request.set_idempotency_key(flags.idempotency_key);
  request.set_validate_only(flags.dry_run);
  ClusterClient client(context.client_options());
  if (!flags.dry_run) {
    const absl::Status uploaded = UploadFiles(files, client, context.console);
    if (!uploaded.ok()) return context.Fail(uploaded);
  }
  const absl::StatusOr<v1::SubmitJobResponse> response = client.SubmitJob(request);
  if (!response.ok()) return FailSubmission(context, response.status());
  for (const std::string& warning : response->job().warnings()) {
    context.console.Note("warning: ", warning);
  }
  if (flags.dry_run) {
    PrintSpec(context, response->job().spec(), spec::ToYaml(response->job().spec()));
    if (response->has_forecast() && context.output != Output::kName) {
      context.console.Note(ForecastText(response->forecast(), absl::Now()));
    }
    return kExitSuccess;
  }
  PrintSubmitted(context, *response, flags.follow);
  if (!flags.follow) return kExitSuccess;
  if (response->has_array()) return FollowArray(context, client, response->array().array_id());
  Stopper stopper;
  return FollowRun(context, client, response->job(), {.losses = flags.job.losses}, stopper);
}

int Submit(Context& context, const SubmitFlags& flags) {
  absl::StatusOr<JobToSubmit> job = MakeJob(flags.job, context.trailing, Place::kCluster);
  if (!job.ok()) return context.Fail(job.status(), SpecExitCode(job.status()));
  return SubmitSpec(context, flags, std::move(job->spec), job->files);
}

// Lets `spec` continue from the earlier job's checkpoints if both name their directory. An earlier
// rerun may have set resume_from for the same reason; in another directory the job starts anew.
void ContinueFrom(const v1::Job& job, v1::JobSpec& spec) {
  const v1::CheckpointSpec& before = job.spec().train().checkpoint();
  if (before.dir().empty()) return;
  v1::CheckpointSpec& now = *spec.mutable_train()->mutable_checkpoint();
  if (now.resume_from() != before.resume_from()) return;
  if (now.dir() == before.dir()) {
    if (job.checkpoint().step() > 0) now.set_resume_from(now.dir());
  } else if (now.resume_from() == before.dir()) {
    now.clear_resume_from();
  }
}

// The spec of an earlier job, with overrides.
absl::StatusOr<v1::JobSpec> SpecOf(Context& context, const v1::Job& job,
                                   const JobOptions& options) {
  if (job.private_hidden() && !job.shared()) {
    return absl::PermissionDeniedError(
        absl::StrCat("job ", job.job_id(), " belongs to ", job.owner(),
                     ", and is not shared; ask an administrator to share it (muster admin share ",
                     job.job_id(), "), or submit a spec of your own"));
  }
  if (job.private_hidden()) {
    context.console.Note(job.job_id(), " belongs to ", job.owner(),
                         " and is shared without environment variables; set those "
                         "that it needs with --set env.NAME=VALUE");
  }
  for (const std::string& text : options.overrides) {
    if (absl::StartsWith(text, "files")) {
      return absl::InvalidArgumentError(
          "--set files: the files of an earlier job cannot be replaced; use `muster submit`");
    }
  }
  v1::JobSpec before = job.spec();
  if (!job.array_id().empty()) spec::ResolveTask(job, before);
  return spec::ParseReportingAll(spec::ToYaml(before), job.job_id(), options.overrides,
                                 [&](v1::JobSpec& spec) {
                                   // The files have already been uploaded: their digests are not
                                   // part of the text.
                                   *spec.mutable_files() = job.spec().files();
                                   ContinueFrom(job, spec);
                                   if (!options.name.empty()) spec.set_name(options.name);
                                   return std::vector<absl::Status>();
                                 });
}

// Submits the spec of a task again, as a job of its own.
absl::StatusOr<v1::Job> RerunTask(Context& context, ClusterClient& client,
                                  const std::string& task_id, const JobOptions& options) {
  ASSIGN_OR_RETURN(const v1::Job task, client.GetJob(task_id));
  v1::SubmitJobRequest request;
  ASSIGN_OR_RETURN(*request.mutable_spec(), SpecOf(context, task, options));
  ASSIGN_OR_RETURN(v1::SubmitJobResponse response, client.SubmitJob(std::move(request)));
  return std::move(*response.mutable_job());
}

// Reruns the tasks of an array that ended without success, up to the first that cannot be.
int RerunFailed(Context& context, const std::string& array_id, const JobOptions& options) {
  ClusterClient client(context.client_options());
  const absl::StatusOr<v1::GetArrayResponse> array = client.GetArray(array_id);
  if (!array.ok()) return context.Fail(array.status());
  nlohmann::ordered_json documents = nlohmann::ordered_json::array();
  size_t count = 0;
  absl::Status status;
  for (const v1::Job& task : array->tasks()) {
    if (!IsOver(task.state()) || task.state() == v1::SUCCEEDED) continue;
    const absl::StatusOr<v1::Job> job = RerunTask(context, client, task.job_id(), options);
    status = job.status();
    if (!status.ok()) break;
    ++count;
    if (context.structured()) {
      documents.push_back(JobToJson(*job));
    } else {
      context.console.Out(absl::StrCat(job->job_id(), "\n"));
    }
  }
  if (context.structured()) context.Print(documents);
  if (!status.ok()) return FailSubmission(context, status);
  if (count > 0) return kExitSuccess;
  return context.Fail(absl::FailedPreconditionError(
      absl::StrCat("no task of ", array->array().array_id(), " has ended without success")));
}

int Rerun(Context& context, const std::string& job_id, const SubmitFlags& flags) {
  ClusterClient client(context.client_options());
  const absl::StatusOr<JobOrArray> found = FindJobOrArray(client, job_id);
  if (!found.ok()) return context.Fail(found.status());
  const v1::Job* const job = std::get_if<v1::Job>(&*found);
  if (job == nullptr) {
    const std::string& id = std::get<v1::GetArrayResponse>(*found).array().array_id();
    return context.Fail(absl::InvalidArgumentError(
        absl::StrCat(id, " is an array; to run one task again: muster rerun ", id,
                     "-0; those that did not succeed: muster rerun ", id, " --failed")));
  }
  absl::StatusOr<v1::JobSpec> spec = SpecOf(context, *job, flags.job);
  if (!spec.ok()) return FailSubmission(context, spec.status());
  return SubmitSpec(context, flags, *std::move(spec), /*files=*/{});
}

void AddRerun(CLI::App& app, Context& context) {
  Verb& verb = AddVerb(
      app, "rerun", kJobVerbs,
      {.summary = "Queue the spec of an earlier job again",
       .usage = "JOB [OPTIONS]",
       .paragraphs = {"Prints the new job's id. Defaults that the coordinator filled in keep their "
                      "values. A train job continues from the earlier job's checkpoints if "
                      "train.checkpoint.dir is set; --set train.checkpoint.dir=DIR starts anew.",
                      "A task of an array runs again as a job of its own, with the index and "
                      "the values that it had."},
       .exits = {{"0", "The job is queued; with --follow, it succeeded"},
                 {"78", "The spec is invalid"},
                 {"69", "The coordinator does not answer"}},
       .examples = {{"muster rerun train-x7k2", "run the same job again"},
                    {"muster rerun sweep-9qd3a --failed", "the tasks of an array that failed"},
                    {"muster rerun train-x7k2 --set train.epochs=10 -f",
                     "with another number of epochs, and follow it"}}});
  auto job_id = std::make_shared<std::string>();
  auto flags = std::make_shared<SubmitFlags>();
  verb.add_option("JOB", *job_id, "Job id or name, or a unique prefix of one")->required();
  AddOverrides(verb, flags->job.overrides);
  verb.add_option("--name", flags->job.name, "Name of the new job")->type_name("NAME");
  CLI::Option* const follow =
      verb.add_flag("-f,--follow", flags->follow, "Follow the job, as `muster run` does");
  auto failed = std::make_shared<bool>(false);
  verb.add_flag("--failed", *failed,
                "JOB is an array: run each of its tasks again that ended without success")
      ->excludes(follow);
  verb.callback([&context, job_id, flags, failed] {
    context.action = [&context, job_id, flags, failed] {
      return *failed ? RerunFailed(context, *job_id, flags->job) : Rerun(context, *job_id, *flags);
    };
  });
}

void Declare(Verb& verb, Context& context, std::shared_ptr<SubmitFlags> flags) {
  AddJobOptions(verb, flags->job);
  AddSchedulingOptions(verb, flags->job);
  verb.add_option("--idempotency-key", flags->idempotency_key,
                  "Submit only once: another submission with the same key returns the same job, or "
                  "fails if its spec differs")
      ->type_name("KEY");
  verb.add_flag("--dry-run", flags->dry_run,
                "Validate the spec and print it with its defaults, and when and where it would "
                "start now; queue nothing");
  verb.callback([&context, flags] {
    RequireJob(flags->job, context.trailing);
    context.action = [&context, flags] { return Submit(context, *flags); };
  });
}

}  // namespace

void AddSubmitVerbs(CLI::App& app, Context& context) {
  auto submit_flags = std::make_shared<SubmitFlags>();
  Verb& submit = AddVerb(
      app, "submit", kJobVerbs,
      {.summary = "Queue a job",
       .usage = "[FILE] [OPTIONS] [-- CMD ARGS...]",
       .paragraphs = {"Prints the job's id and useful next commands. Once it exits with 0, the job "
                      "survives a crash of the coordinator.",
                      kJobOptionsText, kUploadText},
       .exits = {{"0", "The job is queued; with --follow, it succeeded"},
                 {"66, 78", "The spec or a file of the job cannot be read; the spec is invalid"},
                 {"69", "The coordinator does not answer"}},
       .examples = {{"muster submit job.yaml", "queue a job"},
                    {"muster submit job.yaml --set train.epochs=5 --set resources.nodes=2",
                     "override two fields of the spec"},
                    {"id=$(muster submit job.yaml -o name)", "print only the id, for a script"},
                    {"muster submit job.yaml --dry-run",
                     "validate the spec and print when and where it would start"},
                    {"muster submit eval.yaml --after train-x7k2",
                     "start once another job has succeeded"}}});
  Declare(submit, context, submit_flags);
  submit.add_flag("-f,--follow", submit_flags->follow, "Follow the job, as `muster run` does");

  auto run_flags = std::make_shared<SubmitFlags>();
  run_flags->follow = true;
  Verb& run = AddVerb(
      app, "run", kJobVerbs,
      {.summary = "Queue a job and follow it until it has finished",
       .usage = "[FILE] [OPTIONS] [-- CMD ARGS...]",
       .paragraphs =
           {"Prints the job's state and progress to stderr, and the output of a command job's "
            "ranks. With -o json, prints the finished job to stdout instead.",
            "Ctrl-C asks whether to cancel the job or to detach from it; a second Ctrl-C cancels "
            "it. Without a terminal, SIGINT cancels the job. SIGTERM and SIGHUP detach: the job "
            "keeps running; follow it again with `muster wait` or `muster logs -f`.",
            "Of an array, prints how each task ended and a table of the results; a signal detaches "
            "from it.",
            kJobOptionsText, kUploadText},
       .exits = {{"0", "The job succeeded"},
                 {"1 to 255", "Exit code of the first rank that failed; 128+n for signal n"},
                 {"1", "The job failed without an exit code, or was cancelled by another command"},
                 {"66, 78", "The spec or a file of the job cannot be read; the spec is invalid"},
                 {"69", "The coordinator does not answer"},
                 {"124", "The job's time limit expired"},
                 {"130", "Cancelled or detached by Ctrl-C or a signal"}},
       .examples = {
           {"muster run job.yaml", "queue a spec and follow it"},
           {"muster run --nodes 2 --ranks-per-node 4 -- python3 train.py --lr 0.1",
            "run a program on eight ranks"},
           {"muster run job.yaml -o json > result.json", "save the finished job as JSON"}}});
  Declare(run, context, run_flags);
  AddRerun(app, context);
}

}  // namespace muster::cli
