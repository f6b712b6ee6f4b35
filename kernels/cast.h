// Casts between storage types, and the check whether low-precision gradients overflowed.
#ifndef MUSTER_KERNELS_CAST_H_
#define MUSTER_KERNELS_CAST_H_

#include <cstddef>
#include <cstdint>

#include "kernels/data_type.h"

namespace muster::kernels {

// x [count] of type `from` -> y [count] of type `to` = x * scale, computed in float32. NaN and
// infinity are kept; values beyond the range of `to` become infinity. y may be x if the types have
// equal size.
using Cast = void(DataType from, const void* x, float scale, DataType to, void* y, size_t count);

// Maximum number of a range's elements per GPU block.
inline constexpr int64_t kCastPiece = 1 << 14;

// Number of pieces of a range with `count` elements.
constexpr int64_t CastPieces(int64_t count) { return (count + kCastPiece - 1) / kCastPiece; }

// Elements [begin, begin + count) of an array.
struct CastRange {
  int64_t begin = 0;  // a multiple of 4
  int64_t count = 0;
  int64_t first_piece = 0;  // total pieces of the preceding ranges of a list
};

// Casts the elements of x in `ranges` [count], consecutive ones of a list, to the same elements of
// y. The ranges are in the memory of the arrays; `pieces` is their total number of pieces. x and y
// are 16-byte aligned and do not overlap.
using CastRanges = void(DataType from, const void* x, DataType to, void* y, const CastRange* ranges,
                        int64_t count, int64_t pieces);

// -> *finite, in the memory of the array: whether x [count] contains no infinity and no NaN.
using AllFinite = void(DataType type, const void* x, size_t count, bool* finite);

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_CAST_H_
