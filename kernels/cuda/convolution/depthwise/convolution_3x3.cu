#include "kernels/cuda/convolution/depthwise/convolution_3x3.h"
#include "kernels/cuda/launch/channel_tiling.h"
#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/launch/windows.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {
namespace {

constexpr int kKernel = 3;
constexpr int kStrip = 4;  // pixels
constexpr int kWaves = 8;

// Images [samples, height, width, channels].
struct Pixels {
  int height;
  int width;
  int channels;
  // Index of the first element of a row.
  MUSTER_HOST_DEVICE int64_t At(int64_t sample, int h) const {
    return (sample * height + h) * width * channels;
  }
};

// Loads kCount adjacent pixels of a row; pixels outside the image are zero.
template <int kCount, int kWidth, typename Storage>
MUSTER_HOST_DEVICE void LoadRow(const Storage* row, const Pixels& pixels, int first, int channel,
                                AlignedVector<Storage, kWidth> (&loaded)[kCount]) {
  for (int i = 0; i < kCount; ++i) {
    loaded[i] = {};
    const int w = first + i;
    if (w < 0 || w >= pixels.width) continue;
    const Storage* const from = row + (w * pixels.channels + channel);
    loaded[i] = *reinterpret_cast<const AlignedVector<Storage, kWidth>*>(from);
  }
}

template <int kWidth, typename Storage>
MUSTER_HOST_DEVICE Floats<kWidth> Widened(const AlignedVector<Storage, kWidth>& stored,
                                          DataType round_to) {
  Floats<kWidth> values;
  for (int i = 0; i < kWidth; ++i) values[i] = Widen(stored.values[i]);
  // 16-bit values need no rounding.
  if (sizeof(Storage) == 4 && round_to != DataType::kFloat32) {
    for (int i = 0; i < kWidth; ++i) values[i] = Rounded(round_to, values[i]);
  }
  return values;
}

template <int kWidth>
MUSTER_HOST_DEVICE Floats<kWidth> LoadWeights(const float* from, DataType round_to) {
  // A load has at most 16 bytes.
  constexpr int kLoad = kWidth < 4 ? kWidth : 4;
  Floats<kWidth> values;
  for (int i = 0; i < kWidth; i += kLoad) {
    const Floats<kLoad> part = Load<kLoad>(from + i);
    for (int j = 0; j < kLoad; ++j) values[i + j] = part[j];
  }
  // Branches once for all values.
  if (round_to == DataType::kBfloat16) {
    for (int i = 0; i < kWidth; ++i) values[i] = Rounded(DataType::kBfloat16, values[i]);
  } else if (round_to == DataType::kFloat16) {
    for (int i = 0; i < kWidth; ++i) values[i] = Rounded(DataType::kFloat16, values[i]);
  }
  return values;
}

template <int kWidth>
MUSTER_HOST_DEVICE void MultiplyAdd(const Floats<kWidth>& a, const Floats<kWidth>& b,
                                    Floats<kWidth>& sum) {
  for (int i = 0; i < kWidth; ++i) sum[i] += a[i] * b[i];
}

// Computes y for a strip of kStrip pixels of a row.
template <typename Storage, int kWidth, int kStride>
struct StripForwardBody {
  Pixels in;
  Pixels out;
  PixelIndexer strips;  // of `out`, with rows as the faster-moving index: w is the row, h the strip
  int padded_channels;
  DataType round_to;
  const Storage* x;
  const float* weights;
  Epilogue epilogue;
  Storage* y;

  MUSTER_HOST_DEVICE void operator()(int64_t item) const {
    const PixelPosition position = strips.At(item);
    const int channel = static_cast<int>(position.channel);
    const int out_h = static_cast<int>(position.w);
    const int out_w = static_cast<int>(position.h) * kStrip;
    Floats<kWidth> sums[kStrip] = {};
#pragma unroll
    for (int kh = 0; kh < kKernel; ++kh) {
      const int h = out_h * kStride - 1 + kh;
      if (h < 0 || h >= in.height) continue;
      constexpr int kColumns = (kStrip - 1) * kStride + kKernel;
      AlignedVector<Storage, kWidth> row[kColumns];
      LoadRow(x + in.At(position.sample, h), in, out_w * kStride - 1, channel, row);
#pragma unroll
      for (int kw = 0; kw < kKernel; ++kw) {
        const Floats<kWidth> factors = LoadWeights<kWidth>(
            weights + (kh * kKernel + kw) * padded_channels + channel, round_to);
#pragma unroll
        for (int i = 0; i < kStrip; ++i) {
          MultiplyAdd(Widened(row[i * kStride + kw], round_to), factors, sums[i]);
        }
      }
    }
    Finish(position.sample, out_h, out_w, channel, sums);
  }

  MUSTER_HOST_DEVICE void Finish(int64_t sample, int h, int first, int channel,
                                 Floats<kWidth> (&sums)[kStrip]) const {
    const int64_t row = out.At(sample, h) + channel;
    const auto* const addend = static_cast<const Storage*>(epilogue.addend);
    const bool plain = epilogue.scale == nullptr && epilogue.shift == nullptr &&
                       addend == nullptr && epilogue.activation == Activation::kNone;
    if (plain) {
#pragma unroll
      for (int i = 0; i < kStrip; ++i) {
        if (first + i >= out.width) return;
        Store<kWidth>(y + row + static_cast<int64_t>(first + i) * out.channels, sums[i]);
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < kStrip; ++i) {
      if (first + i >= out.width) return;
      const int64_t at = row + static_cast<int64_t>(first + i) * out.channels;
      Floats<kWidth> added = {};
      if (addend != nullptr) added = Load<kWidth>(addend + at);
      for (int c = 0; c < kWidth; ++c) {
        if (epilogue.scale != nullptr) sums[i][c] *= epilogue.scale[channel + c];
        if (epilogue.shift != nullptr) sums[i][c] += epilogue.shift[channel + c];
        sums[i][c] = Activate(epilogue.activation, sums[i][c] + added[c]);
      }
      Store<kWidth>(y + at, sums[i]);
    }
  }
};

// Computes dx for a strip of kStrip pixels of a row. kStrip is a multiple of the stride, so that
// all strips have the same arrangement of windows.
template <typename Storage, int kWidth, int kStride>
struct StripBackwardDataBody {
  static_assert(kStrip % kStride == 0);
  Pixels in;
  Pixels out;
  PixelIndexer strips;  // of `in`, as above
  int padded_channels;
  DataType round_to;
  const Storage* dy;
  const float* weights;
  Storage* dx;

  MUSTER_HOST_DEVICE void operator()(int64_t item) const {
    const PixelPosition position = strips.At(item);
    const int channel = static_cast<int>(position.channel);
    const int in_h = static_cast<int>(position.w);
    const int in_w = static_cast<int>(position.h) * kStrip;
    Floats<kWidth> sums[kStrip] = {};
#pragma unroll
    for (int kh = 0; kh < kKernel; ++kh) {
      const int above = in_h + 1 - kh;  // kStride times the window's row
      if (above < 0 || above % kStride != 0 || above / kStride >= out.height) continue;
      // Pixel i and kernel column kw belong to the window at (in_w + i + 1 - kw) / kStride.
      constexpr int kFirst = kStride == 1 ? -1 : 0;
      constexpr int kColumns = kStrip / kStride - kFirst + 1;
      AlignedVector<Storage, kWidth> row[kColumns];
      LoadRow(dy + out.At(position.sample, above / kStride), out, in_w / kStride + kFirst, channel,
              row);
#pragma unroll
      for (int kw = 0; kw < kKernel; ++kw) {
        const Floats<kWidth> factors = LoadWeights<kWidth>(
            weights + (kh * kKernel + kw) * padded_channels + channel, round_to);
#pragma unroll
        for (int i = 0; i < kStrip; ++i) {
          if ((i + 1 - kw) % kStride != 0) continue;
          MultiplyAdd(Widened(row[(i + 1 - kw) / kStride - kFirst], round_to), factors, sums[i]);
        }
      }
    }
    const int64_t row = in.At(position.sample, in_h) + channel;
#pragma unroll
    for (int i = 0; i < kStrip; ++i) {
      if (in_w + i >= in.width) return;
      Store<kWidth>(dx + row + static_cast<int64_t>(in_w + i) * in.channels, sums[i]);
    }
  }
};

constexpr int kPositions = kKernel * kKernel;

// Terms of the gradients of weights and bias: the sums of the kernel positions, then that of the
// bias. The "pixels" of SumOverPixels are strips of dy, with rows as the faster-moving index.
template <typename Storage, int kWidth, int kStride>
struct StripWeightsTerms {
  Pixels in;
  Pixels out;
  Divider strips;  // per row
  Divider rows;    // per sample
  DataType round_to;
  const Storage* x;
  const Storage* dy;

  struct PerThread {
    StripWeightsTerms all;
    int channel;
    MUSTER_HOST_DEVICE void Add(int64_t strip, Floats<kWidth>* sums) const {
      int64_t sample = strip;
      const int out_h = static_cast<int>(all.rows.DivMod(sample));
      const int out_w = static_cast<int>(all.strips.DivMod(sample)) * kStrip;
      AlignedVector<Storage, kWidth> gradients[kStrip];
      LoadRow(all.dy + all.out.At(sample, out_h), all.out, out_w, channel, gradients);
#pragma unroll
      for (int i = 0; i < kStrip; ++i) {
        const Floats<kWidth> gradient = Widened(gradients[i], all.round_to);
        for (int c = 0; c < kWidth; ++c) sums[kPositions][c] += gradient[c];
      }
#pragma unroll
      for (int kh = 0; kh < kKernel; ++kh) {
        const int h = out_h * kStride - 1 + kh;
        if (h < 0 || h >= all.in.height) continue;
        constexpr int kColumns = (kStrip - 1) * kStride + kKernel;
        AlignedVector<Storage, kWidth> row[kColumns];
        LoadRow(all.x + all.in.At(sample, h), all.in, out_w * kStride - 1, channel, row);
#pragma unroll
        for (int i = 0; i < kStrip; ++i) {
          const Floats<kWidth> gradient = Widened(gradients[i], all.round_to);
#pragma unroll
          for (int kw = 0; kw < kKernel; ++kw) {
            MultiplyAdd(Widened(row[i * kStride + kw], all.round_to), gradient,
                        sums[kh * kKernel + kw]);
          }
        }
      }
    }
  };
  MUSTER_HOST_DEVICE PerThread operator()(int64_t, int64_t channel) const {
    return {*this, static_cast<int>(channel)};
  }
};

struct StripWeightsFinish {
  int64_t channels;
  int64_t padded_channels;
  float* dweights;
  float* dbias;  // or null
  MUSTER_HOST_DEVICE void operator()(int64_t, int64_t channel, const double* sums) const {
    for (int i = 0; i < kPositions; ++i) {
      float* const weights = dweights + i * padded_channels;
      weights[channel] = static_cast<float>(sums[i]);
      if (channel != channels - 1) continue;
      for (int64_t c = channels; c < padded_channels; ++c) weights[c] = 0;
    }
    if (dbias != nullptr) dbias[channel] = static_cast<float>(sums[kPositions]);
  }
};

Pixels InputOf(const DepthwiseConvolutionShape& shape) {
  return {static_cast<int>(shape.height), static_cast<int>(shape.width),
          static_cast<int>(shape.channels)};
}

Pixels OutputOf(const DepthwiseConvolutionShape& shape) {
  return {static_cast<int>(shape.out_height()), static_cast<int>(shape.out_width()),
          static_cast<int>(shape.channels)};
}

// Calls visit(element, stride): an element of the storage type, and the stride as a
// std::integral_constant.
template <typename Visit>
void Dispatch3x3(const DepthwiseConvolutionShape& shape, const Visit& visit) {
  DispatchType(shape.type, [&](auto element) {
    if (shape.stride == 1) return visit(element, std::integral_constant<int, 1>());
    visit(element, std::integral_constant<int, 2>());
  });
}

}  // namespace

bool IsDepthwise3x3(const DepthwiseConvolutionShape& shape,
                    std::initializer_list<const void*> arrays) {
  const int64_t width = 16 / static_cast<int64_t>(SizeOf(shape.type));
  constexpr int64_t kMaxElements = int64_t{1} << 30;  // per image, so that indices fit into an int
  return shape.kernel == kKernel && shape.padding == 1 && shape.stride <= 2 &&
         shape.channels % width == 0 && shape.input_elements() < kMaxElements && Aligned(arrays);
}

void Depthwise3x3Forward(const DepthwiseConvolutionShape& shape, const void* x,
                         const float* weights, const Epilogue& epilogue, void* y) {
  Dispatch3x3(shape, [&](auto element, auto stride) {
    using Storage = decltype(element);
    // With stride 2 and eight channels, the nine pixels of a row would need so many registers that
    // only one block fits on a multiprocessor.
    constexpr int kWidth = stride == 2 ? 4 : 16 / sizeof(Storage);
    const int64_t strips = CeilDiv(shape.out_width(), kStrip);
    const int64_t vectors = shape.channels / kWidth;
    ForEachItem(shape.samples * shape.out_height() * strips * vectors,
                StripForwardBody<Storage, kWidth, stride>{
                    InputOf(shape), OutputOf(shape),
                    PixelIndexer(strips, shape.out_height(), vectors, kWidth),
                    static_cast<int>(shape.padded_channels()), shape.compute_type,
                    static_cast<const Storage*>(x), weights, epilogue, static_cast<Storage*>(y)},
                kWaves);
  });
}

void Depthwise3x3BackwardData(const DepthwiseConvolutionShape& shape, const void* dy,
                              const float* weights, void* dx) {
  Dispatch3x3(shape, [&](auto element, auto stride) {
    using Storage = decltype(element);
    constexpr int kWidth = 16 / sizeof(Storage);
    const int64_t strips = CeilDiv(shape.width, kStrip);
    const int64_t vectors = shape.channels / kWidth;
    ForEachItem(
        shape.samples * shape.height * strips * vectors,
        StripBackwardDataBody<Storage, kWidth, stride>{
            InputOf(shape), OutputOf(shape), PixelIndexer(strips, shape.height, vectors, kWidth),
            static_cast<int>(shape.padded_channels()), shape.compute_type,
            static_cast<const Storage*>(dy), weights, static_cast<Storage*>(dx)},
        kWaves);
  });
}

void Depthwise3x3BackwardWeights(const DepthwiseConvolutionShape& shape, const void* x,
                                 const void* dy, float* dweights, float* dbias) {
  const StripWeightsFinish finish{shape.channels, shape.padded_channels(), dweights, dbias};
  Dispatch3x3(shape, [&](auto element, auto stride) {
    using Storage = decltype(element);
    constexpr int kWidth = 4;  // the sums of wider vectors do not fit into registers
    const int64_t strips = CeilDiv(shape.out_width(), kStrip);
    const StripWeightsTerms<Storage, kWidth, stride> terms{InputOf(shape),
                                                           OutputOf(shape),
                                                           Divider(strips),
                                                           Divider(shape.out_height()),
                                                           shape.compute_type,
                                                           static_cast<const Storage*>(x),
                                                           static_cast<const Storage*>(dy)};
    SumOverPixels<kWidth, kPositions + 1>(shape.samples * shape.out_height() * strips,
                                          shape.channels, 1, terms, finish);
  });
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET
