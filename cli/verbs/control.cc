// `muster cancel`, `hold`, `release`, `requeue`.
#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "cli/context.h"
#include "cli/duration_option.h"
#include "cli/exit_code.h"
#include "cli/output/json.h"
#include "cli/text/job_text.h"
#include "cli/verb.h"
#include "common/proto_time.h"
#include "nlohmann/json.hpp"

namespace muster::cli {
namespace {

using JobCall = std::function<absl::StatusOr<v1::Job>(ClusterClient&, const std::string& job_id)>;

struct CancelFlags {
  std::vector<std::string> job_ids;
  std::optional<absl::Duration> grace;
  bool force = false;
};

void PrintJob(Context& context, const v1::Job& job) {
  if (context.output == Output::kName) {
    context.console.Out(absl::StrCat(job.job_id(), "\n"));
  } else if (context.output == Output::kWide) {
    context.console.Out(JobTable({job}, /*wide=*/true, absl::Now()));
  } else {
    context.console.Out(absl::StrCat(job.job_id(), " ", StateWord(job.state()), "\n"));
  }
}

// Does it to each job, also after one of them failed. Structured output is one document: the job,
// or a list where several were named.
int ForEach(Context& context, const std::vector<std::string>& job_ids, const JobCall& call) {
  ClusterClient client(context.client_options());
  int exit_code = kExitSuccess;
  nlohmann::ordered_json array = nlohmann::ordered_json::array();
  for (const std::string& job_id : job_ids) {
    const absl::StatusOr<v1::Job> job = call(client, job_id);
    if (!job.ok()) {
      exit_code = context.Fail(job.status());
    } else if (context.structured()) {
      array.push_back(JobToJson(*job));
    } else {
      PrintJob(context, *job);
    }
  }
  if (context.structured()) {
    if (job_ids.size() > 1) {
      context.Print(array);
    } else if (!array.empty()) {
      context.Print(array[0]);
    }
  }
  return exit_code;
}

absl::StatusOr<v1::Job> Cancel(ClusterClient& client, const std::string& job_id,
                               const CancelFlags& flags) {
  v1::CancelJobRequest request;
  request.set_job_id(job_id);
  if (flags.force) *request.mutable_grace_period() = ToProto(absl::ZeroDuration());
  if (flags.grace.has_value()) *request.mutable_grace_period() = ToProto(*flags.grace);
  return client.CancelJob(request);
}

void AddCancel(CLI::App& app, Context& context) {
  Verb& verb = AddVerb(
      app, "cancel", kJobVerbs,
      {.summary = "End jobs",
       .usage = "JOB... [OPTIONS]",
       .paragraphs = {"A queued job is over at once. The ranks of a running one get SIGTERM "
                      "and, when the grace period is over, everything that they ever started "
                      "gets SIGKILL. Returns when the coordinator has taken note; `muster "
                      "wait` waits for the end. A job that is over stays as it is."},
       .examples = {{"muster cancel train-x7k2", "with the job's own grace period"},
                    {"muster cancel train-x7k2 --force", "SIGKILL at once"},
                    {"muster cancel $(muster list -o name --state queued)",
                     "everything that has not started"}}});
  auto flags = std::make_shared<CancelFlags>();
  verb.add_option("JOB", flags->job_ids, "Ids, or unique prefixes")->required();
  CLI::Option* grace =
      AddDurationOption(verb, "--grace", flags->grace,
                        "From SIGTERM to SIGKILL, instead of the job's own grace period");
  verb.add_flag("--force", flags->force, "No grace: SIGKILL at once")->excludes(grace);
  verb.callback([&context, flags] {
    context.action = [&context, flags] {
      return ForEach(context, flags->job_ids, [flags](ClusterClient& client, const auto& job_id) {
        return Cancel(client, job_id, *flags);
      });
    };
  });
}

// For the verbs that take jobs and nothing else.
void AddJobsVerb(CLI::App& app, Context& context, const std::string& name, Manual manual,
                 JobCall call) {
  Verb& verb = AddVerb(app, name, kJobVerbs, std::move(manual));
  auto job_ids = std::make_shared<std::vector<std::string>>();
  verb.add_option("JOB", *job_ids, "Ids, or unique prefixes")->required();
  verb.callback([&context, job_ids, call = std::move(call)] {
    context.action = [&context, job_ids, call] { return ForEach(context, *job_ids, call); };
  });
}

}  // namespace

void AddControlVerbs(CLI::App& app, Context& context) {
  AddCancel(app, context);
  AddJobsVerb(
      app, context, "hold",
      {.summary = "Keep queued jobs from starting",
       .usage = "JOB... [OPTIONS]",
       .paragraphs = {"A held job keeps its place by priority and time of submission; `muster "
                      "release` lets it start again. A job that has started cannot be held."},
       .examples = {{"muster hold train-x7k2", "until it is released"}}},
      [](ClusterClient& client, const std::string& job_id) { return client.HoldJob(job_id); });
  AddJobsVerb(
      app, context, "release",
      {.summary = "Let held jobs start",
       .usage = "JOB... [OPTIONS]",
       .examples = {{"muster release train-x7k2", "it is queued again"},
                    {"muster release $(muster list --state held -o name)", "all that are held"}}},
      [](ClusterClient& client, const std::string& job_id) { return client.ReleaseJob(job_id); });
  AddJobsVerb(
      app, context, "requeue",
      {.summary = "Stop jobs and queue them again",
       .usage = "JOB... [OPTIONS]",
       .paragraphs =
           {"The ranks are stopped with the job's grace period, and the job goes to the "
            "head of its priority. It starts again as a new generation, a train job from "
            "its newest checkpoint. Does not count as a restart. A queued job stays as it "
            "is."},
       .examples = {{"muster requeue train-x7k2", "give up its slots and wait for others"}}},
      [](ClusterClient& client, const std::string& job_id) { return client.RequeueJob(job_id); });
}

}  // namespace muster::cli
