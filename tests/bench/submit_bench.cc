// Measures the time of a submission, with its commit to the store, while many jobs are queued.
//
//   bazel build //tests/bench:submit_bench    (also builds the coordinator)
//   bazel-bin/tests/bench/submit_bench [--nodes=1000] [--slots=8] [--queued=10000]
//   [--measured=2000]
//
// A real coordinator with SQLite and simulated workers run on this machine. One job takes all
// slots; then jobs of one slot are submitted one after the other over an open connection. `queued`
// of them fill the queue, the times of the next `measured` are reported.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/time/now.h"
#include "common/time/time.h"
#include "proto/muster/v1/job.pb.h"
#include "tests/bench/cluster_client.h"
#include "tests/bench/daemon_process.h"
#include "tests/bench/percentile.h"
#include "tests/bench/simulated_nodes.h"

namespace muster::bench {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);
constexpr uint32_t kConnections = 16;

struct Flags {
  uint32_t nodes = 1000;
  uint32_t slots = 8;
  uint32_t queued = 10'000;
  uint32_t measured = 2000;
};

v1::JobSpec MakeSpec(uint32_t nodes, uint32_t ranks_per_node) {
  v1::JobSpec spec;
  spec.set_name("submit-bench");
  spec.add_command("/bin/true");
  spec.mutable_resources()->mutable_nodes()->set_min(nodes);
  spec.mutable_resources()->mutable_nodes()->set_max(nodes);
  spec.mutable_resources()->set_ranks_per_node(ranks_per_node);
  return spec;
}

absl::Status Run(const Flags& flags) {
  ASSIGN_OR_RETURN(const auto directory, TemporaryDirectory::Make());
  ASSIGN_OR_RETURN(
      const auto coordinator,
      StartCoordinator(BuiltProgram("coordinator/muster-coordinator"), directory->path()));
  SimulatedNodes nodes({.coordinator = coordinator->address("grpc"),
                        .nodes = flags.nodes,
                        .ranks_per_node = flags.slots,
                        .connections = kConnections});
  nodes.Connect();
  RETURN_IF_ERROR(nodes.Await(Milestone::kWelcomed, kPatience).status());
  ClusterClient client(coordinator->address("grpc"));
  RETURN_IF_ERROR(client.AwaitNodes(static_cast<int>(flags.nodes), kPatience));
  nodes.ExpectJob(std::nullopt);
  RETURN_IF_ERROR(client.Submit(MakeSpec(flags.nodes, flags.slots)).status());
  RETURN_IF_ERROR(nodes.Await(Milestone::kLaunched, kPatience).status());

  std::vector<double> milliseconds;
  for (uint32_t i = 0; i < flags.queued + flags.measured; ++i) {
    const SteadyTime start = Now().steady;
    RETURN_IF_ERROR(client.Submit(MakeSpec(1, 1)).status());
    if (i >= flags.queued) {
      milliseconds.push_back(absl::ToDoubleMilliseconds(Now().steady - start));
    }
  }
  printf(
      "%u submissions with %u to %u queued jobs on %u busy nodes of %u slots: median %.2f ms, 99 "
      "%% %.2f ms, most %.2f ms\n",
      flags.measured, flags.queued, flags.queued + flags.measured, flags.nodes, flags.slots,
      Percentile(milliseconds, 0.5), Percentile(milliseconds, 0.99), Percentile(milliseconds, 1));
  printf("memory of the coordinator: %.1f MB\n",
         static_cast<double>(coordinator->ResidentBytes()) / 1e6);
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Measure submissions while many jobs are queued.");
  app.add_option("--nodes", flags.nodes, "simulated nodes");
  app.add_option("--slots", flags.slots, "slots per node");
  app.add_option("--queued", flags.queued, "jobs that are queued first");
  app.add_option("--measured", flags.measured, "submissions that are timed");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = Run(flags);
  if (!status.ok()) fprintf(stderr, "submit_bench: %s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace muster::bench

int main(int argc, char** argv) { return muster::bench::Main(argc, argv); }
