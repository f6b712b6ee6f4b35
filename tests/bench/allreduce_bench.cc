// All-reduce between processes of one machine: ours over shared memory, ours over Gloo's transport,
// and Gloo's own, in the same run.
//
//   bazel run //tests/bench:allreduce_bench -- --ranks=2 --rounds=5
//
// Per size: the median time over the rounds of the slowest rank's mean; algbw = bytes / time, busbw
// = algbw * 2 (n - 1) / n, as nccl-tests count. The rounds of the contestants alternate, so that
// what else runs on the machine hits them alike. "ours/Gloo" is how many times faster than Gloo's
// own.
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <stdlib.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status.h"
#include "worker/collectives/communicator.h"
#include "worker/collectives/factory.h"
#include "worker/collectives/testing.h"

namespace muster::collectives {
namespace {

constexpr size_t kLargest = 32 << 20;

struct Flags {
  uint32_t ranks = 2;
  int rounds = 5;
};

// One way to all-reduce `count` floats of a buffer that it owns, in place.
struct Contestant {
  std::string name;
  float* data = nullptr;
  std::function<absl::Status(size_t count)> run;
};

// A rank's communicators, alive while their contestants run.
struct Setup {
  std::unique_ptr<Communicator> shm;
  std::unique_ptr<Communicator> ring;
  std::unique_ptr<Allocation> in_segment;
  std::vector<float> heap = std::vector<float>(kLargest / sizeof(float));
  std::shared_ptr<::gloo::rendezvous::Context> gloo;
  std::vector<Contestant> contestants;
};

absl::StatusOr<std::unique_ptr<Communicator>> Create(const std::string& backend, uint32_t rank,
                                                     uint32_t size, KeyStore* store) {
  GroupOptions options;
  options.name = backend;
  options.id = absl::StrCat("bench-", getppid(), "-", backend);
  options.rank = rank;
  options.size = size;
  for (uint32_t i = 0; i < size; ++i) options.members.push_back(i);
  options.store = store;
  options.interface_address = "127.0.0.1";
  return CreateCommunicator(backend, options);
}

std::shared_ptr<::gloo::rendezvous::Context> CreateGloo(uint32_t rank, uint32_t size,
                                                        const std::string& directory) {
  auto context =
      std::make_shared<::gloo::rendezvous::Context>(static_cast<int>(rank), static_cast<int>(size));
  ::gloo::rendezvous::FileStore store(directory);
  auto device = ::gloo::transport::tcp::CreateDevice(::gloo::transport::tcp::attr("127.0.0.1"));
  context->connectFullMesh(store, device);
  return context;
}

std::function<absl::Status(size_t)> OurAllReduce(Communicator* communicator, float* data) {
  return [=](size_t count) {
    return communicator->AllReduce(data, data, count, DataType::kFloat32, ReduceOp::kSum)->Wait();
  };
}

absl::Status MakeContestants(uint32_t rank, uint32_t size, KeyStore* store,
                             const std::string& gloo_directory, Setup* setup) {
  ASSIGN_OR_RETURN(setup->shm, Create("shm", rank, size, store));
  ASSIGN_OR_RETURN(setup->ring, Create("gloo", rank, size, store));
  ASSIGN_OR_RETURN(setup->in_segment, setup->shm->Allocate(kLargest));
  setup->gloo = CreateGloo(rank, size, gloo_directory);
  auto* const segment = static_cast<float*>(setup->in_segment->data());
  float* const heap = setup->heap.data();
  setup->contestants.push_back(
      {"gloo's own", heap, [=](size_t count) {
         ::gloo::AllreduceOptions options(setup->gloo);
         options.setAlgorithm(::gloo::AllreduceOptions::Algorithm::RING);
         options.setOutput(heap, count);
         options.setReduceFunction(
             static_cast<void (*)(void*, const void*, const void*, size_t)>(&::gloo::sum<float>));
         ::gloo::allreduce(options);
         return absl::OkStatus();
       }});
  setup->contestants.push_back({"our gloo", heap, OurAllReduce(setup->ring.get(), heap)});
  setup->contestants.push_back({"shm, heap", heap, OurAllReduce(setup->shm.get(), heap)});
  setup->contestants.push_back({"shm", segment, OurAllReduce(setup->shm.get(), segment)});
  return absl::OkStatus();
}

// Microseconds of one all-reduce in this rank.
absl::StatusOr<double> Measure(const Contestant& contestant, size_t bytes, Setup* setup) {
  const size_t count = bytes / sizeof(float);
  const int repeats = static_cast<int>(std::clamp<size_t>((64 << 20) / bytes, 4, 400));
  std::fill(contestant.data, contestant.data + count, 0.0f);
  RETURN_IF_ERROR(contestant.run(count));
  RETURN_IF_ERROR(setup->shm->Barrier()->Wait());
  const absl::Time start = absl::Now();
  for (int i = 0; i < repeats; ++i) RETURN_IF_ERROR(contestant.run(count));
  double time = absl::ToDoubleMicroseconds(absl::Now() - start) / repeats;
  RETURN_IF_ERROR(
      setup->shm->AllReduce(&time, &time, 1, DataType::kFloat64, ReduceOp::kMax)->Wait());
  return time;
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

absl::Status RunRank(const Flags& flags, uint32_t rank, KeyStore* store,
                     const std::string& gloo_directory) {
  Setup setup;
  RETURN_IF_ERROR(MakeContestants(rank, flags.ranks, store, gloo_directory, &setup));
  if (rank == 0) {
    std::printf("%10s  %-10s %12s %12s %12s %10s\n", "BYTES", "WHO", "TIME us", "ALGBW GB/s",
                "BUSBW GB/s", "ours/Gloo");
  }
  for (size_t bytes = 4 << 10; bytes <= kLargest; bytes *= 2) {
    std::vector<std::vector<double>> times(setup.contestants.size());
    for (int round = 0; round < flags.rounds; ++round) {
      for (size_t i = 0; i < times.size(); ++i) {
        ASSIGN_OR_RETURN(const double time, Measure(setup.contestants[i], bytes, &setup));
        times[i].push_back(time);
      }
    }
    if (rank != 0) continue;
    const double gloo = Median(times[0]);
    for (size_t i = 0; i < times.size(); ++i) {
      const double time = Median(times[i]);
      const double algbw = static_cast<double>(bytes) / time / 1e3;
      std::printf("%10zu  %-10s %12.1f %12.2f %12.2f %10.1f\n", bytes,
                  setup.contestants[i].name.c_str(), time, algbw,
                  algbw * 2 * (flags.ranks - 1) / flags.ranks, gloo / time);
    }
    std::fflush(stdout);
  }
  return setup.shm->Barrier()->Wait();
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("All-reduce: ours against Gloo's own");
  app.add_option("--ranks", flags.ranks, "processes")->check(CLI::Range(2, 64));
  app.add_option("--rounds", flags.rounds, "of which the median counts")
      ->check(CLI::Range(1, 1000));
  CLI11_PARSE(app, argc, argv);
  FileKeyStore store;
  char directory[] = "/tmp/muster-allreduce-bench-XXXXXX";
  if (mkdtemp(directory) == nullptr) {
    std::perror("mkdtemp");
    return 1;
  }
  const std::vector<std::string> results = RunRankProcesses(
      flags.ranks, [&](uint32_t rank) { return RunRank(flags, rank, &store, directory); },
      absl::Minutes(10));
  std::filesystem::remove_all(directory);
  int status = 0;
  for (const std::string& result : results) {
    if (result.empty()) continue;
    std::fprintf(stderr, "%s\n", result.c_str());
    status = 1;
  }
  return status;
}

}  // namespace
}  // namespace muster::collectives

int main(int argc, char** argv) { return muster::collectives::Main(argc, argv); }
