// Keeps simulated nodes connected to a coordinator until standard input ends.
//
//   bazel-bin/tests/bench/simulated_cluster --coordinator=HOST:PORT --nodes=1000 --ranks-per-node=8
//
// Prints `connected` when the coordinator has welcomed all of them. The nodes send heartbeats and
// run nothing. For status_page_bench.py.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>

#include "absl/time/time.h"
#include "tests/bench/simulated_nodes.h"

int main(int argc, char** argv) {
  using muster::bench::Milestone;
  muster::bench::SimulatedNodesOptions options;
  CLI::App app("Keep simulated nodes connected to a coordinator until standard input ends");
  app.add_option("--coordinator", options.coordinator, "gRPC address of the coordinator")
      ->required();
  app.add_option("--nodes", options.nodes, "number of nodes");
  app.add_option("--ranks-per-node", options.ranks_per_node, "slots of each node");
  CLI11_PARSE(app, argc, argv);
  muster::bench::SimulatedNodes nodes(options);
  nodes.Connect();
  const auto welcomed = nodes.Await(Milestone::kWelcomed, absl::Minutes(1));
  if (!welcomed.ok()) {
    fprintf(stderr, "simulated_cluster: %s\n", welcomed.status().ToString().c_str());
    return 1;
  }
  printf("connected\n");
  fflush(stdout);
  std::array<char, 64> ignored;
  while (read(STDIN_FILENO, ignored.data(), ignored.size()) > 0) {
  }
  return 0;
}
