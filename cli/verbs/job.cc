// `muster list`, `get` and `describe`.
#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/client.h"
#include "cli/context.h"
#include "cli/exit_code.h"
#include "cli/output/json.h"
#include "cli/text/array_text.h"
#include "cli/text/job_description.h"
#include "cli/text/job_text.h"
#include "cli/verb.h"
#include "common/status.h"
#include "nlohmann/json.hpp"

namespace muster::cli {
namespace {

struct ListFlags {
  bool all = false;
  bool mine = false;
  bool tasks = false;
  std::string owner;
  std::string state;
  uint32_t limit = 0;
};

int ListJobs(Context& context, const ListFlags& flags) {
  v1::ListJobsRequest request;
  request.set_include_finished(flags.all);
  request.set_mine(flags.mine);
  request.set_owner(flags.owner);
  request.set_limit(flags.limit);
  // Only a table shows arrays: other formats list jobs.
  request.set_collapse_arrays(!flags.tasks && !context.structured() &&
                              context.output != Output::kName);
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
  const std::vector<v1::JobArray> arrays(response->arrays().begin(), response->arrays().end());
  if (context.structured()) {
    nlohmann::ordered_json array = nlohmann::ordered_json::array();
    for (const v1::Job& job : jobs) array.push_back(JobToJson(job));
    context.Print(array);
  } else if (context.output == Output::kName) {
    for (const v1::Job& job : jobs) context.console.Out(absl::StrCat(job.job_id(), "\n"));
  } else if (jobs.empty() && arrays.empty()) {
    context.console.Note(flags.all ? "no jobs" : "no active jobs; use -a to include finished jobs");
  } else {
    context.console.Out(JobTable(jobs, arrays, context.output == Output::kWide, absl::Now()));
  }
  if (!response->next_page_token().empty()) {
    context.console.Note("there are more than the newest ", flags.limit,
                         "; raise --limit to see them");
  }
  return kExitSuccess;
}

const std::string& IdOf(const JobOrArray& one) {
  const v1::Job* const job = std::get_if<v1::Job>(&one);
  return job != nullptr ? job->job_id() : std::get<v1::GetArrayResponse>(one).array().array_id();
}

int GetJobs(Context& context, const std::vector<std::string>& job_ids) {
  ClusterClient client(context.client_options());
  std::vector<std::string> names;
  std::vector<v1::Job> jobs;
  std::vector<v1::JobArray> arrays;
  const int exit_code = context.ForEach(
      job_ids, [&](const std::string& job_id) -> absl::StatusOr<nlohmann::ordered_json> {
        ASSIGN_OR_RETURN(const JobOrArray one, FindJobOrArray(client, job_id));
        names.push_back(IdOf(one));
        if (const v1::Job* const job = std::get_if<v1::Job>(&one)) {
          jobs.push_back(*job);
          return JobToJson(*job);
        }
        const auto& array = std::get<v1::GetArrayResponse>(one);
        arrays.push_back(array.array());
        return ArrayToJson(array);
      });
  if (context.output == Output::kName) {
    for (const std::string& name : names) context.console.Out(name + "\n");
  } else if (!context.structured() && !names.empty()) {
    context.console.Out(JobTable(jobs, arrays, context.output == Output::kWide, absl::Now()));
  }
  return exit_code;
}

struct DescribeFlags {
  std::vector<std::string> job_ids;
  bool ranks = false;
  bool events = false;
};

struct Described {
  JobOrArray what;
  std::vector<v1::JobEvent> events;  // of a job
};

absl::StatusOr<Described> Read(ClusterClient& client, const std::string& job_id, bool with_events) {
  Described described;
  ASSIGN_OR_RETURN(described.what, FindJobOrArray(client, job_id));
  if (!with_events || !std::holds_alternative<v1::Job>(described.what)) return described;
  v1::ListEventsRequest request;
  request.set_job_id(IdOf(described.what));
  ASSIGN_OR_RETURN(const v1::ListEventsResponse response, client.ListEvents(request));
  described.events.assign(response.events().begin(), response.events().end());
  return described;
}

nlohmann::ordered_json DescriptionJson(const Described& described, const DescribeFlags& flags) {
  if (const auto* const array = std::get_if<v1::GetArrayResponse>(&described.what)) {
    return ArrayToJson(*array);
  }
  nlohmann::ordered_json json = JobToJson(std::get<v1::Job>(described.what));
  if (!flags.ranks) json.erase("ranks");
  if (!flags.events) return json;
  json["events"] = nlohmann::ordered_json::array();
  for (const v1::JobEvent& event : described.events) json["events"].push_back(ToJson(event));
  return json;
}

std::string DescriptionText(const Described& described, const DescribeFlags& flags, bool wide) {
  const absl::Time now = absl::Now();
  if (const auto* const array = std::get_if<v1::GetArrayResponse>(&described.what)) {
    return ArrayDescription(*array, wide, now);
  }
  const v1::Job& job = std::get<v1::Job>(described.what);
  std::string text = Description(job, now);
  if (flags.ranks) absl::StrAppend(&text, "\n", RankTable(job, wide));
  if (flags.events) absl::StrAppend(&text, "\n", EventTable(job, described.events, now));
  return text;
}

int DescribeJobs(Context& context, const DescribeFlags& flags) {
  ClusterClient client(context.client_options());
  std::vector<std::string> texts;
  const int exit_code = context.ForEach(
      flags.job_ids, [&](const std::string& job_id) -> absl::StatusOr<nlohmann::ordered_json> {
        ASSIGN_OR_RETURN(const Described job, Read(client, job_id, flags.events));
        texts.push_back(context.output == Output::kName
                            ? IdOf(job.what) + "\n"
                            : DescriptionText(job, flags, context.output == Output::kWide));
        return DescriptionJson(job, flags);
      });
  if (!context.structured()) {
    context.console.Out(absl::StrJoin(texts, context.output == Output::kName ? "" : "\n"));
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
       .paragraphs = {"Finished jobs are listed only with -a or --state. A table shows an array as "
                      "one row, such as `sweep-x7k2q[12]`, and --tasks its tasks, which the other "
                      "formats always list."},
       .examples = {{"muster list", "queued and running jobs"},
                    {"muster list --mine -a", "all jobs that you have submitted"},
                    {"muster list --state failed -o wide", "failed jobs with reasons"},
                    {"muster list -a -o json | jq '.[].job_id'", "all job ids, from JSON"}}});
  auto list_flags = std::make_shared<ListFlags>();
  list.add_flag("-a,--all", list_flags->all, "Include finished jobs");
  list.add_flag("--tasks", list_flags->tasks, "List the tasks of arrays in rows of their own");
  CLI::Option* const mine = list.add_flag("--mine", list_flags->mine, "List only your own jobs");
  list.add_option("--user", list_flags->owner, "List only jobs of this owner")
      ->type_name("NAME")
      ->excludes(mine);
  list.add_option("--state", list_flags->state,
                  "List only jobs in this state: queued, held, starting, running, stopping, "
                  "succeeded, failed, cancelled, timed_out")
      ->type_name("STATE")
      ->check(CheckState);
  list.add_option("--limit", list_flags->limit, "List only the newest N jobs")
      ->type_name("N")
      ->check(AboveZero);
  SetAction(list, context, list_flags, ListJobs);

  Verb& get = AddVerb(
      app, "get", kJobVerbs,
      {.summary = "Show jobs in one line each",
       .usage = "JOB... [OPTIONS]",
       .examples = {{"muster get train-x7k2", "the job's line of `muster list`"},
                    {"muster get train-x7k2 -o json | jq -r .state", "one field, from JSON"}}});
  auto job_ids = std::make_shared<std::vector<std::string>>();
  get.add_option("JOB", *job_ids, "Ids or names of jobs or arrays, or unique prefixes of them")
      ->required();
  SetAction(get, context, job_ids, GetJobs);

  Verb& describe = AddVerb(
      app, "describe", kJobVerbs,
      {.summary = "Show details of jobs",
       .usage = "JOB... [OPTIONS]",
       .paragraphs =
           {"Prints the job's state and reason, what it waits for, its command, the names of its "
            "environment variables, its checkpoint, progress and result, and for a failed job the "
            "rank that failed first with the end of its output. -o json also has the variables' "
            "values.",
            "For an array: how many tasks are in each state, and a table of the tasks with their "
            "values, loss, accuracy and duration."},
       .examples = {
           {"muster describe train-x7k2", "state, progress and result"},
           {"muster describe sweep-9qd3a", "the results of an array"},
           {"muster describe train-x7k2 --ranks --events", "also its ranks and its history"}}});
  auto flags = std::make_shared<DescribeFlags>();
  describe
      .add_option("JOB", flags->job_ids,
                  "Ids or names of jobs or arrays, or unique prefixes of them")
      ->required();
  describe.add_flag("--ranks", flags->ranks, "Include a table of ranks: node, phase, exit");
  describe.add_flag("--events", flags->events, "Include the job's events");
  SetAction(describe, context, flags, DescribeJobs);
}

}  // namespace muster::cli
