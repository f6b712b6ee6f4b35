#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/launch/windows.h"
#include "kernels/cuda/table/kernels.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {
namespace {

// The windows of a pooling layer over NHWC images.
struct PoolGeometry {
  int64_t channels;
  Axis vertical;
  Axis horizontal;

  explicit PoolGeometry(const PoolShape& shape)
      : channels(shape.channels),
        vertical(shape.height, shape.kernel, shape.stride, shape.padding),
        horizontal(shape.width, shape.kernel, shape.stride, shape.padding) {}
  explicit PoolGeometry(const AveragePoolShape& shape)
      : channels(shape.channels),
        vertical(shape.height, shape.kernel_height, shape.stride, 0),
        horizontal(shape.width, shape.kernel_width, shape.stride, 0) {}

  PixelIndexer Windows(int width) const {
    return PixelIndexer(vertical.windows, horizontal.windows, channels / width, width);
  }
  PixelIndexer Pixels(int width) const {
    return PixelIndexer(vertical.size, horizontal.size, channels / width, width);
  }
  int64_t window_vectors(int64_t samples, int width) const {
    return samples * vertical.windows * horizontal.windows * (channels / width);
  }
  int64_t pixel_vectors(int64_t samples, int width) const {
    return samples * vertical.size * horizontal.size * (channels / width);
  }

  // Index of the window's first element. May be in the padding, even before the array.
  MUSTER_HOST_DEVICE int64_t FirstCell(const PixelPosition& window) const {
    const int64_t row = window.sample * vertical.size + vertical.Begin(window.h);
    return (row * horizontal.size + horizontal.Begin(window.w)) * channels + window.channel;
  }
  // Index of the window's first channel in y.
  MUSTER_HOST_DEVICE int64_t Window(int64_t sample, int64_t h, int64_t w) const {
    return ((sample * vertical.windows + h) * horizontal.windows + w) * channels;
  }
};

template <typename Storage, int kWidth>
struct MaxPoolForwardBody {
  PoolGeometry geometry;
  PixelIndexer windows;
  bool relu;
  const Storage* x;
  Storage* y;
  uint8_t* choice;  // or null

  MUSTER_HOST_DEVICE void operator()(int64_t item) const {
    const PixelPosition window = windows.At(item);
    const Range rows = geometry.vertical.CellsOf(window.h);
    const Range columns = geometry.horizontal.CellsOf(window.w);
    const int64_t first = geometry.FirstCell(window);
    Largest largest[kWidth];
    for (int i = 0; i < kWidth; ++i) largest[i] = {0, -1};
    for (int64_t h = rows.begin; h < rows.end; ++h) {
      for (int64_t w = columns.begin; w < columns.end; ++w) {
        const int64_t in = first + (h * geometry.horizontal.size + w) * geometry.channels;
        const int cell = static_cast<int>(h * geometry.vertical.kernel + w);
        const Floats<kWidth> values = Load<kWidth>(x + in);
        for (int i = 0; i < kWidth; ++i) {
          if (largest[i].index < 0) {
            largest[i] = {values[i], cell};
          } else {
            largest[i].Consider(values[i], cell);
          }
        }
      }
    }
    Floats<kWidth> values;
    AlignedVector<uint8_t, kWidth> chosen;
    for (int i = 0; i < kWidth; ++i) {
      const bool dead = relu && largest[i].value <= 0;
      values[i] = dead ? 0.0f : largest[i].value;
      chosen.values[i] = dead ? kNoChoice : static_cast<uint8_t>(largest[i].index);
    }
    const int64_t out = item * kWidth;
    Store<kWidth>(y + out, values);
    if (choice != nullptr)
      *reinterpret_cast<AlignedVector<uint8_t, kWidth>*>(choice + out) = chosen;
  }
};

// Gathers the gradients of each pixel, so that each element of dx is written once, without atomics.
template <typename Storage, int kWidth>
struct MaxPoolBackwardBody {
  PoolGeometry geometry;
  PixelIndexer pixels;
  const Storage* dy;
  const uint8_t* choice;
  Storage* dx;

  MUSTER_HOST_DEVICE void operator()(int64_t item) const {
    const PixelPosition pixel = pixels.At(item);
    const Range rows = geometry.vertical.WindowsOver(pixel.h);
    const Range columns = geometry.horizontal.WindowsOver(pixel.w);
    Floats<kWidth> sum = {};
    for (int64_t h = rows.begin; h < rows.end; ++h) {
      const int64_t first = (pixel.h - geometry.vertical.Begin(h)) * geometry.vertical.kernel;
      for (int64_t w = columns.begin; w < columns.end; ++w) {
        const int64_t cell = first + pixel.w - geometry.horizontal.Begin(w);
        const int64_t from = geometry.Window(pixel.sample, h, w) + pixel.channel;
        const auto chosen = *reinterpret_cast<const AlignedVector<uint8_t, kWidth>*>(choice + from);
        const Floats<kWidth> gradient = Load<kWidth>(dy + from);
        for (int i = 0; i < kWidth; ++i) {
          sum[i] += chosen.values[i] == cell ? gradient[i] : 0.0f;
        }
      }
    }
    Store<kWidth>(dx + item * kWidth, sum);
  }
};

template <typename Storage, int kWidth>
struct AveragePoolForwardBody {
  PoolGeometry geometry;
  PixelIndexer windows;
  float weight;  // weight of one cell
  const Storage* x;
  Storage* y;

  MUSTER_HOST_DEVICE void operator()(int64_t item) const {
    const int64_t first = geometry.FirstCell(windows.At(item));
    Floats<kWidth> sum = {};
    for (int64_t h = 0; h < geometry.vertical.kernel; ++h) {
      for (int64_t w = 0; w < geometry.horizontal.kernel; ++w) {
        const Floats<kWidth> values =
            Load<kWidth>(x + first + (h * geometry.horizontal.size + w) * geometry.channels);
        for (int i = 0; i < kWidth; ++i) sum[i] += values[i];
      }
    }
    for (int i = 0; i < kWidth; ++i) sum[i] *= weight;
    Store<kWidth>(y + item * kWidth, sum);
  }
};

template <typename Storage, int kWidth>
struct AveragePoolBackwardBody {
  PoolGeometry geometry;
  PixelIndexer pixels;
  float weight;
  const Storage* dy;
  Storage* dx;

  MUSTER_HOST_DEVICE void operator()(int64_t item) const {
    const PixelPosition pixel = pixels.At(item);
    const Range rows = geometry.vertical.WindowsOver(pixel.h);
    const Range columns = geometry.horizontal.WindowsOver(pixel.w);
    Floats<kWidth> sum = {};
    for (int64_t h = rows.begin; h < rows.end; ++h) {
      for (int64_t w = columns.begin; w < columns.end; ++w) {
        const Floats<kWidth> gradient =
            Load<kWidth>(dy + geometry.Window(pixel.sample, h, w) + pixel.channel);
        for (int i = 0; i < kWidth; ++i) sum[i] += gradient[i];
      }
    }
    for (int i = 0; i < kWidth; ++i) sum[i] *= weight;
    Store<kWidth>(dx + item * kWidth, sum);
  }
};

// Input and output of a pooling layer, and the choices of max pooling.
template <typename Shape>
double PoolBytes(const Shape& shape, const PoolGeometry& geometry, bool choice) {
  const int64_t inputs = geometry.pixel_vectors(shape.samples, 1);
  const int64_t outputs = geometry.window_vectors(shape.samples, 1);
  return ArrayBytes(shape.type, inputs + outputs) +
         (choice ? ArrayBytes(DataType::kUint8, outputs) : 0);
}

float CellWeight(const AveragePoolShape& shape) {
  return 1.0f / static_cast<float>(shape.kernel_height * shape.kernel_width);
}

}  // namespace

void MaxPoolForward(const PoolShape& shape, const void* x, void* y, uint8_t* choice) {
  const PoolGeometry geometry(shape);
  StateWork(PoolBytes(shape, geometry, choice != nullptr));
  DispatchWidth(shape.type, shape.channels, {x, y, choice}, [&](auto element, auto width) {
    using Storage = decltype(element);
    ForEachItem(geometry.window_vectors(shape.samples, width),
                MaxPoolForwardBody<Storage, width>{geometry, geometry.Windows(width), shape.relu,
                                                   static_cast<const Storage*>(x),
                                                   static_cast<Storage*>(y), choice});
  });
}

void MaxPoolBackward(const PoolShape& shape, const void* dy, const uint8_t* choice, void* dx) {
  const PoolGeometry geometry(shape);
  StateWork(PoolBytes(shape, geometry, /*choice=*/true));
  DispatchWidth(shape.type, shape.channels, {dy, choice, dx}, [&](auto element, auto width) {
    using Storage = decltype(element);
    ForEachItem(geometry.pixel_vectors(shape.samples, width),
                MaxPoolBackwardBody<Storage, width>{geometry, geometry.Pixels(width),
                                                    static_cast<const Storage*>(dy), choice,
                                                    static_cast<Storage*>(dx)});
  });
}

void AveragePoolForward(const AveragePoolShape& shape, const void* x, void* y) {
  const PoolGeometry geometry(shape);
  StateWork(PoolBytes(shape, geometry, /*choice=*/false));
  DispatchWidth(shape.type, shape.channels, {x, y}, [&](auto element, auto width) {
    using Storage = decltype(element);
    ForEachItem(geometry.window_vectors(shape.samples, width),
                AveragePoolForwardBody<Storage, width>{
                    geometry, geometry.Windows(width), CellWeight(shape),
                    static_cast<const Storage*>(x), static_cast<Storage*>(y)});
  });
}

void AveragePoolBackward(const AveragePoolShape& shape, const void* dy, void* dx) {
  const PoolGeometry geometry(shape);
  StateWork(PoolBytes(shape, geometry, /*choice=*/false));
  DispatchWidth(shape.type, shape.channels, {dy, dx}, [&](auto element, auto width) {
    using Storage = decltype(element);
    ForEachItem(geometry.pixel_vectors(shape.samples, width),
                AveragePoolBackwardBody<Storage, width>{
                    geometry, geometry.Pixels(width), CellWeight(shape),
                    static_cast<const Storage*>(dy), static_cast<Storage*>(dx)});
  });
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET
