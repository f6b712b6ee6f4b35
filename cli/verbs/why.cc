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
  if (facts.job.state() == v1::QUEUED && facts.job.queue_position() > 1) {
    v1::ListJobsRequest request;
    request.set_state(v1::QUEUED);
    const absl::StatusOr<v1::ListJobsResponse> queue = client.ListJobs(request);
    if (!queue.ok()) return context.Fail(queue.status());
    for (const v1::Job& other : queue->jobs()) {
      if (other.queue_position() > 0 && other.queue_position() < facts.job.queue_position()) {
        facts.ahead.push_back(other);
      }
    }
    std::sort(facts.ahead.begin(), facts.ahead.end(), [](const v1::Job& a, const v1::Job& b) {
      return a.queue_position() < b.queue_position();
    });
  }
  const absl::Time now = absl::Now();
  if (context.structured()) {
    context.Print(WhyJson(facts, now));
  } else if (context.output == Output::kName) {
    context.console.Out(absl::StrCat(facts.job.job_id(), "\n"));
  } else {
    context.console.Out(WhyText(facts, now));
    if (context.output == Output::kWide && facts.job.ranks_size() > 0) {
      context.console.Out(absl::StrCat("\n", RankTable(facts.job, /*wide=*/true)));
    }
  }
  return kExitSuccess;
}

}  // namespace

void AddWhyVerb(CLI::App& app, Context& context) {
  Verb& verb = AddVerb(
      app, "why", kJobVerbs,
      {.summary = "Why a job does not start, does not get on, or ended",
       .usage = "JOB [OPTIONS]",
       .paragraphs =
           {"Of a queued job: what keeps it from starting, node by node, its place in the queue, "
            "and "
            "when it may start.",
            "Of one that starts or runs: which ranks are waited for, with node, pid, phase and "
            "when "
            "they were last heard of; and the slowest rank, that is the one that has finished the "
            "fewest collectives, or of equals the fewest steps, or of equals was silent for "
            "longest. "
            "-o wide adds a line for each rank.",
            "Of one that is over: the failure that came first, with its evidence; the ranks that "
            "ended because of it are counted, not blamed."},
       .examples = {{"muster why train-x7k2", "in words"},
                    {"muster why train-x7k2 -o json | jq .slowest", "as data"}}});
  auto job_id = std::make_shared<std::string>();
  verb.add_option("JOB", *job_id, "Its id, or a unique prefix")->required();
  verb.callback([&context, job_id] {
    context.action = [&context, job_id] { return Why(context, *job_id); };
  });
}

}  // namespace muster::cli
