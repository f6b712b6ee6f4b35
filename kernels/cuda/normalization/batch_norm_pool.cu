// Batch norm and ReLU fused with max pooling whose windows may overlap. Neither the normalized
// values nor their gradients are written.
#include "kernels/cuda/normalization/batch_norm.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {
namespace {

// The windows of the pooling, in 32 bits. kKernel and kStride are constants of the layer, so that
// loops are unrolled; 0: any.
template <int kKernel, int kStride>
struct PoolGrid {
  int32_t height;
  int32_t width;
  int32_t out_height;
  int32_t out_width;
  int32_t any_kernel;
  int32_t any_stride;
  int32_t padding;
  Divider by_height;
  Divider by_width;
  Divider by_out_height;
  Divider by_out_width;

  explicit PoolGrid(const BatchNormShape& shape)
      : height(static_cast<int32_t>(shape.height)),
        width(static_cast<int32_t>(shape.width)),
        out_height(static_cast<int32_t>(shape.out_height())),
        out_width(static_cast<int32_t>(shape.out_width())),
        any_kernel(static_cast<int32_t>(shape.pool_kernel)),
        any_stride(static_cast<int32_t>(shape.pool_stride)),
        padding(static_cast<int32_t>(shape.pool_padding)),
        by_height(height),
        by_width(width),
        by_out_height(out_height),
        by_out_width(out_width) {}

  MUSTER_HOST_DEVICE int32_t kernel() const { return kKernel > 0 ? kKernel : any_kernel; }
  MUSTER_HOST_DEVICE int32_t stride() const { return kStride > 0 ? kStride : any_stride; }

  // A window's position in y, and its first cell, which may be in the padding.
  struct Window {
    int32_t sample;
    int32_t top;
    int32_t left;
  };
  MUSTER_HOST_DEVICE Window WindowAt(int64_t index) const {
    auto rest = static_cast<int32_t>(index);
    const int32_t column = by_out_width.DivModSmall(rest);
    const int32_t row = by_out_height.DivModSmall(rest);
    return {rest, row * stride() - padding, column * stride() - padding};
  }

  // The first of the windows that contain a coordinate along an axis; the last is that of
  // LastOver.
  MUSTER_HOST_DEVICE int32_t FirstOver(int32_t at) const {
    const int32_t before = at + padding - kernel();
    return before < 0 ? 0 : before / stride() + 1;
  }
  MUSTER_HOST_DEVICE int32_t LastOver(int32_t at, int32_t windows) const {
    const int32_t last = (at + padding) / stride();
    return last < windows ? last : windows - 1;
  }
};

template <typename Storage, int kWidth, int kKernel, int kStride>
struct ApplyPoolWindows {
  static constexpr int kBlocksPerMultiprocessor = 3;

  int64_t channels;
  PoolGrid<kKernel, kStride> grid;
  const Storage* x;
  const float* scale;
  const float* shift;
  Storage* y;
  // All null or none.
  Storage* largest_x;
  uint8_t* index;
  uint8_t* mask;

  struct PerThread {
    // Cells of a row whose loads are in flight.
    static constexpr int kCells = kKernel > 0 ? kKernel : 1;
    ApplyPoolWindows all;
    int64_t channel;
    Floats<kWidth> scale;
    Floats<kWidth> shift;

    MUSTER_HOST_DEVICE void operator()(int64_t at) const {
      const auto window = all.grid.WindowAt(at);
      Largest largest[kWidth];  // values of x
#pragma unroll
      for (int i = 0; i < kWidth; ++i) largest[i] = {0, -1};
#pragma unroll 1
      for (int32_t row = 0; row < all.grid.kernel(); ++row) {
        const int32_t h = window.top + row;
        if (h < 0 || h >= all.grid.height) continue;
        const int64_t line = (int64_t{window.sample} * all.grid.height + h) * all.grid.width;
#pragma unroll 1
        for (int32_t first = 0; first < all.grid.kernel(); first += kCells) {
          AlignedVector<Storage, kWidth> cells[kCells] = {};
#pragma unroll
          for (int cell = 0; cell < kCells; ++cell) {
            const int32_t w = window.left + first + cell;
            if (w < 0 || w >= all.grid.width) continue;
            cells[cell] = LoadStored<kWidth>(all.x + (line + w) * all.channels + channel);
          }
#pragma unroll
          for (int cell = 0; cell < kCells; ++cell) {
            const int32_t w = window.left + first + cell;
            if (w < 0 || w >= all.grid.width) continue;
            const int32_t position = row * all.grid.kernel() + first + cell;
#pragma unroll
            for (int i = 0; i < kWidth; ++i) {
              Consider(i, Widen(cells[cell].values[i]), position, largest[i]);
            }
          }
        }
      }
      Write(at * all.channels + channel, largest);
    }

   private:
    MUSTER_HOST_DEVICE float Normalized(int i, float value) const {
      return AffineFunctor<float>{scale[i], shift[i]}(value);
    }

    // Replaces `largest` by a candidate whose normalized value is larger, or NaN.
    MUSTER_HOST_DEVICE void Consider(int i, float candidate, int position, Largest& largest) const {
      const float normalized = Normalized(i, candidate);
      const bool larger = normalized > Normalized(i, largest.value);
      if (largest.index < 0 || larger || normalized != normalized) largest = {candidate, position};
    }

    MUSTER_HOST_DEVICE void Write(int64_t at, const Largest (&largest)[kWidth]) const {
      Floats<kWidth> values, activated;
      AlignedVector<uint8_t, kWidth> chosen;
      uint32_t bits = 0;
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const float normalized = Normalized(i, largest[i].value);
        const bool dead = normalized <= 0;
        values[i] = largest[i].value;
        activated[i] = dead ? 0.0f : normalized;
        chosen.values[i] = dead ? kNoChoice : static_cast<uint8_t>(largest[i].index);
        bits |= (dead ? 0u : 1u) << i;
      }
      Store<kWidth>(all.y + at, activated);
      if (all.index == nullptr) return;
      Store<kWidth>(all.largest_x + at, values);
      *reinterpret_cast<AlignedVector<uint8_t, kWidth>*>(all.index + at) = chosen;
      all.mask[at / kWidth] = static_cast<uint8_t>(bits);
    }
  };
  MUSTER_HOST_DEVICE PerThread operator()(int64_t channel) const {
    return {*this, channel, Channels<kWidth>(scale, channel), Channels<kWidth>(shift, channel)};
  }
};

// Gathers the gradients of each pixel from the windows that contain it.
template <typename Storage, int kWidth, int kKernel, int kStride>
struct PoolWindowsData {
  static constexpr int kBlocksPerMultiprocessor = 3;

  int64_t channels;
  PoolGrid<kKernel, kStride> grid;
  BatchNormGradient gradient;
  const uint8_t* index;
  const float* dgamma;
  const float* dbeta;
  Storage* dx;

  struct PerThread {
    // Windows along an axis that may contain a pixel, whose loads are in flight.
    static constexpr int kWindows = kKernel > 0 ? (kKernel + kStride - 1) / kStride : 1;
    PoolWindowsData all;
    int64_t channel;
    DataCoefficients<kWidth> coefficients;

    MUSTER_HOST_DEVICE void operator()(int64_t pixel) const {
      const auto& grid = all.grid;
      auto sample = static_cast<int32_t>(pixel);
      const int32_t w = grid.by_width.DivModSmall(sample);
      const int32_t h = grid.by_height.DivModSmall(sample);
      const int64_t at = pixel * all.channels + channel;
      const auto* const dy = static_cast<const Storage*>(all.gradient.dy);
      const int32_t last_row = grid.LastOver(h, grid.out_height);
      const int32_t last_column = grid.LastOver(w, grid.out_width);
      Floats<kWidth> sum = {};
#pragma unroll 1
      for (int32_t row = grid.FirstOver(h); row <= last_row; ++row) {
        const int32_t line = (sample * grid.out_height + row) * grid.out_width;
        const int32_t first_cell = (h + grid.padding - row * grid.stride()) * grid.kernel();
#pragma unroll 1
        for (int32_t first = grid.FirstOver(w); first <= last_column; first += kWindows) {
          const int64_t at_first = (line + first) * all.channels + channel;
          const int32_t cell = first_cell + w + grid.padding - first * grid.stride();
          AlignedVector<Storage, kWidth> gradients[kWindows] = {};
          AlignedVector<uint8_t, kWidth> chosen[kWindows];
#pragma unroll
          for (int i = 0; i < kWindows; ++i) {
            for (uint8_t& cell : chosen[i].values) cell = kNoChoice;
            if (first + i > last_column) continue;
            gradients[i] = LoadStored<kWidth>(dy + at_first + i * all.channels);
            chosen[i] = LoadStored<kWidth>(all.index + at_first + i * all.channels);
          }
#pragma unroll
          for (int i = 0; i < kWindows; ++i) {
#pragma unroll
            for (int c = 0; c < kWidth; ++c) {
              const bool passes = chosen[i].values[c] == cell - i * grid.stride();
              sum[c] += passes ? Widen(gradients[i].values[c]) : 0.0f;
            }
          }
        }
      }
      const auto x = Load<kWidth>(static_cast<const Storage*>(all.gradient.x) + at);
      Store<kWidth>(all.dx + at, coefficients(x, sum));
    }
  };
  MUSTER_HOST_DEVICE PerThread operator()(int64_t channel) const {
    return {*this, channel, DataCoefficients<kWidth>(gradient, dgamma, dbeta, channel)};
  }
};

// Calls visit(kernel, stride): std::integral_constants, both 0 for windows other than 3x3 with
// stride 2.
template <typename Visit>
void DispatchWindows(const BatchNormShape& shape, const Visit& visit) {
  if (shape.pool_kernel == 3 && shape.pool_stride == 2) {
    visit(std::integral_constant<int, 3>(), std::integral_constant<int, 2>());
  } else {
    visit(std::integral_constant<int, 0>(), std::integral_constant<int, 0>());
  }
}

}  // namespace

// Pixels are numbered in 32 bits.
size_t BatchNormPoolBytes(const BatchNormShape& shape) {
  if (!shape.pool || shape.pools_2x2() || shape.pool_kernel > kMaxPoolKernel ||
      Max(shape.pixels(), shape.out_pixels()) >= int64_t{1} << 31) {
    return 0;
  }
  return static_cast<size_t>(PoolChoice::Bytes(shape));
}

void ApplyPool(const BatchNormShape& shape, const void* x, const float* scale, const float* shift,
               void* y, uint8_t* choice) {
  const int64_t outputs = shape.out_pixels() * shape.channels;
  double kept = 0;
  if (choice != nullptr) {
    kept = ArrayBytes(shape.type, outputs) + ArrayBytes(DataType::kUint8, outputs) +
           MaskBytes(WithoutPool(shape));
  }
  StateWork(ArrayBytes(shape.type, shape.pixels() * shape.channels + outputs) + kept);
  const PoolChoice chosen(shape, choice);
  const auto arrays = {x, static_cast<const void*>(y), static_cast<const void*>(choice)};
  DispatchWidth(shape.type, shape.channels, arrays, [&](auto element, auto width) {
    using Storage = decltype(element);
    DispatchWindows(shape, [&](auto kernel, auto stride) {
      using Body = ApplyPoolWindows<Storage, width, kernel, stride>;
      ForEachPixel<width>(
          shape.out_pixels(), shape.channels,
          Body{shape.channels, PoolGrid<kernel, stride>(shape), static_cast<const Storage*>(x),
               scale, shift, static_cast<Storage*>(y), static_cast<Storage*>(chosen.x),
               chosen.index, chosen.mask});
    });
  });
}

void BackwardDataOfPool(const BatchNormShape& shape, const BatchNormGradient& gradient,
                        const float* dgamma, const float* dbeta, void* dx) {
  const int64_t inputs = shape.pixels() * shape.channels;
  const int64_t outputs = shape.out_pixels() * shape.channels;
  StateWork(ArrayBytes(shape.type, 2 * inputs + outputs) + ArrayBytes(DataType::kUint8, outputs));
  const uint8_t* const index = PoolChoice(shape, gradient.choice).index;
  const auto arrays = {gradient.x, gradient.dy, static_cast<const void*>(gradient.choice),
                       static_cast<const void*>(dx)};
  DispatchWidth(shape.type, shape.channels, arrays, [&](auto element, auto width) {
    using Storage = decltype(element);
    DispatchWindows(shape, [&](auto kernel, auto stride) {
      using Body = PoolWindowsData<Storage, width, kernel, stride>;
      ForEachPixel<width>(shape.pixels(), shape.channels,
                          Body{shape.channels, PoolGrid<kernel, stride>(shape), gradient, index,
                               dgamma, dbeta, static_cast<Storage*>(dx)});
    });
  });
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET
