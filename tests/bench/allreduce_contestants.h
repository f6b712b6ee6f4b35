// Ways to all-reduce, side by side in one rank's process.
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
  std::string backend = "cpu";  // cpu, mpi, nccl
  uint32_t ranks = 2;
  uint32_t nodes = 1;  // that the ranks stand for, equally many on each
  size_t max_bytes = 0;
  // All ranks on the first GPU, which NCCL takes for as many hosts'.
  bool share_gpu = false;
  // A library in place of NCCL, with streams of the host in place of a GPU's; empty: neither.
  std::string nccl_stand_in;
  std::string gloo_directory;  // where the ranks of Gloo's own meet
};

// All-reduces `count` floats of a buffer that it owns, in place, so many times.
struct Contestant {
  std::string name;
  std::function<absl::Status(size_t count, int repeats)> run;
};

// A rank's contestants, and what they stand on.
class Contestants {
 public:
  virtual ~Contestants() = default;
  // The others are compared with the first.
  virtual const std::vector<Contestant>& list() const = 0;
};

// cpu: Gloo's own ring; ours over Gloo's transport; on one node shared memory, from the heap and
// from the communicator's own memory; on several, the hierarchy of both. mpi:
// ours over Gloo's transport, shared memory and MPI, from the heap. nccl, with GPU `rank` of
// the machine, or the first one: on several nodes with hierarchical off and on, else off alone.
// Blocks until all ranks have called. `store` outlives it.
absl::StatusOr<std::unique_ptr<Contestants>> MakeContestants(const ContestOptions& options,
                                                             uint32_t rank,
                                                             collectives::KeyStore* store);

}  // namespace muster::bench

#endif  // MUSTER_TESTS_BENCH_ALLREDUCE_CONTESTANTS_H_
