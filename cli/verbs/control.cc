// `muster cancel`, `hold`, `release`, `requeue`, `rm`.
#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "cli/client.h"
#include "cli/context.h"
#include "cli/exit_code.h"
#include "cli/output/json.h"
#include "cli/text/job_text.h"
#include "cli/verb.h"
#include "common/status.h"
#include "common/time/proto_time.h"
#include "nlohmann/json.hpp"

namespace muster::cli {
namespace {

using JobCall = std::function<absl::StatusOr<v1::Job>(ClusterClient&, const std::string& job_id)>;

struct CancelFlags {
  std::vector<std::string> job_ids;
  std::optional<absl::Duration> grace;
  bool force = false;
};

// Prints what was done to a job or array, except in JSON and YAML: its name, its row in a wide
// table, or `sentence`.
void PrintChanged(Context& context, const std::string& id, const std::vector<v1::Job>& jobs,
                  const std::vector<v1::JobArray>& arrays, const std::string& sentence) {
  if (context.structured()) return;
  if (context.output == Output::kWide) {
    context.console.Out(JobTable(jobs, arrays, /*wide=*/true, absl::Now()));
  } else {
    context.console.Out(
        absl::StrCat(context.output == Output::kName ? id : absl::StrCat(id, " ", sentence), "\n"));
  }
}

// Prints `word` as the job's status; if it is empty, the job's state. Returns the job's document.
nlohmann::ordered_json ShowJob(Context& context, const v1::Job& job, const std::string& word = "") {
  PrintChanged(context, job.job_id(), {job}, {}, word.empty() ? StateWord(job.state()) : word);
  return JobToJson(job);
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

// Cancels a job or an array, prints it and returns its document.
absl::StatusOr<nlohmann::ordered_json> Cancel(Context& context, ClusterClient& client,
                                              const std::string& id, const CancelFlags& flags) {
  v1::CancelJobRequest request;
  request.set_job_id(id);
  SetGracePeriod(flags, request);
  const absl::StatusOr<v1::Job> job = client.Call<v1::Job>(request);
  if (job.ok()) return ShowJob(context, *job);
  if (!MayBeArray(job.status())) return job.status();
  v1::CancelArrayRequest array_request;
  array_request.set_array_id(id);
  SetGracePeriod(flags, array_request);
  const absl::StatusOr<v1::JobArray> array = client.Call<v1::JobArray>(array_request);
  if (!array.ok()) return absl::IsNotFound(array.status()) ? job.status() : array.status();
  PrintChanged(context, array->array_id(), {}, {*array},
               absl::StrCat(CancelWord(*array), ", ", ArrayProgress(*array)));
  return ToJson(*array);
}

int CancelAll(Context& context, const CancelFlags& flags) {
  ClusterClient client(context.client_options());
  return context.ForEach(flags.job_ids,
                         [&](const std::string& id) { return Cancel(context, client, id, flags); });
}

// Returns the job as it was.
absl::StatusOr<v1::Job> Remove(ClusterClient& client, const std::string& job_id) {
  ASSIGN_OR_RETURN(v1::Job job, client.GetJob(job_id));
  v1::RemoveJobRequest request;
  request.set_job_id(job.job_id());
  RETURN_IF_ERROR(client.Call<v1::RemoveJobResponse>(request).status());
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
                      "recorded the request; use `muster wait` to wait for the end. Has no effect "
                      "on a finished job. For an array, cancels its tasks."},
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
  SetAction(verb, context, flags, CancelAll);
}

// Adds a verb whose only arguments are jobs.
void AddJobsVerb(CLI::App& app, Context& context, const std::string& name, Manual manual,
                 JobCall call, const std::string& word = "") {
  Verb& verb = AddVerb(app, name, kJobVerbs, std::move(manual));
  auto job_ids = std::make_shared<std::vector<std::string>>();
  verb.add_option("JOB", *job_ids, "Job ids or names, or unique prefixes of them")->required();
  const auto change = [call = std::move(call), word](Context& context, const auto& job_ids) {
    ClusterClient client(context.client_options());
    return context.ForEach(
        job_ids, [&](const std::string& job_id) -> absl::StatusOr<nlohmann::ordered_json> {
          ASSIGN_OR_RETURN(const v1::Job job, call(client, job_id));
          return ShowJob(context, job, word);
        });
  };
  SetAction(verb, context, job_ids, change);
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
      [](ClusterClient& client, const std::string& job_id) {
        return client.CallForJob<v1::HoldJobRequest>(job_id);
      });
  AddJobsVerb(app, context, "release",
              {.summary = "Let held jobs start",
               .usage = "JOB... [OPTIONS]",
               .examples = {{"muster release train-x7k2", "queue a held job again"},
                            {"muster release $(muster list --state held -o name)",
                             "release all held jobs"}}},
              [](ClusterClient& client, const std::string& job_id) {
                return client.CallForJob<v1::ReleaseJobRequest>(job_id);
              });
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
      [](ClusterClient& client, const std::string& job_id) {
        return client.CallForJob<v1::RequeueJobRequest>(job_id);
      });
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
