// `muster node`: the cluster's machines.
#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "cli/context.h"
#include "cli/exit_code.h"
#include "cli/node_text.h"
#include "cli/output/json.h"
#include "nlohmann/json.hpp"

namespace muster::cli {
namespace {

int ListNodes(Context& context) {
  ClusterClient client(context.client_options());
  const absl::StatusOr<v1::ListNodesResponse> response = client.ListNodes();
  if (!response.ok()) return context.Fail(response.status());
  const std::vector<v1::Node> nodes(response->nodes().begin(), response->nodes().end());
  if (context.structured()) {
    nlohmann::ordered_json array = nlohmann::ordered_json::array();
    for (const v1::Node& node : nodes) array.push_back(ToJson(node));
    context.Print(array);
  } else if (context.output == Output::kName) {
    for (const v1::Node& node : nodes) context.console.Out(absl::StrCat(node.name(), "\n"));
  } else if (nodes.empty()) {
    context.console.Note("no nodes; start muster-worker on a machine to add it");
  } else {
    context.console.Out(NodeTable(nodes, context.output == Output::kWide));
  }
  return kSuccess;
}

}  // namespace

void AddNodeVerbs(CLI::App& app, Context& context) {
  CLI::App* verb = app.add_subcommand("node", "The cluster's machines");
  verb->require_subcommand(1);
  verb->add_subcommand("list", "All nodes and their slots")->callback([&context] {
    context.action = [&context] { return ListNodes(context); };
  });
}

}  // namespace muster::cli
