// `muster list`, `get` and `describe`.
#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "cli/context.h"
#include "cli/exit_code.h"
#include "cli/output/json.h"
#include "cli/text/job_text.h"
#include "cli/verb.h"
#include "nlohmann/json.hpp"

namespace muster::cli {
namespace {

struct ListFlags {
  bool all = false;
  std::string state;
};

int ListJobs(Context& context, const ListFlags& flags) {
  v1::ListJobsRequest request;
  request.set_include_finished(flags.all);
  if (!flags.state.empty()) {
    v1::JobState state;
    // Validated when parsed.
    v1::JobState_Parse(absl::AsciiStrToUpper(flags.state), &state);
    request.set_state(state);
    request.set_include_finished(true);
  }
  ClusterClient client(context.client_options());
  const absl::StatusOr<v1::ListJobsResponse> response = client.ListJobs(request);
  if (!response.ok()) return context.Fail(response.status());
  const std::vector<v1::Job> jobs(response->jobs().begin(), response->jobs().end());
  if (context.structured()) {
    nlohmann::ordered_json array = nlohmann::ordered_json::array();
    for (const v1::Job& job : jobs) array.push_back(JobToJson(job));
    context.Print(array);
  } else if (context.output == Output::kName) {
    for (const v1::Job& job : jobs) context.console.Out(absl::StrCat(job.job_id(), "\n"));
  } else if (jobs.empty()) {
    context.console.Note(flags.all ? "no jobs" : "no active jobs; use -a to include finished jobs");
  } else {
    context.console.Out(JobTable(jobs, context.output == Output::kWide, absl::Now()));
  }
  return kExitSuccess;
}

int GetJob(Context& context, const std::string& job_id) {
  ClusterClient client(context.client_options());
  const absl::StatusOr<v1::Job> job = client.GetJob(job_id);
  if (!job.ok()) return context.Fail(job.status());
  if (context.structured()) {
    context.Print(JobToJson(*job));
  } else if (context.output == Output::kName) {
    context.console.Out(absl::StrCat(job->job_id(), "\n"));
  } else {
    context.console.Out(JobTable({*job}, context.output == Output::kWide, absl::Now()));
  }
  return kExitSuccess;
}

struct DescribeFlags {
  std::string job_id;
  bool ranks = false;
  bool events = false;
};

int DescribeJob(Context& context, const DescribeFlags& flags) {
  ClusterClient client(context.client_options());
  const absl::StatusOr<v1::Job> job = client.GetJob(flags.job_id);
  if (!job.ok()) return context.Fail(job.status());
  v1::ListEventsResponse events;
  if (flags.events) {
    v1::ListEventsRequest request;
    request.set_job_id(job->job_id());
    absl::StatusOr<v1::ListEventsResponse> response = client.ListEvents(request);
    if (!response.ok()) return context.Fail(response.status());
    events = *std::move(response);
  }
  if (context.structured()) {
    nlohmann::ordered_json json = JobToJson(*job);
    if (!flags.ranks) json.erase("ranks");
    if (flags.events) {
      json["events"] = nlohmann::ordered_json::array();
      for (const v1::JobEvent& event : events.events()) json["events"].push_back(ToJson(event));
    }
    context.Print(json);
    return kExitSuccess;
  }
  if (context.output == Output::kName) {
    context.console.Out(absl::StrCat(job->job_id(), "\n"));
    return kExitSuccess;
  }
  const absl::Time now = absl::Now();
  const bool wide = context.output == Output::kWide;
  std::string text = Description(*job, now);
  if (flags.ranks) absl::StrAppend(&text, "\n", RankTable(*job, wide));
  if (flags.events) {
    const std::vector<v1::JobEvent> list(events.events().begin(), events.events().end());
    absl::StrAppend(&text, "\n", EventTable(list, now));
  }
  context.console.Out(text);
  return kExitSuccess;
}

std::string CheckState(const std::string& text) {
  v1::JobState state;
  if (v1::JobState_Parse(absl::AsciiStrToUpper(text), &state) &&
      state != v1::JOB_STATE_UNSPECIFIED) {
    return "";
  }
  return absl::StrCat(text,
                      " is not a job state; use one of queued, held, starting, running, stopping, ",
                      "succeeded, failed, cancelled, timed_out");
}

}  // namespace

void AddJobVerbs(CLI::App& app, Context& context) {
  Verb& list = AddVerb(
      app, "list", kJobVerbs,
      {.summary = "List jobs, newest first",
       .usage = "[OPTIONS]",
       .paragraphs = {"Finished jobs are listed only with -a or --state."},
       .examples = {{"muster list", "queued and running jobs"},
                    {"muster list --state failed -o wide", "failed jobs with reasons"},
                    {"muster list -a -o json | jq '.[].job_id'", "all job ids, from JSON"}}});
  auto list_flags = std::make_shared<ListFlags>();
  list.add_flag("-a,--all", list_flags->all, "Include finished jobs");
  list.add_option("--state", list_flags->state,
                  "List only jobs in this state: queued, held, starting, running, stopping, "
                  "succeeded, failed, cancelled, timed_out")
      ->type_name("STATE")
      ->check(CheckState);
  list.callback([&context, list_flags] {
    context.action = [&context, list_flags] { return ListJobs(context, *list_flags); };
  });

  Verb& get = AddVerb(
      app, "get", kJobVerbs,
      {.summary = "Show a job in one line",
       .usage = "JOB [OPTIONS]",
       .examples = {{"muster get train-x7k2", "the job's line of `muster list`"},
                    {"muster get train-x7k2 -o json | jq -r .state", "one field, from JSON"}}});
  auto job_id = std::make_shared<std::string>();
  get.add_option("JOB", *job_id, "Job id, or a unique prefix of one")->required();
  get.callback([&context, job_id] {
    context.action = [&context, job_id] { return GetJob(context, *job_id); };
  });

  Verb& describe = AddVerb(
      app, "describe", kJobVerbs,
      {.summary = "Show details of a job",
       .usage = "JOB [OPTIONS]",
       .paragraphs =
           {"Prints the job's state and reason, what it waits for, its progress and result, and "
            "for a failed job the rank that failed first with the end of its stderr."},
       .examples = {
           {"muster describe train-x7k2", "state, progress and result"},
           {"muster describe train-x7k2 --ranks --events", "also its ranks and its history"}}});
  auto flags = std::make_shared<DescribeFlags>();
  describe.add_option("JOB", flags->job_id, "Job id, or a unique prefix of one")->required();
  describe.add_flag("--ranks", flags->ranks, "Include a table of ranks: node, phase, exit");
  describe.add_flag("--events", flags->events, "Include the job's events");
  describe.callback([&context, flags] {
    context.action = [&context, flags] { return DescribeJob(context, *flags); };
  });
}

}  // namespace muster::cli
