// What is random in a step: which elements dropout drops, and which residual branches stochastic
// depth leaves out. Both are pure functions of the step and of places in the model and the global
// batch: they do not depend on how many ranks share the batch.
#ifndef MUSTER_KERNELS_DROPOUT_H_
#define MUSTER_KERNELS_DROPOUT_H_

#include <cstdint>

#include "kernels/data_type.h"
#include "kernels/host_device.h"
#include "kernels/philox.h"

namespace muster::kernels {

// What differs from one pass to the next. Kernels read it from the device's memory, so that their
// calls are the same in every step.
struct RandomDraw {
  PhiloxKey key{};         // of (seed, step)
  uint64_t first_row = 0;  // in the global batch, of the pass's first row
};

struct DropoutMask {
  uint32_t layer = 0;     // which dropout of the model
  float probability = 0;  // of an element to become zero; [0, 1)
};

// The Philox counter that decides elements 4 * block to 4 * block + 3 of a global row; an element
// is dropped where Uniform01 of its word is below the probability.
MUSTER_HOST_DEVICE constexpr PhiloxCounter DropoutCounter(uint32_t layer, uint64_t row,
                                                          uint32_t block) {
  return {block, static_cast<uint32_t>(row), static_cast<uint32_t>(row >> 32), layer};
}

// x [rows, columns] of `type` -> y like x: 0 or x / (1 - probability). Forward and, on gradients,
// backward. `draw` is where the arrays are. y may be x.
using Dropout = void(DataType type, const DropoutMask& mask, const RandomDraw* draw, int64_t rows,
                     int64_t columns, const void* x, void* y);

// A residual branch under stochastic depth.
struct BlockDraw {
  uint32_t node = 0;       // of the model: no dropout's layer, nor another block's
  int32_t around = -1;     // the block, one behind this, whose branch this one lies in; -1: none
  double probability = 0;  // of being dropped; [0, 1)
};

struct BlockState {
  float factor = 1;  // of the branch: 1 / (1 - probability), or 0 where it is dropped
  float active = 1;  // 0 where this branch or one that it lies in is dropped, else 1
};

// Of one step alone, not of those that it lies in.
MUSTER_HOST_DEVICE constexpr bool IsDropped(const BlockDraw& block, const PhiloxKey& key) {
  // A counter that no dropout uses: those have the numbers of other nodes.
  const uint32_t word = Philox4x32({0, 0, 0, block.node}, key)[0];
  return static_cast<double>(Uniform01(word)) < block.probability;
}

// What DrawBlocks writes for one of `blocks`.
MUSTER_HOST_DEVICE constexpr BlockState DrawnState(const BlockDraw* blocks, int64_t block,
                                                   const PhiloxKey& key) {
  BlockState state;
  if (IsDropped(blocks[block], key)) {
    state.factor = 0;
  } else {
    state.factor = static_cast<float>(1.0 / (1.0 - blocks[block].probability));
  }
  for (int64_t i = block; i >= 0; i = blocks[i].around) {
    if (IsDropped(blocks[i], key)) state.active = 0;
  }
  return state;
}

// blocks [count], draw -> states [count].
using DrawBlocks = void(const RandomDraw* draw, int64_t count, const BlockDraw* blocks,
                        BlockState* states);

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_DROPOUT_H_
