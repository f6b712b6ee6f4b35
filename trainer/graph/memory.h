// Gives every value of a program its place in one block of memory.
//
// With several slots, what is kept from forward to backward has a place in each of them, and so has
// what crosses between parts of a model; all that lives within one pass, once.
#ifndef MUSTER_TRAINER_GRAPH_MEMORY_H_
#define MUSTER_TRAINER_GRAPH_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "kernels/dropout.h"
#include "kernels/loss_result.h"
#include "trainer/graph/gradient_flow.h"
#include "trainer/graph/plan.h"
#include "trainer/graph/program.h"

namespace muster::nn {

// An output that is not kept from forward to backward: before backward first reads it, its producer
// computes it again, in another place.
struct Recomputation {
  Operation* producer = nullptr;
  void* kept = nullptr;  // where it lies in forward
  void* again = nullptr;
};

// One place of every slot, and who is told where it lies in the one that is selected.
struct SlotPlace {
  size_t offset = 0;  // from the slot's start
  std::function<void(char*)> assign;
};

struct PlacedMemory {
  kernels::DeviceMemory arena;
  size_t slot_bytes = 0;
  // Slots lie at the arena's start, one behind the other. Empty where there is only one: then its
  // places are among all others, and stay.
  std::vector<SlotPlace> slot_places;
  void* workspace = nullptr;
  kernels::LossResult* loss = nullptr;
  // Of the slot that is selected.
  int32_t* labels = nullptr;  // max_rows
  kernels::RandomDraw* draw = nullptr;
  // Of the program's blocks, in their order.
  kernels::BlockDraw* blocks = nullptr;
  kernels::BlockState* block_states = nullptr;  // of the slot
  // By operation; empty without training.
  std::vector<std::vector<Contribution>> contributions;
  // By the operation before whose backward they happen; empty without recompute_activations.
  std::vector<std::vector<Recomputation>> recomputations;

  // Sets all that PlaceMemory set to the slot's places. Allocates nothing.
  void SelectSlot(uint32_t slot);
};

// Sets the data and gradient of every tensor, the saved bytes of every operation and the state of
// every block: to the first slot's. The program stays where it is.
// RESOURCE_EXHAUSTED.
absl::StatusOr<std::unique_ptr<PlacedMemory>> PlaceMemory(const Program& program,
                                                          const CompileOptions& options);

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_GRAPH_MEMORY_H_
