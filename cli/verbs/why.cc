// `muster why`.
#include "cli/text/why.h"

#include <algorithm>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "cli/context.h"
#include "cli/exit_code.h"
#include "cli/text/job_text.h"
#include "cli/verb.h"
#include "nlohmann/json.hpp"

namespace muster::cli {
namespace {

int Why(Context& context, const std::string& job_id) {
  ClusterClient client(context.client_options());
  absl::StatusOr<v1::Job> job = client.GetJob(job_id);
  if (!job.ok()) return context.Fail(job.status());
  WhyFacts facts;
  facts.job = *std::move(job);
  if (facts.job.queue_position() > 1 && facts.job.unplaceable().empty()) {
    v1::ListJobsRequest request;
    request.set_state(v1::QUEUED);
    const absl::StatusOr<v1::ListJobsResponse> queue = client.ListJobs(request);
    if (!queue.ok()) return context.Fail(queue.status());
    for (const v1::Job& other : queue->jobs()) {
      const bool ahead =
          other.queue_position() > 0 && other.queue_position() < facts.job.queue_position();
      if (ahead && other.unplaceable().empty()) {
        facts.ahead.push_back(other);
      }
    }
    std::sort(facts.ahead.begin(), facts.ahead.end(), [](const v1::Job& a, const v1::Job& b) {
      return a.queue_position() < b.queue_position();
    });
  }
  const absl::Time now = absl::Now();
  std::string text = WhyText(facts, now);
  if (context.output == Output::kWide && facts.job.ranks_size() > 0) {
    absl::StrAppend(&text, "\n", RankTable(facts.job, /*wide=*/true));
  }
  context.Show(facts.job.job_id(), WhyJson(facts, now), text);
  return kExitSuccess;
}

}  // namespace

void AddWhyVerb(CLI::App& app, Context& context) {
  Verb& verb = AddVerb(
      app, "why", kJobVerbs,
      {.summary = "Explain why a job is waiting, slow or failed",
       .usage = "JOB [OPTIONS]",
       .paragraphs = {"For a queued job: its position in the queue, everything that it waits for "
                      "and what would remove each of these, and when it may start.",
                      "For a starting or running job: the ranks that others wait for, with node, "
                      "pid, phase and time of their last report; and the slowest rank, which is "
                      "the one that takes longest per step without waiting for its peers, if it "
                      "takes more than 10 % longer than they do; otherwise the one that has "
                      "finished the fewest collectives, then the fewest steps, then has the oldest "
                      "report. -o wide adds a line per rank.",
                      "For a finished job: the first failure with its evidence, and the number of "
                      "ranks that ended as a consequence."},
       .examples = {{"muster why train-x7k2", "explain in text"},
                    {"muster why train-x7k2 -o json | jq .slowest", "the slowest rank, as JSON"}}});
  auto job_id = std::make_shared<std::string>();
  verb.add_option("JOB", *job_id, "Job id or name, or a unique prefix of one")->required();
  SetAction(verb, context, job_id, Why);
}

}  // namespace muster::cli
