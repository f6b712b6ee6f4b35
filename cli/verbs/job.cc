// `muster list`, `get` and `describe`.
#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "cli/context.h"
#include "cli/exit_code.h"
#include "cli/output/json.h"
#include "cli/text/job_description.h"
#include "cli/text/job_text.h"
#include "cli/verb.h"
#include "common/status.h"
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

// Reads each job with `read`, and continues after a failure, whose exit code it returns.
template <typename Read>
int ForEach(Context& context, const std::vector<std::string>& job_ids, Read read) {
  ClusterClient client(context.client_options());
  int exit_code = kExitSuccess;
  for (const std::string& job_id : job_ids) {
    const absl::Status status = read(client, job_id);
    if (!status.ok()) exit_code = context.Fail(status);
  }
  return exit_code;
}

int GetJobs(Context& context, const std::vector<std::string>& job_ids) {
  std::vector<v1::Job> jobs;
  const int exit_code = ForEach(context, job_ids, [&](ClusterClient& client, const auto& job_id) {
    absl::StatusOr<v1::Job> job = client.GetJob(job_id);
    if (job.ok()) jobs.push_back(*std::move(job));
    return job.status();
  });
  if (context.structured()) {
    std::vector<nlohmann::ordered_json> documents;
    for (const v1::Job& job : jobs) documents.push_back(JobToJson(job));
    context.PrintOneOrList(std::move(documents), job_ids.size());
  } else if (context.output == Output::kName) {
    for (const v1::Job& job : jobs) context.console.Out(absl::StrCat(job.job_id(), "\n"));
  } else if (!jobs.empty()) {
    context.console.Out(JobTable(jobs, context.output == Output::kWide, absl::Now()));
  }
  return exit_code;
}

struct DescribeFlags {
  std::vector<std::string> job_ids;
  bool ranks = false;
  bool events = false;
};

struct DescribedJob {
  v1::Job job;
  std::vector<v1::JobEvent> events;
};

absl::StatusOr<DescribedJob> ReadJob(ClusterClient& client, const std::string& job_id,
                                     bool with_events) {
  DescribedJob described;
  ASSIGN_OR_RETURN(described.job, client.GetJob(job_id));
  if (!with_events) return described;
  v1::ListEventsRequest request;
  request.set_job_id(described.job.job_id());
  ASSIGN_OR_RETURN(const v1::ListEventsResponse response, client.ListEvents(request));
  described.events.assign(response.events().begin(), response.events().end());
  return described;
}

nlohmann::ordered_json DescriptionJson(const DescribedJob& described, const DescribeFlags& flags) {
  nlohmann::ordered_json json = JobToJson(described.job);
  if (!flags.ranks) json.erase("ranks");
  if (!flags.events) return json;
  json["events"] = nlohmann::ordered_json::array();
  for (const v1::JobEvent& event : described.events) json["events"].push_back(ToJson(event));
  return json;
}

std::string DescriptionText(const DescribedJob& described, const DescribeFlags& flags, bool wide) {
  const absl::Time now = absl::Now();
  std::string text = Description(described.job, now);
  if (flags.ranks) absl::StrAppend(&text, "\n", RankTable(described.job, wide));
  if (flags.events) {
    absl::StrAppend(&text, "\n", EventTable(described.job, described.events, now));
  }
  return text;
}

int DescribeJobs(Context& context, const DescribeFlags& flags) {
  std::vector<DescribedJob> jobs;
  const int exit_code =
      ForEach(context, flags.job_ids, [&](ClusterClient& client, const auto& job_id) {
        absl::StatusOr<DescribedJob> job = ReadJob(client, job_id, flags.events);
        if (job.ok()) jobs.push_back(*std::move(job));
        return job.status();
      });
  if (context.structured()) {
    std::vector<nlohmann::ordered_json> documents;
    for (const DescribedJob& job : jobs) documents.push_back(DescriptionJson(job, flags));
    context.PrintOneOrList(std::move(documents), flags.job_ids.size());
    return exit_code;
  }
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (context.output == Output::kName) {
      context.console.Out(absl::StrCat(jobs[i].job.job_id(), "\n"));
    } else {
      context.console.Out(absl::StrCat(
          i > 0 ? "\n" : "", DescriptionText(jobs[i], flags, context.output == Output::kWide)));
    }
  }
  return exit_code;
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
      {.summary = "Show jobs in one line each",
       .usage = "JOB... [OPTIONS]",
       .examples = {{"muster get train-x7k2", "the job's line of `muster list`"},
                    {"muster get train-x7k2 -o json | jq -r .state", "one field, from JSON"}}});
  auto job_ids = std::make_shared<std::vector<std::string>>();
  get.add_option("JOB", *job_ids, "Job ids or names, or unique prefixes of them")->required();
  get.callback([&context, job_ids] {
    context.action = [&context, job_ids] { return GetJobs(context, *job_ids); };
  });

  Verb& describe = AddVerb(
      app, "describe", kJobVerbs,
      {.summary = "Show details of jobs",
       .usage = "JOB... [OPTIONS]",
       .paragraphs =
           {"Prints the job's state and reason, what it waits for, its command, the names of its "
            "environment variables, its checkpoint, progress and result, and for a failed job the "
            "rank that failed first with the end of its stderr. -o json also has the variables' "
            "values."},
       .examples = {
           {"muster describe train-x7k2", "state, progress and result"},
           {"muster describe train-x7k2 --ranks --events", "also its ranks and its history"}}});
  auto flags = std::make_shared<DescribeFlags>();
  describe.add_option("JOB", flags->job_ids, "Job ids or names, or unique prefixes of them")
      ->required();
  describe.add_flag("--ranks", flags->ranks, "Include a table of ranks: node, phase, exit");
  describe.add_flag("--events", flags->events, "Include the job's events");
  describe.callback([&context, flags] {
    context.action = [&context, flags] { return DescribeJobs(context, *flags); };
  });
}

}  // namespace muster::cli
