// `muster node`.
#include <functional>
#include <optional>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "cli/context.h"
#include "cli/exit_code.h"
#include "cli/follow/signals.h"
#include "cli/output/json.h"
#include "cli/text/node_text.h"
#include "cli/verb.h"
#include "common/status.h"
#include "common/time/now.h"
#include "common/time/proto_time.h"
#include "nlohmann/json.hpp"

namespace muster::cli {

void AddNodeTokenVerb(CLI::App& node, Context& context);  // node_token.cc

namespace {

// Time between two looks at a self-test.
constexpr absl::Duration kTestPoll = absl::Milliseconds(200);

using NodeCall = std::function<absl::StatusOr<v1::Node>(ClusterClient&, const std::string& name)>;

int ListNodes(Context& context) {
  ClusterClient client(context.client_options());
  const absl::StatusOr<v1::ListNodesResponse> response = client.ListNodes();
  if (!response.ok()) return context.Fail(response.status());
  const std::vector<v1::Node> nodes(response->nodes().begin(), response->nodes().end());
  context.ShowList(
      nodes, [](const v1::Node& node) { return node.name(); }, ToJson,
      "no nodes; start muster-worker on a machine to add it",
      [&] { return NodeTable(nodes, context.output == Output::kWide); });
  return kExitSuccess;
}

int DescribeNode(Context& context, const std::string& name) {
  ClusterClient client(context.client_options());
  const absl::StatusOr<v1::Node> node = client.GetNode(name);
  if (!node.ok()) return context.Fail(node.status());
  context.Show(node->name(), ToJson(*node), NodeDescription(*node));
  return kExitSuccess;
}

// Applies `call` to each node, and continues after a failure. `sentence`: the line that is printed
// about a node.
int ForEach(Context& context, const std::vector<std::string>& names, const NodeCall& call,
            const std::function<std::string(const v1::Node&)>& sentence = NodeSentence) {
  ClusterClient client(context.client_options());
  std::vector<v1::Node> nodes;
  const int exit_code = context.ForEach(
      names, [&](const std::string& name) -> absl::StatusOr<nlohmann::ordered_json> {
        ASSIGN_OR_RETURN(nodes.emplace_back(), call(client, name));
        return ToJson(nodes.back());
      });
  if (context.output == Output::kWide && !nodes.empty()) {
    context.console.Out(NodeTable(nodes, /*wide=*/true));
  } else if (!context.structured()) {
    for (const v1::Node& node : nodes) {
      const std::string line = context.output == Output::kName ? node.name() : sentence(node);
      context.console.Out(line + "\n");
    }
  }
  return exit_code;
}

// Values of the options of verbs for several nodes.
struct NodeFlags {
  std::vector<std::string> names;
  std::string reason;
  std::optional<absl::Duration> deadline;
  absl::Duration timeout = absl::Minutes(2);
  bool force = false;
  bool confirmed = false;
};

struct NodesVerb {
  Verb& verb;
  std::shared_ptr<NodeFlags> flags;
};

// Adds a verb that applies `call` to each node that is named.
NodesVerb AddNodesVerb(
    CLI::App& group, Context& context, const std::string& name, Manual manual,
    std::function<absl::StatusOr<v1::Node>(ClusterClient&, const std::string&, const NodeFlags&)>
        call,
    const std::function<std::string(const v1::Node&)>& sentence = NodeSentence) {
  Verb& verb = AddVerb(group, name, kNodeVerbs, std::move(manual));
  auto flags = std::make_shared<NodeFlags>();
  verb.add_option("NODE", flags->names, "Names of nodes")->required();
  SetAction(verb, context, flags, [call, sentence](Context& context, const NodeFlags& flags) {
    const auto call_for = [&](ClusterClient& client, const std::string& node) {
      return call(client, node, flags);
    };
    return ForEach(context, flags.names, call_for, sentence);
  });
  return {verb, flags};
}

void AddReason(const NodesVerb& nodes) {
  nodes.verb.add_option("--reason", nodes.flags->reason, "Reason, shown with the node")
      ->type_name("TEXT");
}

void AddDrain(CLI::App& group, Context& context) {
  const NodesVerb drain = AddNodesVerb(
      group, context, "drain",
      {.summary = "Cordon nodes and requeue their jobs",
       .usage = "NODE... [OPTIONS]",
       .paragraphs = {"Every job with ranks on the node is requeued at the head of its priority, "
                      "as by `muster requeue`. The node is empty once its ranks have stopped, "
                      "which takes at most their jobs' grace periods, or --deadline if it ends "
                      "earlier."},
       .examples = {{"muster node drain gpu-03 --reason 'kernel update'",
                     "the node is empty once `muster node describe gpu-03` shows only free slots"},
                    {"muster node drain gpu-03 --deadline 2m",
                     "kill ranks that still run after 2 minutes"}}},
      [](ClusterClient& client, const std::string& name, const NodeFlags& flags) {
        v1::DrainNodeRequest request;
        request.set_name(name);
        request.set_reason(flags.reason);
        if (flags.deadline.has_value()) *request.mutable_deadline() = ToProto(*flags.deadline);
        return client.Call<v1::Node>(request);
      });
  AddReason(drain);
  AddDurationOption(drain.verb, "--deadline", drain.flags->deadline,
                    "Kill ranks that still run after this time (default: when their grace periods "
                    "end)");
}

// Starts the self-test of each node and waits until it has ended.
int TestNodes(Context& context, const NodeFlags& flags) {
  Stopper stopper;
  const SignalWatcher watcher([&stopper](int) { stopper.Stop(); });
  const SteadyTime give_up = Now().steady + flags.timeout;
  int exit_code = kExitSuccess;
  const auto test = [&](ClusterClient& client,
                        const std::string& name) -> absl::StatusOr<v1::Node> {
    ASSIGN_OR_RETURN(v1::Node node, client.CallForNode<v1::TestNodeRequest>(name));
    while (node.self_test().running()) {
      if (!stopper.SleepFor(kTestPoll)) return absl::CancelledError("interrupted");
      if (Now().steady > give_up) {
        return absl::DeadlineExceededError(absl::StrCat(name, ": the self-test did not end within ",
                                                        absl::FormatDuration(flags.timeout),
                                                        "; see muster node describe ", name));
      }
      ASSIGN_OR_RETURN(node, client.GetNode(name));
    }
    if (!SelfTestSucceeded(node)) exit_code = kExitFailure;
    return node;
  };
  const int status = ForEach(context, flags.names, test, SelfTestSentence);
  return status != kExitSuccess ? status : exit_code;
}

void AddTest(CLI::App& group, Context& context) {
  Verb& verb =
      AddVerb(group, "test", kNodeVerbs,
              {.summary = "Test whether nodes can run ranks",
               .usage = "NODE... [OPTIONS]",
               .paragraphs =
                   {"Runs the self-test that a node also runs when it registers: it writes to the "
                    "data directory, and allocates and checks memory of the host and of each "
                    "GPU. A node that the coordinator has cordoned because of failed launches "
                    "returns when its self-test succeeds."},
               .exits = {{"0", "All checks of all nodes succeeded"}, {"1", "A check failed"}},
               .examples = {{"muster node test gpu-03", "after its disk was cleared"}}});
  auto flags = std::make_shared<NodeFlags>();
  verb.add_option("NODE", flags->names, "Names of nodes")->required();
  AddDurationOption(verb, "--timeout", flags->timeout, "Give up after this long, with status 75")
      ->default_str("2m");
  SetAction(verb, context, flags, TestNodes);
}

void AddChangingVerbs(CLI::App& group, Context& context) {
  AddReason(AddNodesVerb(
      group, context, "cordon",
      {.summary = "Keep nodes from receiving new ranks",
       .usage = "NODE... [OPTIONS]",
       .paragraphs = {"Running ranks continue. A node stays cordoned until `muster node "
                      "uncordon`, through restarts of the worker and the coordinator."},
       .examples = {{"muster node cordon gpu-03 --reason 'ECC errors'",
                     "before maintenance of a node"}}},
      [](ClusterClient& client, const std::string& node, const NodeFlags& flags) {
        v1::CordonNodeRequest request;
        request.set_name(node);
        request.set_reason(flags.reason);
        return client.Call<v1::Node>(request);
      }));
  AddDrain(group, context);
  AddNodesVerb(group, context, "uncordon",
               {.summary = "Allow ranks on nodes again",
                .usage = "NODE... [OPTIONS]",
                .paragraphs = {"Ends a cordon, and the time for which failed launches keep ranks "
                               "from a node."},
                .examples = {{"muster node uncordon gpu-03", "after cordon or drain"}}},
               [](ClusterClient& client, const std::string& node, const NodeFlags&) {
                 return client.CallForNode<v1::UncordonNodeRequest>(node);
               });
}

void AddRemove(CLI::App& group, Context& context) {
  const NodesVerb remove = AddNodesVerb(
      group, context, "remove",
      {.summary = "Remove nodes and revoke their certificates",
       .usage = "NODE... [OPTIONS]",
       .paragraphs = {"A node that is connected or has ranks is removed only with `--force`. The "
                      "certificates of a removed node are refused from now on; its machine joins "
                      "again with a token of `muster node token`. A node without an identity is "
                      "added again when a worker with its name starts: remove the token from the "
                      "coordinator's tokens file, too. A cordon is forgotten.",
                      "With `--force`, the session of the node ends at once, and nothing more is "
                      "started there. Its train jobs start again elsewhere at once, its command "
                      "jobs when their ranks have ended for certain, as on a node that is silent. "
                      "Until then, the node stays in the list."},
       .examples = {{"muster node remove gpu-03", "after the machine was decommissioned"},
                    {"muster node remove gpu-03 --force", "its key was stolen"}}},
      [](ClusterClient& client, const std::string& name,
         const NodeFlags& flags) -> absl::StatusOr<v1::Node> {
        // A node that has joined but never connected is not in the list.
        absl::StatusOr<v1::Node> node = client.GetNode(name);
        v1::RemoveNodeRequest request;
        request.set_name(name);
        request.set_force(flags.force);
        RETURN_IF_ERROR(client.Call<v1::RemoveNodeResponse>(request).status());
        if (node.ok()) return node;
        v1::Node joined;
        joined.set_name(name);
        return joined;
      },
      [](const v1::Node& node) { return node.name() + " removed"; });
  remove.verb.add_flag("--force", remove.flags->force,
                       "Also remove nodes that are connected or have ranks");
}

void AddLost(CLI::App& group, Context& context) {
  Verb& verb = AddVerb(
      group, "lost", kNodeVerbs,
      {.summary = "Confirm that disconnected nodes are lost",
       .usage = "NODE... --confirm [OPTIONS]",
       .paragraphs = {"The jobs with ranks on the nodes start again elsewhere. Usually the "
                      "coordinator decides this itself. It cannot where the ranks may still run: "
                      "most other nodes are not connected either, the coordinator has moved to "
                      "another machine, or the job has `on_cut_off: continue`. `muster why` names "
                      "such a wait.",
                      "Confirm only when the machine is off or its ranks have ended: otherwise two "
                      "generations of a job may run at once and overwrite each other's files."},
       .examples = {{"muster node lost gpu-03 --confirm", "after its machine was switched off"}}});
  auto flags = std::make_shared<NodeFlags>();
  verb.add_option("NODE", flags->names, "Names of nodes")->required();
  verb.add_flag("--confirm", flags->confirmed, "Confirm that the nodes' ranks have ended");
  verb.callback([&context, flags] {
    if (!flags->confirmed) {
      throw CLI::RequiredError(
          "--confirm: the ranks of the nodes must have ended, or jobs may run twice;");
    }
    context.action = [&context, flags] {
      return ForEach(
          context, flags->names,
          [](ClusterClient& client, const std::string& name) -> absl::StatusOr<v1::Node> {
            v1::ConfirmNodeLostRequest request;
            request.set_name(name);
            RETURN_IF_ERROR(client.Call<v1::ConfirmNodeLostResponse>(request).status());
            return client.GetNode(name);
          },
          [](const v1::Node& node) { return node.name() + " confirmed as lost"; });
    };
  });
}

}  // namespace

void AddNodeVerbs(CLI::App& app, Context& context) {
  Verb& group = AddVerb(app, "node", kNodeVerbs,
                        {.summary = "Manage nodes: list, describe, test, cordon, drain, uncordon, "
                                    "lost, remove, token",
                         .usage = "VERB [OPTIONS]"});
  group.require_subcommand(1);
  AddVerb(group, "list", kNodeVerbs,
          {.summary = "List nodes and their slots",
           .usage = "[OPTIONS]",
           .examples = {{"muster node list", "all nodes and their free slots"},
                        {"muster node list -o wide", "with addresses, labels and jobs"}}})
      .callback([&context] { context.action = [&context] { return ListNodes(context); }; });
  Verb& describe = AddVerb(
      group, "describe", kNodeVerbs,
      {.summary = "Show details of a node",
       .usage = "NODE [OPTIONS]",
       .examples = {{"muster node describe gpu-03", "state, slots and the jobs that use them"}}});
  auto name = std::make_shared<std::string>();
  describe.add_option("NODE", *name, "Name of the node")->required();
  SetAction(describe, context, name, DescribeNode);
  AddTest(group, context);
  AddChangingVerbs(group, context);
  AddRemove(group, context);
  AddLost(group, context);
  AddNodeTokenVerb(group, context);
}

}  // namespace muster::cli
