// `muster admin`.
#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/context.h"
#include "cli/exit_code.h"
#include "cli/output/json.h"
#include "cli/output/words.h"
#include "cli/verb.h"
#include "nlohmann/json.hpp"

namespace muster::cli {
namespace {

std::string Sentences(const v1::RecoverJobsResponse& response, bool discard) {
  std::string text;
  if (discard) {
    absl::StrAppend(&text, "the ranks of ", absl::StrJoin(response.nodes(), ", "),
                    " that this coordinator does not know are being stopped\n");
    return text;
  }
  for (const std::string& job : response.job_ids()) {
    absl::StrAppend(&text, job, " recovered\n");
  }
  for (const std::string& node : response.nodes()) {
    absl::StrAppend(&text, node, " joined this cluster\n");
  }
  return text;
}

int Recover(Context& context, const v1::RecoverJobsRequest& request) {
  ClusterClient client(context.client_options());
  const absl::StatusOr<v1::RecoverJobsResponse> response = client.RecoverJobs(request);
  if (!response.ok()) return context.Fail(response.status());
  if (context.structured()) {
    context.Print(ToJson(*response));
  } else if (context.output == Output::kName) {
    for (const std::string& job : response->job_ids()) context.console.Out(job + "\n");
  } else {
    context.console.Out(Printable(Sentences(*response, request.discard())));
    if (response->nodes().empty() && response->problems().empty()) {
      context.console.Note("no node is in conflict");
    }
  }
  for (const std::string& problem : response->problems()) context.console.Note(problem);
  return response->problems().empty() ? kExitSuccess : kExitFailure;
}

}  // namespace

void AddAdminVerbs(CLI::App& app, Context& context) {
  Verb& group = AddVerb(app, "admin", kNodeVerbs,
                        {.summary = "Repair the cluster: recover", .usage = "VERB [OPTIONS]"});
  group.require_subcommand(1);
  Verb& recover = AddVerb(
      group, "recover", kNodeVerbs,
      {.summary = "Recover jobs that the coordinator's store has lost",
       .usage = "[NODE...] [OPTIONS]",
       .paragraphs =
           {"A node is in conflict if its ranks belong to another cluster, or to a later state of "
            "the coordinator's store than the present one, e.g. after the store was restored from "
            "a backup. Its ranks continue, and the coordinator leaves them alone.",
            "This verb rebuilds the jobs of these ranks from the records of the nodes' workers. A "
            "job of which every node has answered continues without a restart; the ranks of other "
            "jobs are stopped, and the jobs are queued again. Idempotency keys, events and times "
            "of submission are lost.",
            "If the wrong coordinator was started, e.g. with an empty --data-dir, do not recover: "
            "start the right one."},
       .exits = {{"1", "A node did not answer"}},
       .examples = {{"muster admin recover", "all nodes in conflict"},
                    {"muster admin recover gpu-03 --discard",
                     "after gpu-03 was moved here from another cluster with running ranks"}}});
  auto request = std::make_shared<v1::RecoverJobsRequest>();
  recover.add_option_function<std::vector<std::string>>(
      "NODE",
      [request](const std::vector<std::string>& names) {
        for (const std::string& name : names) request->add_nodes(name);
      },
      "Names of nodes (default: all in conflict)");
  recover.add_flag_callback(
      "--discard", [request] { request->set_discard(true); },
      "Recover nothing: stop the nodes' ranks that this coordinator does not know");
  recover.callback([&context, request] {
    context.action = [&context, request] { return Recover(context, *request); };
  });
}

}  // namespace muster::cli
