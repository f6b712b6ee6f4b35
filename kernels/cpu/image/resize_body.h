// Resize; see kernels/resize.h. Compiled once per instruction set.
//
// Computes a few output rows at a time: first adds up the weighted input rows of each in a row of
// floats, which stays in the cache, then resizes these rows horizontally.
#ifndef MUSTER_KERNELS_CPU_IMAGE_RESIZE_BODY_H_
#define MUSTER_KERNELS_CPU_IMAGE_RESIZE_BODY_H_

#include <cstdint>

#include "kernels/cpu/image/resize_filter.h"
#include "kernels/cpu/vector/vector.h"
#include "kernels/resize.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

// row[i] = sum over t of weights[t] * x[t * row_bytes + i] for kCount elements of type T.
template <typename T, int kCount>
MUSTER_ALWAYS_INLINE void AddRows(const uint8_t* x, int64_t row_bytes, int64_t taps,
                                  const float* weights, float* row) {
  T sums[kCount] = {};
  for (int64_t t = 0; t < taps; ++t) {
    const T weight = Element<T>::Splat(weights[t]);
    for (int i = 0; i < kCount; ++i) {
      const uint8_t* p = x + t * row_bytes + i * Element<T>::kWidth;
      sums[i] += weight * Element<T>::FromInt(Element<T>::LoadBytes(p));
    }
  }
  for (int i = 0; i < kCount; ++i) Element<T>::Store(row + i * Element<T>::kWidth, sums[i]);
}

// The same for `count` elements.
inline void AddRows(const uint8_t* x, int64_t row_bytes, int64_t count, int64_t taps,
                    const float* weights, float* row) {
  int64_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
    AddRows<Vector, 4>(x + i, row_bytes, taps, weights, row + i);
  }
  for (; i + kLanes <= count; i += kLanes) {
    AddRows<Vector, 1>(x + i, row_bytes, taps, weights, row + i);
  }
  if (i == count) return;
  if (count >= kLanes) {
    // Repeats the last elements, so that nothing past the end is read.
    i = count - kLanes;
    AddRows<Vector, 1>(x + i, row_bytes, taps, weights, row + i);
    return;
  }
  for (; i < count; ++i) AddRows<float, 1>(x + i, row_bytes, taps, weights, row + i);
}

// A pixel with three channels and one more float.
typedef float Pixel __attribute__((vector_size(16)));
typedef float UnalignedPixel __attribute__((vector_size(16), aligned(alignof(float)), may_alias));
typedef int32_t IntPixel __attribute__((vector_size(16)));
typedef uint8_t BytePixel __attribute__((vector_size(4)));

// kRows rows, `row_floats` apart, share the loads of weights. `row` begins with pixel `origin`
// of the image's rows.
template <int kRows>
inline void ResizeRowsOf3(const cpu::ResizeFilter& filter, int64_t origin, int64_t width,
                          const float* row, int64_t row_floats, uint8_t* y) {
  const int64_t y_bytes = 3 * width;
  const int64_t taps = filter.taps;
  const int32_t* const first = filter.first;
  const float* weights = filter.weights;
  for (int64_t i = 0; i < width; ++i, weights += taps) {
    const float* from = row + 3 * (first[i] - origin);
    Pixel sums[kRows];
    for (int k = 0; k < kRows; ++k) sums[k] = Pixel{} + 0.5f;
    for (int64_t t = 0; t < taps; ++t, from += 3) {
      for (int k = 0; k < kRows; ++k) {
        sums[k] += weights[t] * *reinterpret_cast<const UnalignedPixel*>(from + k * row_floats);
      }
    }
    for (int k = 0; k < kRows; ++k) {
      const BytePixel pixel =
          __builtin_convertvector(__builtin_convertvector(sums[k], IntPixel), BytePixel);
      // The fourth byte is part of the next pixel, which is written later, if there is one.
      if (i + 1 < width) {
        __builtin_memcpy(y + k * y_bytes + 3 * i, &pixel, 4);
      } else {
        __builtin_memcpy(y + k * y_bytes + 3 * i, &pixel, 3);
      }
    }
  }
}

// Resizes a row from pixel `begin` on.
inline void ResizeRow(const cpu::ResizeFilter& filter, int64_t origin, int64_t begin, int64_t width,
                      int64_t channels, const float* row, uint8_t* y) {
  for (int64_t i = begin; i < width; ++i) {
    const float* weights = filter.weights + i * filter.taps;
    const float* from = row + channels * (filter.first[i] - origin);
    for (int64_t c = 0; c < channels; ++c) {
      float sum = 0.5f;
      for (int64_t t = 0; t < filter.taps; ++t) sum += weights[t] * from[channels * t + c];
      y[i * channels + c] = static_cast<uint8_t>(sum);
    }
  }
}

#if defined(__AVX2__)
MUSTER_ALWAYS_INLINE Vector Gather(const float* p, IntVector indices) {
#if defined(__AVX512F__)
  return _mm512_i32gather_ps(__builtin_bit_cast(__m512i, indices), p, sizeof(float));
#else
  return _mm256_i32gather_ps(p, __builtin_bit_cast(__m256i, indices), sizeof(float));
#endif
}

// For one channel: kLanes pixels at a time, whose weights kRows rows share. Returns the number of
// pixels per row that are done.
template <int kRows>
inline int64_t ResizeRowsOf1(const cpu::ResizeFilter& filter, int64_t origin, int64_t width,
                             const float* row, int64_t row_floats, uint8_t* y) {
  const auto taps = static_cast<int32_t>(filter.taps);
  IntVector lanes;
  for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = lane;
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) {
    IntVector first;
    __builtin_memcpy(&first, filter.first + i, sizeof(first));
    first -= static_cast<int32_t>(origin);
    Vector sums[kRows];
    for (int k = 0; k < kRows; ++k) sums[k] = Vector{} + 0.5f;
    for (int32_t t = 0; t < taps; ++t) {
      const Vector weights = Gather(filter.weights + i * taps + t, lanes * taps);
      for (int k = 0; k < kRows; ++k) {
        sums[k] += weights * Gather(row + k * row_floats + t, first);
      }
    }
    for (int k = 0; k < kRows; ++k) {
      const auto pixels = __builtin_convertvector(__builtin_convertvector(sums[k], IntVector),
                                                  VectorOf<kLanes>::Byte);
      __builtin_memcpy(y + k * width + i, &pixels, sizeof(pixels));
    }
  }
  return i;
}
#endif  // __AVX2__

// Computes kRows rows of the output, from row `i` on.
template <int kRows>
inline void ResizeRows(const ResizeShape& shape, const cpu::ResizeScratch& parts, int64_t i,
                       const uint8_t* x, uint8_t* y) {
  const cpu::ResizeFilter& rows = parts.vertical;
  const cpu::ResizeFilter& columns = parts.horizontal;
  // The columns that contribute; a mirrored filter begins with the rightmost.
  const int64_t last = shape.width - 1;
  const int64_t origin = columns.first[shape.flip ? last : 0];
  const int64_t end = columns.first[shape.flip ? 0 : last] + columns.taps;
  const int64_t row_floats = shape.in_width * shape.channels;
  const int64_t y_bytes = shape.width * shape.channels;
  for (int64_t k = 0; k < kRows; ++k) {
    AddRows(x + rows.first[i + k] * shape.row_bytes + origin * shape.channels, shape.row_bytes,
            (end - origin) * shape.channels, rows.taps, rows.weights + (i + k) * rows.taps,
            parts.rows + k * row_floats);
  }
  y += i * y_bytes;
  if (shape.channels == 3) {
    ResizeRowsOf3<kRows>(columns, origin, shape.width, parts.rows, row_floats, y);
    return;
  }
  int64_t begin = 0;
#if defined(__AVX2__)
  if (shape.channels == 1) {
    begin = ResizeRowsOf1<kRows>(columns, origin, shape.width, parts.rows, row_floats, y);
  }
#endif
  for (int64_t k = 0; k < kRows; ++k) {
    ResizeRow(columns, origin, begin, shape.width, shape.channels, parts.rows + k * row_floats,
              y + k * y_bytes);
  }
}

inline void Resize(const ResizeShape& shape, const uint8_t* x, uint8_t* y, void* scratch) {
  const cpu::ResizeScratch parts = cpu::PrepareResize(shape, scratch);
  int64_t i = 0;
  for (; i + cpu::kResizeRows <= shape.height; i += cpu::kResizeRows) {
    ResizeRows<cpu::kResizeRows>(shape, parts, i, x, y);
  }
  for (; i < shape.height; ++i) ResizeRows<1>(shape, parts, i, x, y);
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_CPU_IMAGE_RESIZE_BODY_H_
