// Max and average pooling; see kernels/pooling.h. Compiled once per instruction set.
//
// Forward iterates over the windows, backward over the pixels: each pixel gathers from the windows
// that cover it, so that every gradient is written once and no clearing is needed.
#ifndef MUSTER_KERNELS_CPU_ACTIVATION_POOLING_BODY_H_
#define MUSTER_KERNELS_CPU_ACTIVATION_POOLING_BODY_H_

#include <cstdint>

#include "kernels/cpu/activation/non_overlapping_pool.h"
#include "kernels/cpu/vector/vector.h"
#include "kernels/cpu/vector/windows.h"
#include "kernels/pooling.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

// The two axes of NHWC images.
struct PoolGeometry {
  int64_t samples;
  int64_t channels;
  Axis vertical;
  Axis horizontal;

  explicit PoolGeometry(const PoolShape& shape)
      : samples(shape.samples),
        channels(shape.channels),
        vertical(shape.height, shape.kernel, shape.stride, shape.padding),
        horizontal(shape.width, shape.kernel, shape.stride, shape.padding) {}
  explicit PoolGeometry(const AveragePoolShape& shape)
      : samples(shape.samples),
        channels(shape.channels),
        vertical(shape.height, shape.kernel_height, shape.stride, 0),
        horizontal(shape.width, shape.kernel_width, shape.stride, 0) {}

  int64_t Pixel(int64_t sample, int64_t h, int64_t w) const {
    return ((sample * vertical.size + h) * horizontal.size + w) * channels;
  }
  int64_t Window(int64_t sample, int64_t h, int64_t w) const {
    return ((sample * vertical.windows + h) * horizontal.windows + w) * channels;
  }

  // Calls visit(sample, h, w) for each window.
  template <typename Visit>
  MUSTER_ALWAYS_INLINE void ForEachWindow(const Visit& visit) const {
    for (int64_t sample = 0; sample < samples; ++sample) {
      for (int64_t h = 0; h < vertical.windows; ++h) {
        for (int64_t w = 0; w < horizontal.windows; ++w) visit(sample, h, w);
      }
    }
  }

  // Calls visit(sample, h, w, rows of windows over it, columns of windows over it) for each pixel.
  template <typename Visit>
  MUSTER_ALWAYS_INLINE void ForEachPixel(const Visit& visit) const {
    for (int64_t sample = 0; sample < samples; ++sample) {
      Range rows{0, 0};
      for (int64_t h = 0; h < vertical.size; ++h) {
        vertical.Advance(h, rows);
        Range columns{0, 0};
        for (int64_t w = 0; w < horizontal.size; ++w) {
          horizontal.Advance(w, columns);
          visit(sample, h, w, rows, columns);
        }
      }
    }
  }
};

template <typename Storage>
struct MaxPoolForwardBody {
  const PoolGeometry& geometry;
  bool relu;
  const Storage* x;
  Storage* y;
  uint8_t* choice;

  template <typename T, int kCount>
  void Run(int64_t channel) const {
    constexpr int kWidth = Element<T>::kWidth;
    geometry.ForEachWindow([&](int64_t sample, int64_t out_h, int64_t out_w) {
      const Range rows = geometry.vertical.PixelsOf(out_h);
      const Range columns = geometry.horizontal.PixelsOf(out_w);
      const int64_t first_h = geometry.vertical.Begin(out_h);
      const int64_t first_w = geometry.horizontal.Begin(out_w);
      const auto cell = [&](int64_t h, int64_t w) {
        const int64_t index = (h - first_h) * geometry.vertical.kernel + w - first_w;
        return Element<T>::SplatInt(static_cast<int32_t>(index));
      };
      const Storage* first = x + geometry.Pixel(sample, rows.begin, columns.begin) + channel;
      Largest<T> largest[kCount];
      for (int i = 0; i < kCount; ++i) {
        largest[i] = {Element<T>::Load(first + i * kWidth), cell(rows.begin, columns.begin)};
      }
      for (int64_t h = rows.begin; h < rows.end; ++h) {
        const Storage* p = x + geometry.Pixel(sample, h, columns.begin) + channel;
        for (int64_t w = columns.begin; w < columns.end; ++w, p += geometry.channels) {
          for (int i = 0; i < kCount; ++i) {
            largest[i].Consider(Element<T>::Load(p + i * kWidth), cell(h, w));
          }
        }
      }
      const int64_t out = geometry.Window(sample, out_h, out_w) + channel;
      for (int i = 0; i < kCount; ++i) {
        if (relu) largest[i].Relu();
        Element<T>::Store(y + out + i * kWidth, largest[i].value);
        if (choice != nullptr) Element<T>::StoreBytes(choice + out + i * kWidth, largest[i].index);
      }
    });
  }
};

template <typename Storage>
struct MaxPoolBackwardBody {
  const PoolGeometry& geometry;
  const Storage* dy;
  const uint8_t* choice;
  Storage* dx;

  template <typename T, int kCount>
  void Run(int64_t channel) const {
    constexpr int kWidth = Element<T>::kWidth;
    geometry.ForEachPixel([&](int64_t sample, int64_t h, int64_t w, Range rows, Range columns) {
      T sum[kCount] = {};
      for (int64_t out_h = rows.begin; out_h < rows.end; ++out_h) {
        const int64_t row = (h - geometry.vertical.Begin(out_h)) * geometry.vertical.kernel;
        int64_t from = geometry.Window(sample, out_h, columns.begin) + channel;
        for (int64_t out_w = columns.begin; out_w < columns.end; ++out_w) {
          const int32_t cell = static_cast<int32_t>(row + w - geometry.horizontal.Begin(out_w));
          for (int i = 0; i < kCount; ++i) {
            const auto chosen = Element<T>::LoadBytes(choice + from + i * kWidth);
            const T gradient = Element<T>::Load(dy + from + i * kWidth);
            sum[i] = sum[i] + (chosen == cell ? gradient : T{});
          }
          from += geometry.channels;
        }
      }
      Storage* const to = dx + geometry.Pixel(sample, h, w) + channel;
      for (int i = 0; i < kCount; ++i) Element<T>::Store(to + i * kWidth, sum[i]);
    });
  }
};

// 2x2 windows with stride 2 cover each pixel at most once.
template <typename Storage>
struct NonOverlappingForwardBody {
  const PoolShape& shape;
  const Storage* x;
  Storage* y;
  uint8_t* choice;

  template <typename T, int kCount>
  void Run(int64_t channel) const {
    const int64_t channels = shape.channels;
    const int64_t row_stride = shape.width * channels;
    ForEach2x2Window(
        shape.samples, shape.height, shape.width, channels, [&](int64_t in, int64_t out) {
          for (int i = 0; i < kCount; ++i) {
            const Storage* p = x + in + channel + i * Element<T>::kWidth;
            const Largest<T> largest =
                LargestOf2x2<T>(Element<T>::Load(p), Element<T>::Load(p + channels),
                                Element<T>::Load(p + row_stride),
                                Element<T>::Load(p + row_stride + channels), shape.relu);
            const int64_t at = out + channel + i * Element<T>::kWidth;
            Element<T>::Store(y + at, largest.value);
            if (choice != nullptr) Element<T>::StoreBytes(choice + at, largest.index);
          }
        });
  }
};

template <typename Storage>
struct NonOverlappingBackwardBody {
  const PoolShape& shape;
  const Storage* dy;
  const uint8_t* choice;
  Storage* dx;

  template <typename T, int kCount>
  void Run(int64_t channel) const {
    const int64_t channels = shape.channels;
    const int64_t row_stride = shape.width * channels;
    ForEach2x2Window(
        shape.samples, shape.height, shape.width, channels, [&](int64_t in, int64_t out) {
          for (int i = 0; i < kCount; ++i) {
            const int64_t from = out + channel + i * Element<T>::kWidth;
            Storage* p = dx + in + channel + i * Element<T>::kWidth;
            const T gradient = Element<T>::Load(dy + from);
            const typename Element<T>::Int index = Element<T>::LoadBytes(choice + from);
            Element<T>::Store(p, index == 0 ? gradient : T{});
            Element<T>::Store(p + channels, index == 1 ? gradient : T{});
            Element<T>::Store(p + row_stride, index == 2 ? gradient : T{});
            Element<T>::Store(p + row_stride + channels, index == 3 ? gradient : T{});
          }
        });
    ForEachUncovered(shape.samples, shape.height, shape.width, channels, [&](int64_t at) {
      for (int i = 0; i < kCount; ++i) {
        Element<T>::Store(dx + at + channel + i * Element<T>::kWidth, T{});
      }
    });
  }
};

inline bool IsNonOverlapping2x2(const PoolShape& shape) {
  return shape.kernel == 2 && shape.stride == 2 && shape.padding == 0;
}

// Calls visit(shape of one image, its geometry, its offset in x, its offset in y) for each image,
// so that all channel blocks of an image are processed while it is in the cache.
template <typename Shape, typename Visit>
inline void ForEachImage(const Shape& shape, const Visit& visit) {
  Shape image = shape;
  image.samples = 1;
  const PoolGeometry geometry(image);
  for (int64_t sample = 0; sample < shape.samples; ++sample) {
    visit(image, geometry, geometry.Pixel(sample, 0, 0), geometry.Window(sample, 0, 0));
  }
}

inline void MaxPoolForward(const PoolShape& shape, const void* x, void* y, uint8_t* choice) {
  DispatchType(shape.type, [&](auto element) {
    using Storage = decltype(element);
    ForEachImage(shape, [&](const PoolShape& image, const auto& geometry, int64_t in, int64_t out) {
      const auto* from = static_cast<const Storage*>(x) + in;
      auto* to = static_cast<Storage*>(y) + out;
      uint8_t* chosen = choice != nullptr ? choice + out : nullptr;
      if (IsNonOverlapping2x2(image)) {
        ForEachChannelBlock(image.channels,
                            NonOverlappingForwardBody<Storage>{image, from, to, chosen});
      } else {
        ForEachChannelBlock(image.channels,
                            MaxPoolForwardBody<Storage>{geometry, image.relu, from, to, chosen});
      }
    });
  });
}

inline void MaxPoolBackward(const PoolShape& shape, const void* dy, const uint8_t* choice,
                            void* dx) {
  DispatchType(shape.type, [&](auto element) {
    using Storage = decltype(element);
    ForEachImage(shape, [&](const PoolShape& image, const auto& geometry, int64_t in, int64_t out) {
      const auto* from = static_cast<const Storage*>(dy) + out;
      auto* to = static_cast<Storage*>(dx) + in;
      if (IsNonOverlapping2x2(image)) {
        ForEachChannelBlock(image.channels,
                            NonOverlappingBackwardBody<Storage>{image, from, choice + out, to});
      } else {
        ForEachChannelBlock(image.channels,
                            MaxPoolBackwardBody<Storage>{geometry, from, choice + out, to});
      }
    });
  });
}

template <typename Storage>
struct AveragePoolForwardBody {
  const PoolGeometry& geometry;
  float share;  // weight of one cell
  const Storage* x;
  Storage* y;

  template <typename T, int kCount>
  void Run(int64_t channel) const {
    constexpr int kWidth = Element<T>::kWidth;
    geometry.ForEachWindow([&](int64_t sample, int64_t out_h, int64_t out_w) {
      const Range rows = geometry.vertical.PixelsOf(out_h);
      const Range columns = geometry.horizontal.PixelsOf(out_w);
      T sum[kCount] = {};
      for (int64_t h = rows.begin; h < rows.end; ++h) {
        // Summed by rows: in a large window, rounding errors are smaller.
        T row[kCount] = {};
        const Storage* p = x + geometry.Pixel(sample, h, columns.begin) + channel;
        for (int64_t w = columns.begin; w < columns.end; ++w, p += geometry.channels) {
          for (int i = 0; i < kCount; ++i) row[i] = row[i] + Element<T>::Load(p + i * kWidth);
        }
        for (int i = 0; i < kCount; ++i) sum[i] = sum[i] + row[i];
      }
      Storage* const to = y + geometry.Window(sample, out_h, out_w) + channel;
      for (int i = 0; i < kCount; ++i) {
        Element<T>::Store(to + i * kWidth, sum[i] * Element<T>::Splat(share));
      }
    });
  }
};

template <typename Storage>
struct AveragePoolBackwardBody {
  const PoolGeometry& geometry;
  float share;
  const Storage* dy;
  Storage* dx;

  template <typename T, int kCount>
  void Run(int64_t channel) const {
    constexpr int kWidth = Element<T>::kWidth;
    geometry.ForEachPixel([&](int64_t sample, int64_t h, int64_t w, Range rows, Range columns) {
      T sum[kCount] = {};
      for (int64_t out_h = rows.begin; out_h < rows.end; ++out_h) {
        const Storage* p = dy + geometry.Window(sample, out_h, columns.begin) + channel;
        for (int64_t out_w = columns.begin; out_w < columns.end; ++out_w, p += geometry.channels) {
          for (int i = 0; i < kCount; ++i) sum[i] = sum[i] + Element<T>::Load(p + i * kWidth);
        }
      }
      Storage* const to = dx + geometry.Pixel(sample, h, w) + channel;
      for (int i = 0; i < kCount; ++i) {
        Element<T>::Store(to + i * kWidth, sum[i] * Element<T>::Splat(share));
      }
    });
  }
};

inline float ShareOfCell(const AveragePoolShape& shape) {
  return 1.0f / static_cast<float>(shape.kernel_height * shape.kernel_width);
}

inline void AveragePoolForward(const AveragePoolShape& shape, const void* x, void* y) {
  DispatchType(shape.type, [&](auto element) {
    using Storage = decltype(element);
    ForEachImage(shape, [&](const auto& image, const auto& geometry, int64_t in, int64_t out) {
      ForEachChannelBlock(image.channels,
                          AveragePoolForwardBody<Storage>{geometry, ShareOfCell(image),
                                                          static_cast<const Storage*>(x) + in,
                                                          static_cast<Storage*>(y) + out});
    });
  });
}

inline void AveragePoolBackward(const AveragePoolShape& shape, const void* dy, void* dx) {
  DispatchType(shape.type, [&](auto element) {
    using Storage = decltype(element);
    ForEachImage(shape, [&](const auto& image, const auto& geometry, int64_t in, int64_t out) {
      ForEachChannelBlock(image.channels,
                          AveragePoolBackwardBody<Storage>{geometry, ShareOfCell(image),
                                                           static_cast<const Storage*>(dy) + out,
                                                           static_cast<Storage*>(dx) + in});
    });
  });
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_CPU_ACTIVATION_POOLING_BODY_H_
