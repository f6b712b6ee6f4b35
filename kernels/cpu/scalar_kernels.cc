#include "kernels/cpu/scalar_kernels.h"

#include <algorithm>

#include "kernels/half.h"

namespace muster::kernels::cpu {

void Dropout(DataType type, const DropoutMask& mask, int64_t rows, int64_t columns, const void* x,
             void* y) {
  const float keep_scale = 1.0f / (1.0f - mask.probability);
  for (int64_t row = 0; row < rows; ++row) {
    const uint64_t global_row = mask.first_row + static_cast<uint64_t>(row);
    for (int64_t begin = 0; begin < columns; begin += 4) {
      const PhiloxCounter words =
          Philox4x32(DropoutCounter(mask, global_row, static_cast<uint32_t>(begin / 4)), mask.key);
      const int64_t count = std::min<int64_t>(4, columns - begin);
      for (int64_t i = 0; i < count; ++i) {
        const bool drop = Uniform01(words[i]) < mask.probability;
        const int64_t at = row * columns + begin + i;
        StoreElement(type, drop ? 0.0f : LoadElement(type, x, at) * keep_scale, y, at);
      }
    }
  }
}

}  // namespace muster::kernels::cpu
