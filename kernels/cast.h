// Casts between storage types, and the check whether low-precision gradients overflowed.
#ifndef MUSTER_KERNELS_CAST_H_
#define MUSTER_KERNELS_CAST_H_

#include <cstddef>

#include "kernels/data_type.h"

namespace muster::kernels {

// x [count] of type `from` -> y [count] of type `to` = x * scale, computed in float32. NaN and
// infinity are kept; values beyond the range of `to` become infinity. y may be x if the types have
// equal size.
using Cast = void(DataType from, const void* x, float scale, DataType to, void* y, size_t count);

// -> *finite, in the memory of the array: whether x [count] contains no infinity and no NaN.
using AllFinite = void(DataType type, const void* x, size_t count, bool* finite);

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_CAST_H_
