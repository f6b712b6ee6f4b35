// All-reduce implementations to compare in one rank's process.
#ifndef MUSTER_TESTS_BENCH_ALLREDUCE_CONTESTANTS_H_
#define MUSTER_TESTS_BENCH_ALLREDUCE_CONTESTANTS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collectives/communicator.h"

namespace muster::bench {

struct ContestOptions {
  std::string backend = "cpu";  // cpu, nccl
  uint32_t ranks = 2;
  uint32_t nodes = 1;  // emulated nodes, with equal numbers of ranks
  size_t max_bytes = 0;
  // Runs all ranks on the first GPU, which NCCL accepts for ranks on different hosts.
  bool share_gpu = false;
  // Library to load instead of NCCL, with host streams instead of GPU streams; empty: real NCCL.
  std::string fake_nccl;
  std::string gloo_directory;  // rendezvous directory of upstream Gloo
};

// All-reduces `count` floats of its own buffer in place, `repeats` times.
struct Contestant {
  std::string name;
  std::function<absl::Status(size_t count, int repeats)> run;
};

// A rank's contestants and the communicators they use.
class Contestants {
 public:
  virtual ~Contestants() = default;
  // The first one is the baseline.
  virtual const std::vector<Contestant>& list() const = 0;
};

// cpu: upstream Gloo's ring; Muster over Gloo's transport; on one node shared memory, from the heap
// and from the communicator's memory; on several nodes the hierarchy of both. nccl, on GPU
// `rank` of the machine or the first one: with hierarchical off and, on several nodes, on. Blocks
// until all ranks have called. `store` must outlive it.
absl::StatusOr<std::unique_ptr<Contestants>> MakeContestants(const ContestOptions& options,
                                                             uint32_t rank,
                                                             collectives::KeyStore* store);

}  // namespace muster::bench

#endif  // MUSTER_TESTS_BENCH_ALLREDUCE_CONTESTANTS_H_
