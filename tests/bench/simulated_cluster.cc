// Keeps simulated nodes connected to a coordinator until standard input ends.
//
//   bazel-bin/tests/bench/simulated_cluster --coordinator=HOST:PORT --nodes=1000 --ranks-per-node=8
//
// Prints `connected` when the coordinator has welcomed all of them. The nodes send heartbeats and
// report the ranks of the job that was launched last on each as running, until it is stopped; they
// reconnect. For each line of input, prints the longest time in seconds that a heartbeat has waited
// for its acknowledgement since the last one; after the line `reconnect`, also `connected` when all
// nodes have been welcomed once more.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <string>

#include "absl/time/time.h"
#include "tests/bench/simulated_nodes.h"

namespace {

bool AwaitWelcomes(muster::bench::SimulatedNodes& nodes) {
  const auto welcomed = nodes.Await(muster::bench::Milestone::kWelcomed, absl::Minutes(2));
  if (!welcomed.ok()) {
    fprintf(stderr, "simulated_cluster: %s\n", welcomed.status().ToString().c_str());
    return false;
  }
  printf("connected\n");
  fflush(stdout);
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  muster::bench::SimulatedNodesOptions options;
  options.reconnect = true;
  CLI::App app("Keep simulated nodes connected to a coordinator until standard input ends");
  app.add_option("--coordinator", options.coordinator, "gRPC address of the coordinator")
      ->required();
  app.add_option("--nodes", options.nodes, "number of nodes");
  app.add_option("--ranks-per-node", options.ranks_per_node, "slots of each node");
  app.add_option("--connections", options.connections, "connections of all nodes; 0: one each");
  CLI11_PARSE(app, argc, argv);
  muster::bench::SimulatedNodes nodes(options);
  nodes.Connect();
  if (!AwaitWelcomes(nodes)) return 1;
  for (std::string line; std::getline(std::cin, line);) {
    printf("%.3f\n", absl::ToDoubleSeconds(nodes.TakeLongestHeartbeat()));
    fflush(stdout);
    if (line != "reconnect") continue;
    nodes.ExpectReconnection();
    if (!AwaitWelcomes(nodes)) return 1;
  }
  return 0;
}
