// `muster compare`.
#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "cli/compare/comparison.h"
#include "cli/compare/comparison_text.h"
#include "cli/context.h"
#include "cli/exit_code.h"
#include "cli/output/words.h"
#include "cli/verb.h"
#include "nlohmann/json.hpp"

namespace muster::cli {
namespace {

// Steps at which curves are compared: those of a table, and those of JSON.
constexpr size_t kTableSteps = 8;
constexpr size_t kJsonSteps = 200;

// A coordinator of the previous version has no histories, but the jobs.
absl::StatusOr<v1::JobHistory> ReadHistory(ClusterClient& client, const std::string& job_id) {
  absl::StatusOr<v1::JobHistory> history =
      client.CallForJob<v1::GetJobHistoryRequest, v1::JobHistory>(job_id);
  if (history.ok() || history.status().code() != absl::StatusCode::kUnimplemented) return history;
  absl::StatusOr<v1::Job> job = client.GetJob(job_id);
  if (!job.ok()) return job.status();
  v1::JobHistory alone;
  *alone.mutable_job() = *std::move(job);
  return alone;
}

int CompareJobs(Context& context, const std::vector<std::string>& job_ids) {
  ClusterClient client(context.client_options());
  std::vector<v1::JobHistory> histories;
  for (const std::string& job_id : job_ids) {
    absl::StatusOr<v1::JobHistory> history = ReadHistory(client, job_id);
    if (!history.ok()) return context.Fail(history.status());
    histories.push_back(*std::move(history));
  }
  const bool wide = context.output == Output::kWide;
  const Comparison comparison =
      Compare(histories, context.structured() ? kJsonSteps : kTableSteps, absl::Now());
  if (context.structured()) {
    context.Print(ComparisonJson(comparison, /*with_equal=*/false));
  } else if (context.output == Output::kName) {
    for (const v1::Job& job : comparison.jobs) {
      context.console.Out(absl::StrCat(job.job_id(), "\n"));
    }
  } else {
    context.console.Out(ComparisonText(comparison, wide, TextWidth()));
  }
  for (const v1::Job& job : comparison.jobs) {
    if (job.private_hidden()) {
      context.console.Note(job.job_id(),
                           " belongs to another owner: what is private of it is not compared");
    }
  }
  return kExitSuccess;
}

}  // namespace

void AddCompareVerb(CLI::App& app, Context& context) {
  Verb& verb = AddVerb(
      app, "compare", kJobVerbs,
      {.summary = "Compare specs, environments and results of jobs",
       .usage = "JOB JOB... [OPTIONS]",
       .paragraphs =
           {absl::StrCat("Prints a table with a column per job, for two to ", kMaxComparedJobs,
                         " jobs: fields of the spec that differ, differences of the software and "
                         "the machines, results, and the time by cause. -o wide also prints what "
                         "is equal."),
            "Results of a job that has not ended are those of its latest report. With two jobs, "
            "CHANGE is the second job's result relative to the first's.",
            "Curves are compared at steps that all jobs have reached. The coordinator keeps a "
            "bounded number of points per job, each a mean over some steps; the loss between two "
            "points is interpolated.",
            "Everything comes from the coordinator, so jobs can be compared after their nodes are "
            "gone, until they are removed."},
       .examples = {{"muster compare train-x7k2 train-9qd3", "two runs"},
                    {"muster compare a-x7k2 b-9qd3 c-p2m4 -o json | jq .results",
                     "results of three runs, as JSON"}}});
  auto job_ids = std::make_shared<std::vector<std::string>>();
  verb.add_option("JOB", *job_ids, "Job ids or names, or unique prefixes of them")
      ->required()
      ->expected(2, static_cast<int>(kMaxComparedJobs));
  SetAction(verb, context, job_ids, CompareJobs);
}

}  // namespace muster::cli
