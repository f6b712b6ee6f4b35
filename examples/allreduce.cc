// An example of the process-group library: runs all-reduces, checks the sums and prints the
// throughput. As a job on two nodes:
//
//   muster run deploy/examples/allreduce.yaml -- $PWD/bazel-bin/examples/allreduce
//
// or by hand, with two processes on one machine:
//
//   export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500
//   RANK=0 bazel-bin/examples/allreduce & RANK=1 bazel-bin/examples/allreduce
//
// or as an MPI program:
//
//   muster local --ranks-per-node 2 --launcher mpi -- ./allreduce_mpi --backend=mpi
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/status.h"
#include "common/time/now.h"
#include "common/time/time.h"
#include "process_group/process_group.h"
#include "process_group/report_failure.h"

namespace {

struct Flags {
  muster::ProcessGroupOptions group;
  uint32_t elements = 1 << 20;
  uint32_t rounds = 20;
};

absl::Status Run(const Flags& flags) {
  // --address replaces the variables of the environment.
  ASSIGN_OR_RETURN(const auto group, flags.group.address.empty()
                                         ? muster::ProcessGroup::InitFromEnvironment(flags.group)
                                         : muster::ProcessGroup::Init(flags.group));
  // Each rank contributes its rank plus one.
  const float own = static_cast<float>(group->rank() + 1);
  const float sum = static_cast<float>(group->size() * (group->size() + 1) / 2);
  std::vector<float> data(flags.elements);
  absl::Duration time;
  for (uint32_t round = 0; round < flags.rounds; ++round) {
    data.assign(data.size(), own);
    RETURN_IF_ERROR(group->Barrier());
    const muster::SteadyTime start = muster::SteadyNow();
    RETURN_IF_ERROR(group->AllReduce(absl::MakeSpan(data)));
    time += muster::SteadyNow() - start;
    for (const float value : data) {
      if (value != sum) return absl::InternalError("an all-reduced value is wrong");
    }
  }
  const double bytes = static_cast<double>(data.size()) * sizeof(float) * flags.rounds;
  std::printf("rank %u of %u (%u of %u on its host), %s: %u sums of %u elements, %.3f GB/s\n",
              group->rank(), group->size(), group->local_rank(), group->local_size(),
              std::string(group->backend()).c_str(), flags.rounds, flags.elements,
              bytes / absl::ToDoubleNanoseconds(time));
  return group->Barrier();
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Run all-reduces among the ranks of a process group.");
  app.add_option("--elements", flags.elements, "number of float elements")->capture_default_str();
  app.add_option("--rounds", flags.rounds)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--backend", flags.group.backend)->capture_default_str();
  app.add_option(
      "--address", flags.group.address,
      "tcp://HOST:PORT of rank 0 (default: from RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT)");
  app.add_option("--rank", flags.group.rank, "rank; with --address");
  app.add_option("--world-size", flags.group.world_size, "number of ranks; with --address");
  double timeout_s = absl::ToDoubleSeconds(flags.group.timeout);
  app.add_option("--timeout", timeout_s, "seconds without any progress after which to fail")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  flags.group.timeout = absl::Seconds(timeout_s);
  const absl::Status status = Run(flags);
  if (status.ok()) return 0;
  muster::ReportFailure(status);
  std::fprintf(stderr, "allreduce: %s\n", std::string(status.message()).c_str());
  return 1;
}
