// The random decisions of a step: the elements that dropout drops, and the residual branches that
// stochastic depth drops. Both are pure functions of the step and of positions in the model and the
// global batch, independent of the number of ranks.
#ifndef MUSTER_KERNELS_DROPOUT_H_
#define MUSTER_KERNELS_DROPOUT_H_

#include <cstdint>

#include "kernels/data_type.h"
#include "kernels/host_device.h"
#include "kernels/philox.h"

namespace muster::kernels {

// The random state of one pass. Kernels read it from device memory, so that all steps make the same
// calls.
struct RandomDraw {
  PhiloxKey key{};         // derived from (seed, step)
  uint64_t first_sample = 0;  // index of the pass's first sample in the global batch
};

struct DropoutMask {
  uint32_t layer = 0;     // identifies the dropout in the model
  float probability = 0;  // probability of a zero, in [0, 1)
};

// The Philox counter for elements 4 * block to 4 * block + 3 of a global sample; an element is
// dropped if Uniform01 of its word is below the probability.
MUSTER_HOST_DEVICE constexpr PhiloxCounter DropoutCounter(uint32_t layer, uint64_t sample,
                                                          uint32_t block) {
  return {block, static_cast<uint32_t>(sample), static_cast<uint32_t>(sample >> 32), layer};
}

// x [samples, columns] of `type` -> y like x: 0 or x / (1 - probability), for forward and, applied
// to gradients, for backward. `draw` is in the memory of the arrays. y may be x.
using Dropout = void(DataType type, const DropoutMask& mask, const RandomDraw* draw,
                     int64_t samples, int64_t columns, const void* x, void* y);

// A residual branch under stochastic depth.
struct BlockDraw {
  uint32_t node = 0;       // index in the model; differs from all dropout layers and other blocks
  int32_t around = -1;     // index of the enclosing block, greater than this one's; -1: none
  double probability = 0;  // probability of being dropped, in [0, 1)
};

struct BlockState {
  float factor = 1;  // scale of the branch: 1 / (1 - probability), or 0 if it is dropped
  float active = 1;  // 0 if this branch or an enclosing one is dropped, else 1
};

// Whether the block itself is dropped in the step; ignores enclosing blocks.
MUSTER_HOST_DEVICE constexpr bool IsDropped(const BlockDraw& block, const PhiloxKey& key) {
  // A counter that no dropout uses, because dropouts have the numbers of other nodes.
  const uint32_t word = Philox4x32({0, 0, 0, block.node}, key)[0];
  return static_cast<double>(Uniform01(word)) < block.probability;
}

// The state that DrawBlocks writes for element `block` of `blocks`.
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
