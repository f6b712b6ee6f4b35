#include <cmath>

#include "kernels/half.h"
#include "kernels/reference/reference_kernels.h"

namespace muster::kernels::reference {

void Cast(DataType from, const void* x, float scale, DataType to, void* y, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    // The product is rounded to float32 first, as defined.
    StoreElement(to, LoadElement(from, x, i) * scale, y, i);
  }
}

void CastRanges(DataType from, const void* x, DataType to, void* y, const CastRange* ranges,
                int64_t count, int64_t) {
  for (int64_t r = 0; r < count; ++r) {
    for (int64_t i = ranges[r].begin; i < ranges[r].begin + ranges[r].count; ++i) {
      StoreElement(to, LoadElement(from, x, i), y, i);
    }
  }
}

void AllFinite(DataType type, const void* x, size_t count, bool* finite) {
  *finite = true;
  for (size_t i = 0; i < count; ++i) *finite = *finite && std::isfinite(LoadElement(type, x, i));
}

}  // namespace muster::kernels::reference
