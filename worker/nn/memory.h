// Gives every value of a program its place in one block of memory.
#ifndef MUSTER_WORKER_NN_MEMORY_H_
#define MUSTER_WORKER_NN_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "kernels/dropout.h"
#include "kernels/loss_result.h"
#include "worker/nn/gradient_flow.h"
#include "worker/nn/plan.h"
#include "worker/nn/program.h"

namespace muster::nn {

// An output that is not kept from forward to backward: before backward first reads it, its producer
// computes it again, in another place.
struct Recomputation {
  Operation* producer = nullptr;
  void* kept = nullptr;  // where it lies in forward
  void* again = nullptr;
};

struct PlacedMemory {
  kernels::DeviceMemory arena;
  void* workspace = nullptr;
  int32_t* labels = nullptr;  // max_rows
  kernels::LossResult* loss = nullptr;
  kernels::RandomDraw* draw = nullptr;
  // Of the program's blocks, in their order.
  kernels::BlockDraw* blocks = nullptr;
  kernels::BlockState* block_states = nullptr;
  // By operation; empty without training.
  std::vector<std::vector<Contribution>> contributions;
  // By the operation before whose backward they happen; empty without recompute_activations.
  std::vector<std::vector<Recomputation>> recomputations;
};

// Sets the data and gradient of every tensor, the saved bytes of every operation and the state of
// every block.
// RESOURCE_EXHAUSTED.
absl::StatusOr<PlacedMemory> PlaceMemory(const Program& program, const CompileOptions& options);

}  // namespace muster::nn

#endif  // MUSTER_WORKER_NN_MEMORY_H_
