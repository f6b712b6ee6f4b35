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

void AllFinite(DataType type, const void* x, size_t count, bool* finite) {
  *finite = true;
  for (size_t i = 0; i < count; ++i) *finite = *finite && std::isfinite(LoadElement(type, x, i));
}

}  // namespace muster::kernels::reference
