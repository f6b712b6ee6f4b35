#include "kernels/cuda/convolution/depthwise/convolution_3x3.h"
#include "kernels/cuda/launch/channel_tiling.h"
#include "kernels/cuda/launch/windows.h"
#include "kernels/cuda/table/kernels.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {
namespace {

struct Geometry {
  int64_t channels;
  int64_t padded_channels;
  Axis vertical;
  Axis horizontal;
  DataType compute_type;

  explicit Geometry(const DepthwiseConvolutionShape& shape)
      : channels(shape.channels),
        padded_channels(shape.padded_channels()),
        vertical(shape.height, shape.kernel, shape.stride, shape.padding),
        horizontal(shape.width, shape.kernel, shape.stride, shape.padding),
        compute_type(shape.compute_type) {}

  MUSTER_HOST_DEVICE int64_t Input(int64_t sample, int64_t h, int64_t w) const {
    return ((sample * vertical.size + h) * horizontal.size + w) * channels;
  }
  MUSTER_HOST_DEVICE int64_t Output(int64_t sample, int64_t h, int64_t w) const {
    return ((sample * vertical.windows + h) * horizontal.windows + w) * channels;
  }
  // Index of the first weight of kernel position (h, w).
  MUSTER_HOST_DEVICE int64_t Weights(int64_t h, int64_t w) const {
    return (h * vertical.kernel + w) * padded_channels;
  }

  template <int kWidth, typename Storage>
  MUSTER_HOST_DEVICE Floats<kWidth> Operand(const Storage* from) const {
    Floats<kWidth> values = Load<kWidth>(from);
    for (int i = 0; i < kWidth; ++i) values[i] = Rounded(compute_type, values[i]);
    return values;
  }
};

template <typename Storage, int kWidth>
struct ForwardBody {
  Geometry geometry;
  PixelIndexer windows;
  const Storage* x;
  const float* weights;
  Epilogue epilogue;
  Storage* y;

  MUSTER_HOST_DEVICE void operator()(int64_t item) const {
    const PixelPosition out = windows.At(item);
    const Range rows = geometry.vertical.CellsOf(out.h);
    const Range columns = geometry.horizontal.CellsOf(out.w);
    const int64_t first_h = geometry.vertical.Begin(out.h);
    const int64_t first_w = geometry.horizontal.Begin(out.w);
    Floats<kWidth> sum = {};
    for (int64_t h = rows.begin; h < rows.end; ++h) {
      for (int64_t w = columns.begin; w < columns.end; ++w) {
        const int64_t in = geometry.Input(out.sample, first_h + h, first_w + w) + out.channel;
        const Floats<kWidth> values = geometry.template Operand<kWidth>(x + in);
        const Floats<kWidth> factors =
            geometry.template Operand<kWidth>(weights + geometry.Weights(h, w) + out.channel);
        for (int i = 0; i < kWidth; ++i) sum[i] += values[i] * factors[i];
      }
    }
    Floats<kWidth> added = {};
    const auto* addend = static_cast<const Storage*>(epilogue.addend);
    if (addend != nullptr) added = Load<kWidth>(addend + item * kWidth);
    for (int i = 0; i < kWidth; ++i) {
      if (epilogue.scale != nullptr) sum[i] *= epilogue.scale[out.channel + i];
      if (epilogue.shift != nullptr) sum[i] += epilogue.shift[out.channel + i];
      sum[i] = Activate(epilogue.activation, sum[i] + added[i]);
    }
    Store<kWidth>(y + item * kWidth, sum);
  }
};

template <typename Storage, int kWidth>
struct BackwardDataBody {
  Geometry geometry;
  PixelIndexer pixels;
  const Storage* dy;
  const float* weights;
  Storage* dx;

  MUSTER_HOST_DEVICE void operator()(int64_t item) const {
    const PixelPosition in = pixels.At(item);
    const Range rows = geometry.vertical.WindowsOver(in.h);
    const Range columns = geometry.horizontal.WindowsOver(in.w);
    Floats<kWidth> sum = {};
    for (int64_t h = rows.begin; h < rows.end; ++h) {
      for (int64_t w = columns.begin; w < columns.end; ++w) {
        const int64_t position = geometry.Weights(in.h - geometry.vertical.Begin(h),
                                                  in.w - geometry.horizontal.Begin(w));
        const Floats<kWidth> values =
            geometry.template Operand<kWidth>(dy + geometry.Output(in.sample, h, w) + in.channel);
        const Floats<kWidth> factors =
            geometry.template Operand<kWidth>(weights + position + in.channel);
        for (int i = 0; i < kWidth; ++i) sum[i] += values[i] * factors[i];
      }
    }
    Store<kWidth>(dx + item * kWidth, sum);
  }
};

// Terms of the gradients of weights and bias. Sum index i is kernel position i; after the last
// position, it is the bias.
template <typename Storage, int kWidth>
struct WeightsTerms {
  Geometry geometry;
  Divider by_height;  // divides by the output's height
  Divider by_width;
  int64_t positions;
  const Storage* x;
  const Storage* dy;

  struct PerThread {
    WeightsTerms all;
    bool bias;
    int64_t h;  // the kernel position
    int64_t w;
    int64_t channel;
    MUSTER_HOST_DEVICE void Add(int64_t pixel, Floats<kWidth>* sums) const {
      const Geometry& geometry = all.geometry;
      const Storage* from = all.dy + pixel * geometry.channels + channel;
      if (bias) {
        const Floats<kWidth> gradient = geometry.template Operand<kWidth>(from);
        for (int i = 0; i < kWidth; ++i) sums[0][i] += gradient[i];
        return;
      }
      int64_t sample = pixel;
      const int64_t in_w = geometry.horizontal.Begin(all.by_width.DivMod(sample)) + w;
      const int64_t in_h = geometry.vertical.Begin(all.by_height.DivMod(sample)) + h;
      if (in_h < 0 || in_h >= geometry.vertical.size) return;
      if (in_w < 0 || in_w >= geometry.horizontal.size) return;
      const Floats<kWidth> gradient = geometry.template Operand<kWidth>(from);
      const Floats<kWidth> values =
          geometry.template Operand<kWidth>(all.x + geometry.Input(sample, in_h, in_w) + channel);
      for (int i = 0; i < kWidth; ++i) sums[0][i] += gradient[i] * values[i];
    }
  };
  MUSTER_HOST_DEVICE PerThread operator()(int64_t index, int64_t channel) const {
    const int64_t kernel = geometry.vertical.kernel;
    return {*this, index == positions, index / kernel, index % kernel, channel};
  }
};

struct WeightsFinish {
  int64_t channels;
  int64_t padded_channels;
  int64_t positions;
  float* dweights;
  float* dbias;  // or null
  MUSTER_HOST_DEVICE void operator()(int64_t index, int64_t channel, const double* sums) const {
    if (index == positions) {
      if (dbias != nullptr) dbias[channel] = static_cast<float>(sums[0]);
      return;
    }
    float* const weights = dweights + index * padded_channels;
    weights[channel] = static_cast<float>(sums[0]);
    if (channel != channels - 1) return;
    for (int64_t c = channels; c < padded_channels; ++c) weights[c] = 0;
  }
};

// States the work of one direction: input, output and weights.
void StateDepthwise(const DepthwiseConvolutionShape& shape, bool addend = false) {
  const int64_t inputs = shape.samples * shape.input_elements();
  const int64_t outputs = shape.samples * shape.output_elements();
  StateWork(ArrayBytes(shape.type, inputs + outputs * (addend ? 2 : 1)) +
                ArrayBytes(DataType::kFloat32, shape.weights_elements()),
            2.0 * static_cast<double>(outputs * shape.kernel * shape.kernel));
}

}  // namespace

void DepthwiseConvolutionForward(const DepthwiseConvolutionShape& shape, const void* x,
                                 const float* weights, const Epilogue& epilogue, void* y) {
  StateDepthwise(shape, epilogue.addend != nullptr);
  if (IsDepthwise3x3(shape, {x, weights, epilogue.addend, y})) {
    return Depthwise3x3Forward(shape, x, weights, epilogue, y);
  }
  const Geometry geometry(shape);
  DispatchWidth(
      shape.type, shape.channels, {x, weights, epilogue.addend, y}, [&](auto element, auto width) {
        using Storage = decltype(element);
        const int64_t vectors = shape.channels / width;
        const PixelIndexer windows(shape.out_height(), shape.out_width(), vectors, width);
        ForEachItem(shape.samples * shape.out_height() * shape.out_width() * vectors,
                    ForwardBody<Storage, width>{geometry, windows, static_cast<const Storage*>(x),
                                                weights, epilogue, static_cast<Storage*>(y)});
      });
}

void DepthwiseConvolutionBackwardData(const DepthwiseConvolutionShape& shape, const void* dy,
                                      const float* weights, void* dx) {
  StateDepthwise(shape);
  if (IsDepthwise3x3(shape, {dy, weights, dx})) {
    return Depthwise3x3BackwardData(shape, dy, weights, dx);
  }
  const Geometry geometry(shape);
  DispatchWidth(shape.type, shape.channels, {dy, weights, dx}, [&](auto element, auto width) {
    using Storage = decltype(element);
    const int64_t vectors = shape.channels / width;
    const PixelIndexer pixels(shape.height, shape.width, vectors, width);
    ForEachItem(shape.samples * shape.height * shape.width * vectors,
                BackwardDataBody<Storage, width>{geometry, pixels, static_cast<const Storage*>(dy),
                                                 weights, static_cast<Storage*>(dx)});
  });
}

void DepthwiseConvolutionBackwardWeights(const DepthwiseConvolutionShape& shape, const void* x,
                                         const void* dy, float* dweights, float* dbias) {
  StateDepthwise(shape);
  if (IsDepthwise3x3(shape, {x, dy})) {
    return Depthwise3x3BackwardWeights(shape, x, dy, dweights, dbias);
  }
  const Geometry geometry(shape);
  const int64_t positions = shape.kernel * shape.kernel;
  const WeightsFinish finish{shape.channels, shape.padded_channels(), positions, dweights, dbias};
  DispatchWidth(shape.type, shape.channels, {x, dy}, [&](auto element, auto width) {
    using Storage = decltype(element);
    const WeightsTerms<Storage, width> terms{
        geometry,  Divider(shape.out_height()),    Divider(shape.out_width()),
        positions, static_cast<const Storage*>(x), static_cast<const Storage*>(dy)};
    // With or without a bias, compute the same number of sums, so that those of the weights are
    // added up in the same order.
    SumOverPixels<width, 1>(shape.samples * shape.out_height() * shape.out_width(), shape.channels,
                            positions + 1, terms, finish);
  });
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET
