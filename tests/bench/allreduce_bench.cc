// Compares all-reduce implementations between processes of one machine in one run: on CPUs Muster
// over shared memory, Muster over Gloo's transport, and Gloo itself; on GPUs NCCL with and without
// a hierarchy of nodes.
//
//   bazel run //tests/bench:allreduce_bench -- --ranks=2 --rounds=5
//   bazel run //tests/bench:allreduce_bench -- --backend=nccl --ranks=8 --nodes=2 --max-bytes=1GiB
//
// Per size: the median over the rounds of the slowest rank's mean time; algbw = bytes / time, busbw
// = algbw * 2 (n - 1) / n, as in nccl-tests. The rounds of the contestants alternate, so that other
// load on the machine affects them equally. "FASTER" is the speedup over the first.
#include <stdlib.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "collectives/communicator.h"
#include "collectives/factory.h"
#include "collectives/testing.h"
#include "common/status.h"
#include "glog/logging.h"
#include "spec/units.h"
#include "tests/bench/allreduce_contestants.h"
#include "tests/bench/percentile.h"

namespace muster::bench {
namespace {

using collectives::Communicator;
using collectives::DataType;
using collectives::KeyStore;
using collectives::ReduceOp;

struct Flags {
  ContestOptions contest;
  size_t min_bytes = 0;
  int rounds = 5;
  bool json = false;
};

struct Figure {
  size_t bytes = 0;
  std::string who;
  double time_us = 0;
  double algbw = 0;  // GB/s
  double busbw = 0;
  double faster = 0;
};

// Communicator for synchronizing the measurement, independent of the measured one.
absl::StatusOr<std::unique_ptr<Communicator>> Control(uint32_t rank, uint32_t size,
                                                      KeyStore* store) {
  collectives::GroupOptions options;
  options.name = "control";
  options.id = absl::StrCat("bench-", getppid());
  options.rank = rank;
  options.size = size;
  for (uint32_t i = 0; i < size; ++i) options.members.push_back(i);
  options.store = store;
  return collectives::CreateCommunicator("shm", options);
}

// Microseconds of one all-reduce in the slowest rank.
absl::StatusOr<double> Measure(const Contestant& contestant, size_t bytes, Communicator& control) {
  const size_t count = bytes / sizeof(float);
  const int repeats = static_cast<int>(std::clamp<size_t>((64 << 20) / bytes, 4, 400));
  RETURN_IF_ERROR(contestant.run(count, 1));
  RETURN_IF_ERROR(control.Barrier()->Wait());
  const absl::Time start = absl::Now();
  RETURN_IF_ERROR(contestant.run(count, repeats));
  double time = absl::ToDoubleMicroseconds(absl::Now() - start) / repeats;
  RETURN_IF_ERROR(control.AllReduce(&time, &time, 1, DataType::kFloat64, ReduceOp::kMax)->Wait());
  return time;
}

void PrintRow(const Figure& figure) {
  std::printf("%10zu  %-12s %12.1f %12.3f %12.3f %10.1f\n", figure.bytes, figure.who.c_str(),
              figure.time_us, figure.algbw, figure.busbw, figure.faster);
  std::fflush(stdout);
}

void PrintJson(const Flags& flags, const std::vector<Figure>& figures) {
  nlohmann::ordered_json json = {{"backend", flags.contest.backend},
                                 {"ranks", flags.contest.ranks},
                                 {"nodes", flags.contest.nodes},
                                 {"rounds", flags.rounds}};
  for (const Figure& figure : figures) {
    json["figures"].push_back({{"bytes", figure.bytes},
                               {"who", figure.who},
                               {"time_us", figure.time_us},
                               {"algbw_gb_per_s", figure.algbw},
                               {"busbw_gb_per_s", figure.busbw},
                               {"faster", figure.faster}});
  }
  std::printf("%s\n", json.dump(2).c_str());
  std::fflush(stdout);
}

absl::Status RunRank(const Flags& flags, uint32_t rank, KeyStore* store) {
  const uint32_t ranks = flags.contest.ranks;
  ASSIGN_OR_RETURN(const auto control, Control(rank, ranks, store));
  ASSIGN_OR_RETURN(const auto contestants, MakeContestants(flags.contest, rank, store));
  const std::vector<Contestant>& list = contestants->list();
  const bool prints = rank == 0 && !flags.json;
  if (prints) {
    std::printf("%10s  %-12s %12s %12s %12s %10s\n", "BYTES", "WHO", "TIME us", "ALGBW GB/s",
                "BUSBW GB/s", "FASTER");
  }
  std::vector<Figure> figures;
  for (size_t bytes = flags.min_bytes; bytes <= flags.contest.max_bytes; bytes *= 2) {
    std::vector<std::vector<double>> times(list.size());
    for (int round = 0; round < flags.rounds; ++round) {
      for (size_t i = 0; i < times.size(); ++i) {
        ASSIGN_OR_RETURN(const double time, Measure(list[i], bytes, *control));
        times[i].push_back(time);
      }
    }
    const double first = Percentile(times[0], 0.5);
    for (size_t i = 0; i < times.size(); ++i) {
      Figure figure;
      figure.bytes = bytes;
      figure.who = list[i].name;
      figure.time_us = Percentile(times[i], 0.5);
      figure.algbw = static_cast<double>(bytes) / figure.time_us / 1e3;
      figure.busbw = figure.algbw * 2 * (ranks - 1) / ranks;
      figure.faster = first / figure.time_us;
      if (prints) PrintRow(figure);
      figures.push_back(figure);
    }
  }
  if (rank == 0 && flags.json) PrintJson(flags, figures);
  return control->Barrier()->Wait();
}

absl::Status Check(const Flags& flags) {
  const ContestOptions& contest = flags.contest;
  if (contest.ranks % contest.nodes != 0) {
    return absl::InvalidArgumentError("--ranks must be a multiple of --nodes");
  }
  if (flags.min_bytes < sizeof(float) || flags.min_bytes > contest.max_bytes) {
    return absl::InvalidArgumentError("--min-bytes must be from 4 to --max-bytes");
  }
  return absl::OkStatus();
}

absl::Status Run(Flags flags, const std::string& min_bytes, const std::string& max_bytes) {
  ASSIGN_OR_RETURN(flags.min_bytes, spec::ParseSize(min_bytes));
  ASSIGN_OR_RETURN(flags.contest.max_bytes, spec::ParseSize(max_bytes));
  RETURN_IF_ERROR(Check(flags));
  collectives::FileKeyStore store;
  char directory[] = "/tmp/muster-allreduce-bench-XXXXXX";
  if (mkdtemp(directory) == nullptr) return absl::ErrnoToStatus(errno, "mkdtemp");
  flags.contest.gloo_directory = directory;
  const std::vector<std::string> results = collectives::RunRankProcesses(
      flags.contest.ranks, [&](uint32_t rank) { return RunRank(flags, rank, &store); },
      absl::Minutes(10));
  std::filesystem::remove_all(directory);
  for (const std::string& result : results) {
    if (!result.empty()) return absl::InternalError(result);
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Flags flags;
  std::string min_bytes = "4KiB";
  std::string max_bytes = "32MiB";
  FLAGS_logtostderr = true;
  google::InitGoogleLogging(argv[0]);
  CLI::App app("Compare all-reduce: Muster and Gloo, or NCCL with and without a hierarchy");
  app.add_option("--backend", flags.contest.backend, "backends to compare")
      ->check(CLI::IsMember({"cpu", "nccl"}))
      ->capture_default_str();
  app.add_option("--ranks", flags.contest.ranks, "number of processes; with nccl one GPU each")
      ->check(CLI::Range(2, 64))
      ->capture_default_str();
  app.add_option("--nodes", flags.contest.nodes, "number of nodes that the ranks emulate")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--min-bytes", min_bytes, "first size; each size doubles the previous one")
      ->capture_default_str();
  app.add_option("--max-bytes", max_bytes)->capture_default_str();
  app.add_option("--rounds", flags.rounds, "number of rounds; results are medians")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--fake-nccl", flags.contest.fake_nccl,
                 "fake NCCL library, with host streams; for testing the benchmark");
  app.add_flag("--share-gpu", flags.contest.share_gpu,
               "run all ranks on the first GPU, as if on different hosts; slow, for tests");
  app.add_flag("--json", flags.json);
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = Run(flags, min_bytes, max_bytes);
  if (status.ok()) return 0;
  std::fprintf(stderr, "allreduce_bench: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace
}  // namespace muster::bench

int main(int argc, char** argv) { return muster::bench::Main(argc, argv); }
