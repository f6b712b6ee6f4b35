#include "kernels/cuda/convolution/depthwise/convolution_3x3.h"
#include "kernels/cuda/launch/channel_tiling.h"
#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/launch/windows.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {
namespace {

constexpr int kKernel = 3;
constexpr int kStrip = 4;  // pixels
constexpr int kWaves = 8;

// Images [rows, height, width, channels].
struct Pixels {
  int height;
  int width;
  int channels;
  MUSTER_HOST_DEVICE int64_t At(int64_t row, int h) const {
    return (row * height + h) * width * channels;
  }
};

// Loads kCount neighbouring pixels of a line; zero are those outside.
template <int kCount, int kWidth, typename Storage>
MUSTER_HOST_DEVICE void LoadLine(const Storage* line, const Pixels& pixels, int first, int channel,
                                 Stored<Storage, kWidth> (&loaded)[kCount]) {
  for (int i = 0; i < kCount; ++i) {
    loaded[i] = {};
    const int w = first + i;
    if (w < 0 || w >= pixels.width) continue;
    const Storage* const from = line + (w * pixels.channels + channel);
    loaded[i] = *reinterpret_cast<const Stored<Storage, kWidth>*>(from);
  }
}

template <int kWidth, typename Storage>
MUSTER_HOST_DEVICE Floats<kWidth> Widened(const Stored<Storage, kWidth>& stored,
                                          DataType round_to) {
  Floats<kWidth> values;
  for (int i = 0; i < kWidth; ++i) values[i] = Widen(stored.values[i]);
  // What is stored in 16 bits is rounded already.
  if (sizeof(Storage) == 4 && round_to != DataType::kFloat32) {
    for (int i = 0; i < kWidth; ++i) values[i] = Rounded(round_to, values[i]);
  }
  return values;
}

template <int kWidth>
MUSTER_HOST_DEVICE Floats<kWidth> LoadWeights(const float* from, DataType round_to) {
  // 16 bytes are the most that one load takes.
  constexpr int kPart = kWidth < 4 ? kWidth : 4;
  Floats<kWidth> values;
  for (int i = 0; i < kWidth; i += kPart) {
    const Floats<kPart> part = Load<kPart>(from + i);
    for (int j = 0; j < kPart; ++j) values[i + j] = part[j];
  }
  // One branch for all values.
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

// y at `first` to first + kStrip of a line.
template <typename Storage, int kWidth, int kStride>
struct StripForwardBody {
  Pixels in;
  Pixels out;
  Images strips;  // of out, columns of strips before lines
  int padded_channels;
  DataType round_to;
  const Storage* x;
  const float* weights;
  Epilogue epilogue;
  Storage* y;

  MUSTER_HOST_DEVICE void operator()(int64_t item) const {
    const Place place = strips.At(item);
    const int channel = static_cast<int>(place.channel);
    const int out_h = static_cast<int>(place.w);
    const int out_w = static_cast<int>(place.h) * kStrip;
    Floats<kWidth> sums[kStrip] = {};
#pragma unroll
    for (int kh = 0; kh < kKernel; ++kh) {
      const int h = out_h * kStride - 1 + kh;
      if (h < 0 || h >= in.height) continue;
      constexpr int kColumns = (kStrip - 1) * kStride + kKernel;
      Stored<Storage, kWidth> line[kColumns];
      LoadLine(x + in.At(place.row, h), in, out_w * kStride - 1, channel, line);
#pragma unroll
      for (int kw = 0; kw < kKernel; ++kw) {
        const Floats<kWidth> factors = LoadWeights<kWidth>(
            weights + (kh * kKernel + kw) * padded_channels + channel, round_to);
#pragma unroll
        for (int i = 0; i < kStrip; ++i) {
          MultiplyAdd(Widened(line[i * kStride + kw], round_to), factors, sums[i]);
        }
      }
    }
    Finish(place.row, out_h, out_w, channel, sums);
  }

  MUSTER_HOST_DEVICE void Finish(int64_t row, int h, int first, int channel,
                                 Floats<kWidth> (&sums)[kStrip]) const {
    const int64_t line = out.At(row, h) + channel;
    const auto* const addend = static_cast<const Storage*>(epilogue.addend);
    const bool plain = epilogue.scale == nullptr && epilogue.shift == nullptr &&
                       addend == nullptr && epilogue.activation == Activation::kNone;
    if (plain) {
#pragma unroll
      for (int i = 0; i < kStrip; ++i) {
        if (first + i >= out.width) return;
        Store<kWidth>(y + line + static_cast<int64_t>(first + i) * out.channels, sums[i]);
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < kStrip; ++i) {
      if (first + i >= out.width) return;
      const int64_t at = line + static_cast<int64_t>(first + i) * out.channels;
      Floats<kWidth> added = {};
      if (addend != nullptr) added = Load<kWidth>(addend + at);
      for (int c = 0; c < kWidth; ++c) {
        if (epilogue.scale != nullptr) sums[i][c] *= epilogue.scale[channel + c];
        if (epilogue.shift != nullptr) sums[i][c] += epilogue.shift[channel + c];
        sums[i][c] = Activated(epilogue.activation, sums[i][c] + added[c]);
      }
      Store<kWidth>(y + at, sums[i]);
    }
  }
};

// dx at `first` to first + kStrip of a line. kStrip is a multiple of the stride, so that the same
// windows cover each strip's pixels.
template <typename Storage, int kWidth, int kStride>
struct StripBackwardDataBody {
  static_assert(kStrip % kStride == 0);
  Pixels in;
  Pixels out;
  Images strips;  // of in, columns of strips before lines
  int padded_channels;
  DataType round_to;
  const Storage* dy;
  const float* weights;
  Storage* dx;

  MUSTER_HOST_DEVICE void operator()(int64_t item) const {
    const Place place = strips.At(item);
    const int channel = static_cast<int>(place.channel);
    const int in_h = static_cast<int>(place.w);
    const int in_w = static_cast<int>(place.h) * kStrip;
    Floats<kWidth> sums[kStrip] = {};
#pragma unroll
    for (int kh = 0; kh < kKernel; ++kh) {
      const int above = in_h + 1 - kh;  // kStride times the window
      if (above < 0 || above % kStride != 0 || above / kStride >= out.height) continue;
      // The window of pixel i and kernel column kw is (i + 1 - kw) / kStride from the strip's.
      constexpr int kFirst = kStride == 1 ? -1 : 0;
      constexpr int kColumns = kStrip / kStride - kFirst + 1;
      Stored<Storage, kWidth> line[kColumns];
      LoadLine(dy + out.At(place.row, above / kStride), out, in_w / kStride + kFirst, channel,
               line);
#pragma unroll
      for (int kw = 0; kw < kKernel; ++kw) {
        const Floats<kWidth> factors = LoadWeights<kWidth>(
            weights + (kh * kKernel + kw) * padded_channels + channel, round_to);
#pragma unroll
        for (int i = 0; i < kStrip; ++i) {
          if ((i + 1 - kw) % kStride != 0) continue;
          MultiplyAdd(Widened(line[(i + 1 - kw) / kStride - kFirst], round_to), factors, sums[i]);
        }
      }
    }
    const int64_t line = in.At(place.row, in_h) + channel;
#pragma unroll
    for (int i = 0; i < kStrip; ++i) {
      if (in_w + i >= in.width) return;
      Store<kWidth>(dx + line + static_cast<int64_t>(in_w + i) * in.channels, sums[i]);
    }
  }
};

constexpr int kPositions = kKernel * kKernel;

// A thread's sums are those of the kernel positions, then that of the bias; its "pixels" are
// strips of dy, columns of strips before lines.
template <typename Storage, int kWidth, int kStride>
struct StripWeightsTerms {
  Pixels in;
  Pixels out;
  Divider strips;  // of a line
  Divider lines;   // of a row
  DataType round_to;
  const Storage* x;
  const Storage* dy;

  struct Mine {
    StripWeightsTerms all;
    int channel;
    MUSTER_HOST_DEVICE void Add(int64_t strip, Floats<kWidth>* sums) const {
      int64_t row = strip;
      const int out_h = static_cast<int>(all.lines.TakeRest(row));
      const int out_w = static_cast<int>(all.strips.TakeRest(row)) * kStrip;
      Stored<Storage, kWidth> gradients[kStrip];
      LoadLine(all.dy + all.out.At(row, out_h), all.out, out_w, channel, gradients);
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
        Stored<Storage, kWidth> line[kColumns];
        LoadLine(all.x + all.in.At(row, h), all.in, out_w * kStride - 1, channel, line);
#pragma unroll
        for (int i = 0; i < kStrip; ++i) {
          const Floats<kWidth> gradient = Widened(gradients[i], all.round_to);
#pragma unroll
          for (int kw = 0; kw < kKernel; ++kw) {
            MultiplyAdd(Widened(line[i * kStride + kw], all.round_to), gradient,
                        sums[kh * kKernel + kw]);
          }
        }
      }
    }
  };
  MUSTER_HOST_DEVICE Mine operator()(int64_t, int64_t channel) const {
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
      float* const line = dweights + i * padded_channels;
      line[channel] = static_cast<float>(sums[i]);
      if (channel != channels - 1) continue;
      for (int64_t c = channels; c < padded_channels; ++c) line[c] = 0;
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

// Calls visit(an element of the storage, the stride).
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
  constexpr int64_t kMost = int64_t{1} << 30;  // of an image's elements
  return shape.kernel == kKernel && shape.padding == 1 && shape.stride <= 2 &&
         shape.channels % width == 0 && shape.input_elements() < kMost && Aligned(arrays);
}

void Depthwise3x3Forward(const DepthwiseConvolutionShape& shape, const void* x,
                         const float* weights, const Epilogue& epilogue, void* y) {
  Dispatch3x3(shape, [&](auto element, auto stride) {
    using Storage = decltype(element);
    // Lines of nine pixels of eight channels would leave registers for one block alone.
    constexpr int kWidth = stride == 2 ? 4 : 16 / sizeof(Storage);
    const int64_t strips = Quotient(shape.out_width(), kStrip);
    const int64_t vectors = shape.channels / kWidth;
    ForEachItem(
        shape.rows * shape.out_height() * strips * vectors,
        StripForwardBody<Storage, kWidth, stride>{
            InputOf(shape), OutputOf(shape), Images(strips, shape.out_height(), vectors, kWidth),
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
    const int64_t strips = Quotient(shape.width, kStrip);
    const int64_t vectors = shape.channels / kWidth;
    ForEachItem(shape.rows * shape.height * strips * vectors,
                StripBackwardDataBody<Storage, kWidth, stride>{
                    InputOf(shape), OutputOf(shape), Images(strips, shape.height, vectors, kWidth),
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
    constexpr int kWidth = 4;  // more sums than this would not stay in registers
    const int64_t strips = Quotient(shape.out_width(), kStrip);
    const StripWeightsTerms<Storage, kWidth, stride> terms{InputOf(shape),
                                                           OutputOf(shape),
                                                           Divider(strips),
                                                           Divider(shape.out_height()),
                                                           shape.compute_type,
                                                           static_cast<const Storage*>(x),
                                                           static_cast<const Storage*>(dy)};
    SumColumns<kWidth, kPositions + 1>(shape.rows * shape.out_height() * strips, shape.channels, 1,
                                       terms, finish);
  });
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET
