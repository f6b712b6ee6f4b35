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
  if (discard) {
    return absl::StrCat("the ranks of ", absl::StrJoin(response.nodes(), ", "),
                        " that this coordinator does not know are being stopped\n");
  }
  std::string text;
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
  const absl::StatusOr<v1::RecoverJobsResponse> response =
      client.Call<v1::RecoverJobsResponse>(request);
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

struct ShareFlags {
  std::string job_id;
  bool undo = false;
};

int Share(Context& context, const ShareFlags& flags) {
  ClusterClient client(context.client_options());
  const bool shared = !flags.undo;
  v1::ShareJobRequest request;
  request.set_job_id(flags.job_id);
  request.set_shared(shared);
  const absl::StatusOr<v1::Job> job = client.Call<v1::Job>(request);
  if (!job.ok()) return context.Fail(job.status());
  context.Show(job->job_id(), JobToJson(*job),
               absl::StrCat(job->job_id(), shared ? " shared\n" : " no longer shared\n"));
  return kExitSuccess;
}

void AddShare(Verb& group, Context& context) {
  Verb& share = AddVerb(
      group, "share", kNodeVerbs,
      {.summary = "Let others rerun a job and continue from its checkpoints",
       .usage = "JOB [OPTIONS]",
       .paragraphs = {"Every submitter may then run the job's spec again, with the files that its "
                      "owner uploaded, and name its checkpoints in resume_from and init_from. "
                      "Its environment, logs and secrets stay private, and only the owner may "
                      "change the job or write to its checkpoint directory."},
       .examples = {{"muster admin share train-x7k2", "share a job"},
                    {"muster admin share train-x7k2 --undo", "take that back"}}});
  auto flags = std::make_shared<ShareFlags>();
  share.add_option("JOB", flags->job_id, "Job id or name, or a unique prefix of one")->required();
  share.add_flag("--undo", flags->undo, "Do not share the job any longer");
  SetAction(share, context, flags, Share);
}

}  // namespace

void AddAdminVerbs(CLI::App& app, Context& context) {
  Verb& group = AddVerb(
      app, "admin", kNodeVerbs,
      {.summary = "Repair the cluster and share jobs: recover, share", .usage = "VERB [OPTIONS]"});
  group.require_subcommand(1);
  AddShare(group, context);
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
  SetAction(recover, context, request, Recover);
}

}  // namespace muster::cli
