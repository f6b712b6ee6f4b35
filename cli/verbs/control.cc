// `muster cancel`, `hold`, `release`, `requeue`, `rm`.
#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "cli/context.h"
#include "cli/duration_option.h"
#include "cli/exit_code.h"
#include "cli/find_array.h"
#include "cli/output/json.h"
#include "cli/text/job_text.h"
#include "cli/verb.h"
#include "common/proto_time.h"
#include "common/status.h"
#include "nlohmann/json.hpp"

namespace muster::cli {
namespace {

using JobCall = std::function<absl::StatusOr<v1::Job>(ClusterClient&, const std::string& job_id)>;

struct CancelFlags {
  std::vector<std::string> job_ids;
  std::optional<absl::Duration> grace;
  bool force = false;
};

// Prints `word` as the job's status; if it is empty, the job's state.
void PrintJob(Context& context, const v1::Job& job, const std::string& word) {
  if (context.output == Output::kName) {
    context.console.Out(absl::StrCat(job.job_id(), "\n"));
  } else if (context.output == Output::kWide) {
    context.console.Out(JobTable({job}, /*wide=*/true, absl::Now()));
  } else {
    context.console.Out(
        absl::StrCat(job.job_id(), " ", word.empty() ? StateWord(job.state()) : word, "\n"));
  }
}

// Applies `call` to each job, and continues after a failure. Structured output is one document: the
// job, or a list if several jobs were named.
int ForEach(Context& context, const std::vector<std::string>& job_ids, const JobCall& call,
            const std::string& word = "") {
  ClusterClient client(context.client_options());
  int exit_code = kExitSuccess;
  std::vector<nlohmann::ordered_json> documents;
  for (const std::string& job_id : job_ids) {
    const absl::StatusOr<v1::Job> job = call(client, job_id);
    if (!job.ok()) {
      exit_code = context.Fail(job.status());
    } else if (context.structured()) {
      documents.push_back(JobToJson(*job));
    } else {
      PrintJob(context, *job, word);
    }
  }
  if (context.structured()) context.PrintOneOrList(std::move(documents), job_ids.size());
  return exit_code;
}

template <typename Request>
void SetGracePeriod(const CancelFlags& flags, Request& request) {
  if (flags.force) *request.mutable_grace_period() = ToProto(absl::ZeroDuration());
  if (flags.grace.has_value()) *request.mutable_grace_period() = ToProto(*flags.grace);
}

// "cancelled", or "cancelling 6 tasks" if they have not ended yet.
std::string CancelWord(const v1::JobArray& array) {
  uint32_t active = 0;
  for (const auto& [name, count] : array.tasks()) {
    v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
    if (v1::JobState_Parse(name, &state) && !IsOver(state)) active += count;
  }
  if (active == 0) return StateWord(array.state());
  return absl::StrCat("cancelling ", active, active == 1 ? " task" : " tasks");
}

void PrintCancelled(Context& context, const v1::JobArray& array) {
  if (context.output == Output::kName) {
    context.console.Out(absl::StrCat(array.array_id(), "\n"));
  } else if (context.output == Output::kWide) {
    context.console.Out(JobTable({}, {array}, /*wide=*/true, absl::Now()));
  } else {
    context.console.Out(
        absl::StrCat(array.array_id(), " ", CancelWord(array), ", ", ArrayProgress(array), "\n"));
  }
}

// Cancels a job or an array and prints it, or adds its document to `documents`.
absl::Status Cancel(Context& context, ClusterClient& client, const std::string& id,
                    const CancelFlags& flags, std::vector<nlohmann::ordered_json>& documents) {
  v1::CancelJobRequest request;
  request.set_job_id(id);
  SetGracePeriod(flags, request);
  const absl::StatusOr<v1::Job> job = client.CancelJob(request);
  if (job.ok()) {
    context.structured() ? documents.push_back(JobToJson(*job)) : PrintJob(context, *job, "");
    return absl::OkStatus();
  }
  if (!MayBeArray(job.status())) return job.status();
  v1::CancelArrayRequest array_request;
  array_request.set_array_id(id);
  SetGracePeriod(flags, array_request);
  const absl::StatusOr<v1::JobArray> array = client.CancelArray(array_request);
  if (!array.ok()) return absl::IsNotFound(array.status()) ? job.status() : array.status();
  context.structured() ? documents.push_back(ToJson(*array)) : PrintCancelled(context, *array);
  return absl::OkStatus();
}

int CancelAll(Context& context, const CancelFlags& flags) {
  ClusterClient client(context.client_options());
  int exit_code = kExitSuccess;
  std::vector<nlohmann::ordered_json> documents;
  for (const std::string& id : flags.job_ids) {
    const absl::Status status = Cancel(context, client, id, flags, documents);
    if (!status.ok()) exit_code = context.Fail(status);
  }
  if (context.structured()) context.PrintOneOrList(std::move(documents), flags.job_ids.size());
  return exit_code;
}

// Returns the job as it was.
absl::StatusOr<v1::Job> Remove(ClusterClient& client, const std::string& job_id) {
  ASSIGN_OR_RETURN(v1::Job job, client.GetJob(job_id));
  RETURN_IF_ERROR(client.RemoveJob(job.job_id()));
  return job;
}

void AddCancel(CLI::App& app, Context& context) {
  Verb& verb = AddVerb(
      app, "cancel", kJobVerbs,
      {.summary = "Cancel jobs",
       .usage = "JOB... [OPTIONS]",
       .paragraphs = {"A queued job ends at once. The ranks of a running job receive the job's "
                      "stop_signal, SIGTERM by default; after the grace period, all processes that "
                      "they have started receive SIGKILL. Returns once the coordinator has "
                      "recorded the request; use `muster "
                      "wait` to wait for the end. Has no effect on a finished job. For an array, "
                      "cancels its tasks."},
       .examples = {
           {"muster cancel train-x7k2", "cancel with the job's grace period"},
           {"muster cancel train-x7k2 --force", "send SIGKILL at once"},
           {"muster cancel $(muster list -o name --state queued)", "cancel all queued jobs"}}});
  auto flags = std::make_shared<CancelFlags>();
  verb.add_option("JOB", flags->job_ids,
                  "Ids or names of jobs or arrays, or unique prefixes of them")
      ->required();
  CLI::Option* grace =
      AddDurationOption(verb, "--grace", flags->grace,
                        "Time from the stop signal to SIGKILL (default: the job's grace period)");
  verb.add_flag("--force", flags->force, "Send SIGKILL at once, without a grace period")
      ->excludes(grace);
  verb.callback([&context, flags] {
    context.action = [&context, flags] { return CancelAll(context, *flags); };
  });
}

// Adds a verb whose only arguments are jobs.
void AddJobsVerb(CLI::App& app, Context& context, const std::string& name, Manual manual,
                 JobCall call, const std::string& word = "") {
  Verb& verb = AddVerb(app, name, kJobVerbs, std::move(manual));
  auto job_ids = std::make_shared<std::vector<std::string>>();
  verb.add_option("JOB", *job_ids, "Job ids or names, or unique prefixes of them")->required();
  verb.callback([&context, job_ids, call = std::move(call), word] {
    context.action = [&context, job_ids, call, word] {
      return ForEach(context, *job_ids, call, word);
    };
  });
}

}  // namespace

void AddControlVerbs(CLI::App& app, Context& context) {
  AddCancel(app, context);
  AddJobsVerb(
      app, context, "hold",
      {.summary = "Keep queued jobs from starting",
       .usage = "JOB... [OPTIONS]",
       .paragraphs = {"A held job keeps its place in the queue, by priority and submission time, "
                      "until `muster release`. A job that has started cannot be held."},
       .examples = {{"muster hold train-x7k2", "hold a job until it is released"}}},
      [](ClusterClient& client, const std::string& job_id) { return client.HoldJob(job_id); });
  AddJobsVerb(
      app, context, "release",
      {.summary = "Let held jobs start",
       .usage = "JOB... [OPTIONS]",
       .examples = {{"muster release train-x7k2", "queue a held job again"},
                    {"muster release $(muster list --state held -o name)",
                     "release all held jobs"}}},
      [](ClusterClient& client, const std::string& job_id) { return client.ReleaseJob(job_id); });
  AddJobsVerb(
      app, context, "requeue",
      {.summary = "Stop jobs and requeue them",
       .usage = "JOB... [OPTIONS]",
       .paragraphs =
           {"The ranks are stopped with the job's grace period, in which they can write a "
            "checkpoint, and the job is queued at the head of its priority. It starts again as a "
            "new generation; a train job resumes from its "
            "newest checkpoint. This does not count as a restart. Has no effect on a queued job."},
       .examples = {{"muster requeue train-x7k2", "free the job's slots and queue it again"}}},
      [](ClusterClient& client, const std::string& job_id) { return client.RequeueJob(job_id); });
  AddJobsVerb(
      app, context, "rm",
      {.summary = "Remove finished jobs",
       .usage = "JOB... [OPTIONS]",
       .paragraphs = {"Deletes the jobs' records and history, and their logs, working and "
                      "checkpoint directories in the data directories of connected nodes. Nodes "
                      "that are not connected delete them by their own retention (--keep-logs). "
                      "Directories that the spec names, such as train.checkpoint.dir, are kept.",
                      "Only the owner of a job and admins may remove it."},
       .examples = {{"muster rm train-x7k2", "remove a job"},
                    {"muster rm $(muster list --state failed -o name)", "remove all failed jobs"}}},
      Remove, "removed");
}

}  // namespace muster::cli
