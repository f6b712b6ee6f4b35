// Assigns memory in one arena to every value of a program.
//
// With several slots, values that are kept from forward to backward and values that cross between
// stages exist once per slot; values that live within one pass exist once.
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

// An output that is not kept from forward to backward: its producer computes it again, at another
// address, before backward first reads it.
struct Recomputation {
  Operation* producer = nullptr;
  void* kept = nullptr;   // address in forward
  void* again = nullptr;  // address in backward
};

// A buffer that every slot has, and the callback that receives its address in the selected slot.
struct SlotPlace {
  size_t offset = 0;  // from the start of the slot
  std::function<void(char*)> assign;
};

struct PlacedMemory {
  kernels::DeviceMemory arena;
  size_t slot_bytes = 0;
  // Slots are contiguous at the start of the arena. Empty with one slot, whose buffers share the
  // arena with all others and never move.
  std::vector<SlotPlace> slot_places;
  void* workspace = nullptr;
  kernels::LossResult* loss = nullptr;
  // Pointers into the selected slot:
  int32_t* labels = nullptr;  // [max_batch]
  kernels::RandomDraw* draw = nullptr;
  // One per stochastic block of the program, in their order.
  kernels::BlockDraw* blocks = nullptr;
  kernels::BlockState* block_states = nullptr;  // states in the selected slot
  // By operation; empty without training.
  std::vector<std::vector<Contribution>> contributions;
  // By the operation whose backward they precede; empty without recompute_activations.
  std::vector<std::vector<Recomputation>> recomputations;

  // Moves all pointers that PlaceMemory set to the slot's buffers. Allocates nothing.
  void SelectSlot(uint32_t slot);
};

// Sets the data and gradient of every tensor, the saved bytes of every operation and the state of
// every block to the first slot's. `program` must not move or be destroyed before the result.
// Errors: RESOURCE_EXHAUSTED.
absl::StatusOr<std::unique_ptr<PlacedMemory>> PlaceMemory(const Program& program,
                                                          const CompileOptions& options);

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_GRAPH_MEMORY_H_
