// Dropout whose mask is a pure function of the sample's place in the global batch: it does not
// depend on how many ranks share the batch.
#ifndef MUSTER_KERNELS_DROPOUT_H_
#define MUSTER_KERNELS_DROPOUT_H_

#include <cstdint>

#include "kernels/data_type.h"
#include "kernels/philox.h"

namespace muster::kernels {

struct DropoutMask {
  PhiloxKey key{};         // of (seed, step)
  uint32_t layer = 0;      // which dropout of the model
  uint64_t first_row = 0;  // in the global batch, of the call's first row
  float probability = 0;   // of an element to become zero; [0, 1)
};

// The Philox counter that decides elements 4 * block to 4 * block + 3 of a global row; an element
// is dropped where Uniform01 of its word is below the probability.
constexpr PhiloxCounter DropoutCounter(const DropoutMask& mask, uint64_t row, uint32_t block) {
  return {block, static_cast<uint32_t>(row), static_cast<uint32_t>(row >> 32), mask.layer};
}

// x [rows, columns] of `type` -> y like x: 0 or x / (1 - probability). Forward and, on gradients,
// backward. y may be x.
using Dropout = void(DataType type, const DropoutMask& mask, int64_t rows, int64_t columns,
                     const void* x, void* y);

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_DROPOUT_H_
