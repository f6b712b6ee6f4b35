// `muster queue`.
#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "cli/context.h"
#include "cli/exit_code.h"
#include "cli/output/json.h"
#include "cli/output/words.h"
#include "cli/text/queue_text.h"
#include "cli/verb.h"
#include "nlohmann/json.hpp"

namespace muster::cli {
namespace {

void PrintTables(Context& context, const v1::GetQueueResponse& queue) {
  if (queue.jobs().empty()) {
    context.console.Note("no queued jobs");
  } else {
    context.console.Out(
        QueueTable(queue, context.output == Output::kWide, TextWidth(), absl::Now()));
  }
  if (!queue.owners().empty()) {
    context.console.Out(
        absl::StrCat(queue.jobs().empty() ? "" : "\n", OwnerTable(queue, TextWidth())));
  }
}

int Queue(Context& context, uint32_t limit) {
  ClusterClient client(context.client_options());
  const absl::StatusOr<v1::GetQueueResponse> queue = client.GetQueue(limit);
  if (!queue.ok()) return context.Fail(queue.status());
  if (context.structured()) {
    nlohmann::ordered_json json = ToJson(*queue);
    json.erase("next_page_token");
    context.Print(json);
  } else if (context.output == Output::kName) {
    for (const v1::QueuedJob& queued : queue->jobs()) {
      context.console.Out(absl::StrCat(queued.job().job_id(), "\n"));
    }
  } else {
    PrintTables(context, *queue);
  }
  if (static_cast<uint32_t>(queue->jobs_size()) < queue->total()) {
    context.console.Note("the first ", queue->jobs_size(), " of ", queue->total(),
                         " queued jobs; raise --limit to see more");
  }
  return kExitSuccess;
}

}  // namespace

void AddQueueVerb(CLI::App& app, Context& context) {
  Verb& verb =
      AddVerb(app, "queue", kJobVerbs,
              {.summary = "Show the queue and the owners' use of the cluster",
               .usage = "[OPTIONS]",
               .paragraphs =
                   {"Lists queued jobs in the order in which they start, what each waits for, and "
                    "when it may start; then each owner's share of the usage, with the share "
                    "that is configured, and its running slots and queued jobs with their "
                    "limits. `muster why` explains one job in full.",
                    "CLASS shows `low -> normal` for a job that has waited so long that it "
                    "counts as one of a higher class. -o wide also names the nodes that are "
                    "kept for a job."},
               .examples = {{"muster queue", "the queue and the owners"},
                            {"muster queue --limit 10 -o wide", "details of the first ten jobs"},
                            {"muster queue -o name", "ids of the queued jobs, in order"}}});
  auto limit = std::make_shared<uint32_t>(0);
  verb.add_option("--limit", *limit, "Show only the first N jobs")
      ->type_name("N")
      ->check(AboveZero);
  SetAction(verb, context, limit, Queue);
}

}  // namespace muster::cli
