// From one storage type to another, and the check that gradients in a narrow one did not overflow.
#ifndef MUSTER_KERNELS_CAST_H_
#define MUSTER_KERNELS_CAST_H_

#include <cstddef>

#include "kernels/data_type.h"

namespace muster::kernels {

// x [count] of type `from` -> y [count] of type `to` = x * scale, the product in float32. NaN and
// infinity stay; what is beyond the largest value of `to` becomes infinity. y may be x where the
// types are of equal size.
using Cast = void(DataType from, const void* x, float scale, DataType to, void* y, size_t count);

// -> finite, one value where the array is: whether no element of x [count] is an infinity or NaN.
using AllFinite = void(DataType type, const void* x, size_t count, bool* finite);

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_CAST_H_
