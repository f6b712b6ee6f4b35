// Gives every value of a program its place in one block of memory.
#ifndef MUSTER_WORKER_NN_MEMORY_H_
#define MUSTER_WORKER_NN_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/nn/gradient_flow.h"
#include "worker/nn/program.h"

namespace muster::nn {

struct PlacedMemory {
  std::unique_ptr<char, decltype(&std::free)> arena{nullptr, &std::free};
  size_t arena_bytes = 0;
  void* workspace = nullptr;
  int32_t* labels = nullptr;  // max_rows
  // By operation; empty without training.
  std::vector<std::vector<Contribution>> contributions;
};

// Sets the data and gradient of every tensor and the saved bytes of every operation.
// RESOURCE_EXHAUSTED.
absl::StatusOr<PlacedMemory> PlaceMemory(const Program& program, uint32_t max_rows, bool training);

}  // namespace muster::nn

#endif  // MUSTER_WORKER_NN_MEMORY_H_
