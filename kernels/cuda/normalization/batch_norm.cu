#include "kernels/cuda/normalization/batch_norm.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {
namespace {

// A value near a channel's mean: the mean of four of its values. Sums of squared distances from it
// do not suffer from cancellation.
template <typename Storage>
MUSTER_HOST_DEVICE float Centre(const Storage* x, int64_t pixels, int64_t channels,
                                int64_t channel) {
  float sum = 0;
  for (int64_t i = 0; i < 4; ++i) sum += Widen(x[i * pixels / 4 * channels + channel]);
  return sum / 4;
}

// Sums of a channel's distances from its centre, and of their squares.
template <typename Storage, int kWidth>
struct StatisticsTerms {
  int64_t pixels;
  int64_t channels;
  const Storage* x;

  struct PerThread {
    static constexpr int kInFlight = 4;
    Floats<kWidth> centre;
    const Storage* x;
    int64_t channels;
    MUSTER_HOST_DEVICE AlignedVector<Storage, kWidth> Read(int64_t pixel) const {
      return LoadStored<kWidth>(x + pixel * channels);
    }
    MUSTER_HOST_DEVICE void Add(int64_t, const AlignedVector<Storage, kWidth>& stored,
                                Floats<kWidth>* sums) const {
      const Floats<kWidth> values = Widened(stored);
      for (int i = 0; i < kWidth; ++i) {
        const float distance = values[i] - centre[i];
        sums[0][i] += distance;
        sums[1][i] += distance * distance;
      }
    }
  };
  MUSTER_HOST_DEVICE PerThread operator()(int64_t, int64_t channel) const {
    PerThread result{{}, x + channel, channels};
    for (int i = 0; i < kWidth; ++i) result.centre[i] = Centre(x, pixels, channels, channel + i);
    return result;
  }
};

template <typename Storage>
struct StatisticsFinish {
  int64_t pixels;
  int64_t channels;
  const Storage* x;
  float* mean;
  float* variance;
  MUSTER_HOST_DEVICE void operator()(int64_t, int64_t channel, const double* sums) const {
    const double count = static_cast<double>(pixels);
    const double distance = sums[0] / count;
    const double square = sums[1] / count - distance * distance;
    mean[channel] = static_cast<float>(Centre(x, pixels, channels, channel) + distance);
    variance[channel] = static_cast<float>(square < 0 ? 0 : square);
  }
};

struct ScaleBody {
  BatchNormScaling scaling;
  const float* factor_of_all;  // null means 1
  const float* mean;
  const float* variance;
  const float* gamma;
  const float* beta;
  const float* bias;  // or null
  float* inverse_deviation;
  float* scale;
  float* shift;
  MUSTER_HOST_DEVICE void operator()(int64_t c) const {
    const float inverse =
        static_cast<float>(1 / sqrt(static_cast<double>(variance[c]) + scaling.epsilon));
    const float factor = factor_of_all != nullptr ? *factor_of_all : 1.0f;
    const float product = factor * gamma[c] * inverse;
    const float added = bias != nullptr ? bias[c] : 0.0f;
    inverse_deviation[c] = inverse;
    scale[c] = product;
    shift[c] = factor * beta[c] + (added - mean[c]) * product;
  }
};

struct RunningBody {
  const float* active;  // or null
  float momentum;
  double own_pixels;
  const double* shared_pixels;  // or null
  const float* mean;
  const float* variance;
  float* running_mean;
  float* running_variance;
  MUSTER_HOST_DEVICE void operator()(int64_t c) const {
    if (active != nullptr && *active == 0) return;
    const double pixels = shared_pixels != nullptr ? *shared_pixels : own_pixels;
    if (pixels == 0) return;
    const float unbiased = pixels > 1 ? static_cast<float>(pixels / (pixels - 1)) : 1.0f;
    running_mean[c] += momentum * (mean[c] - running_mean[c]);
    running_variance[c] += momentum * (variance[c] * unbiased - running_variance[c]);
  }
};

// What follows the sums of BatchNormPrepare. The variance is where the inverse deviation will be.
template <typename Storage>
struct PrepareFinish {
  StatisticsFinish<Storage> statistics;
  RunningBody running;
  ScaleBody scale;
  MUSTER_HOST_DEVICE void operator()(int64_t index, int64_t channel, const double* sums) const {
    statistics(index, channel, sums);
    running(channel);
    scale(channel);
  }
};

struct ToSumsBody {
  int64_t channels;
  double pixels;
  const float* mean;
  const float* variance;
  double* sums;
  MUSTER_HOST_DEVICE void operator()(int64_t c) const {
    const double m = pixels > 0 ? double{mean[c]} : 0;
    const double v = pixels > 0 ? double{variance[c]} : 0;
    sums[c] = pixels * m;
    sums[channels + c] = pixels * (v + m * m);
    if (c == 0) sums[2 * channels] = pixels;
  }
};

struct FromSumsBody {
  int64_t channels;
  const double* sums;
  float* mean;
  float* variance;
  MUSTER_HOST_DEVICE void operator()(int64_t c) const {
    const double pixels = sums[2 * channels];
    if (pixels == 0) return;
    const double m = sums[c] / pixels;
    const double v = sums[channels + c] / pixels - m * m;
    mean[c] = static_cast<float>(m);
    variance[c] = v > 0 ? static_cast<float>(v) : 0.0f;
  }
};

// The summands of BatchNormAddend for a thread's channels, from the values that it read, and the
// number of pixels for whose loads a thread then has registers.
template <int kWidth>
struct PlainAddend {
  static constexpr int kPixelsInFlight = 2;
  MUSTER_HOST_DEVICE PlainAddend(const BatchNormAddend&, int64_t) {}
  MUSTER_HOST_DEVICE float operator()(int, float value) const { return value; }
};
template <int kWidth>
struct NormalizedAddend {
  static constexpr int kPixelsInFlight = 1;
  Floats<kWidth> scale;
  Floats<kWidth> shift;
  MUSTER_HOST_DEVICE NormalizedAddend(const BatchNormAddend& addend, int64_t channel)
      : scale(Channels<kWidth>(addend.scale, channel)),
        shift(Channels<kWidth>(addend.shift, channel)) {}
  MUSTER_HOST_DEVICE float operator()(int i, float value) const {
    return AffineFunctor<float>{scale[i], shift[i]}(value);
  }
};

template <typename Storage, int kWidth, typename Addend>
struct ApplyPixels {
  static constexpr int kBlocksPerMultiprocessor = 3;

  int64_t channels;
  Activation activation;
  const Storage* x;
  const float* scale;
  const float* shift;
  BatchNormAddend addend;
  Storage* y;
  uint8_t* mask;  // or null

  struct Values {
    AlignedVector<Storage, kWidth> x;
    AlignedVector<Storage, kWidth> addend;
  };
  struct PerThread {
    static constexpr int kInFlight = Addend::kPixelsInFlight;
    ApplyPixels all;
    int64_t channel;
    Floats<kWidth> scale;
    Floats<kWidth> shift;
    Addend summand;
    MUSTER_HOST_DEVICE const Storage* addend() const {
      return static_cast<const Storage*>(all.addend.data);
    }
    MUSTER_HOST_DEVICE Values Read(int64_t pixel) const {
      const int64_t at = pixel * all.channels + channel;
      Values values = {};  // all of it, because compilers convert also what is not read
      values.x = LoadStored<kWidth>(all.x + at);
      if (addend() != nullptr) values.addend = LoadStored<kWidth>(addend() + at);
      return values;
    }
    MUSTER_HOST_DEVICE void Use(int64_t pixel, const Values& read) const {
      const int64_t at = pixel * all.channels + channel;
      const Floats<kWidth> values = Widened(read.x);
      Floats<kWidth> added = {};
      if (addend() != nullptr) {
#pragma unroll
        for (int i = 0; i < kWidth; ++i) added[i] = summand(i, Widen(read.addend.values[i]));
      }
      AlignedVector<Storage, kWidth> stored;
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const float sum = AffineFunctor<float>{scale[i], shift[i]}(values[i]) + added[i];
        Narrow(Activate(all.activation, sum), stored.values[i]);
      }
      *reinterpret_cast<AlignedVector<Storage, kWidth>*>(all.y + at) = stored;
      if (all.mask == nullptr) return;
      uint32_t bits = 0;
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const float passed = ActivationGradient(all.activation, Widen(stored.values[i]), 1);
        bits |= (passed != 0 ? 1u : 0u) << i;
      }
      all.mask[at / kWidth] = static_cast<uint8_t>(bits);
    }
  };
  MUSTER_HOST_DEVICE PerThread operator()(int64_t channel) const {
    return {*this, channel, Channels<kWidth>(scale, channel), Channels<kWidth>(shift, channel),
            Addend(addend, channel)};
  }
};

template <typename Storage, int kWidth>
struct ApplyPool2x2 {
  int64_t channels;
  NonOverlapping2x2 windows;
  const Storage* x;
  const float* scale;
  const float* shift;
  Storage* y;
  uint8_t* choice;  // or null

  struct PerThread {
    ApplyPool2x2 all;
    int64_t channel;
    Floats<kWidth> scale;
    Floats<kWidth> shift;
    MUSTER_HOST_DEVICE void operator()(int64_t window) const {
      const int64_t first = all.windows.FirstPixel(window);
      Largest largest[kWidth];
      for (int corner = 0; corner < 4; ++corner) {
        const int64_t pixel = first + all.windows.CornerOffset(corner);
        const Floats<kWidth> values = Load<kWidth>(all.x + pixel * all.channels + channel);
        for (int i = 0; i < kWidth; ++i) {
          const float value = AffineFunctor<float>{scale[i], shift[i]}(values[i]);
          if (corner == 0) {
            largest[i] = {value, 0};
          } else {
            largest[i].Consider(value, corner);
          }
        }
      }
      Floats<kWidth> values;
      AlignedVector<uint8_t, kWidth> chosen;
      for (int i = 0; i < kWidth; ++i) {
        const bool dead = largest[i].value <= 0;
        values[i] = dead ? 0.0f : largest[i].value;
        chosen.values[i] = dead ? kNoChoice : static_cast<uint8_t>(largest[i].index);
      }
      const int64_t out = window * all.channels + channel;
      Store<kWidth>(all.y + out, values);
      if (all.choice == nullptr) return;
      *reinterpret_cast<AlignedVector<uint8_t, kWidth>*>(all.choice + out) = chosen;
    }
  };
  MUSTER_HOST_DEVICE PerThread operator()(int64_t channel) const {
    return {*this, channel, Channels<kWidth>(scale, channel), Channels<kWidth>(shift, channel)};
  }
};

}  // namespace

void BatchNormStatistics(const BatchNormShape& shape, const void* x, float* mean, float* variance) {
  StateWork(ArrayBytes(shape.type, shape.pixels() * shape.channels));
  DispatchWidth(shape.type, shape.channels, {x}, [&](auto element, auto width) {
    using Storage = decltype(element);
    const int64_t pixels = shape.pixels();
    const auto* from = static_cast<const Storage*>(x);
    SumOverPixels<width, 2>(
        pixels, shape.channels, 1, StatisticsTerms<Storage, width>{pixels, shape.channels, from},
        StatisticsFinish<Storage>{pixels, shape.channels, from, mean, variance});
  });
}

void BatchNormScale(const BatchNormScaling& scaling, const float* factor, const float* mean,
                    const float* variance, const float* gamma, const float* beta, const float* bias,
                    float* inverse_deviation, float* scale, float* shift) {
  ForEachItem(scaling.channels, ScaleBody{scaling, factor, mean, variance, gamma, beta, bias,
                                          inverse_deviation, scale, shift});
}

void BatchNormToSums(int64_t channels, double pixels, const float* mean, const float* variance,
                     double* sums) {
  ForEachItem(channels, ToSumsBody{channels, pixels, mean, variance, sums});
}

void BatchNormFromSums(int64_t channels, const double* sums, float* mean, float* variance) {
  ForEachItem(channels, FromSumsBody{channels, sums, mean, variance});
}

void BatchNormRunning(const BatchNormMomentum& momentum, const float* active, const float* mean,
                      const float* variance, float* running_mean, float* running_variance) {
  ForEachItem(momentum.channels,
              RunningBody{active, static_cast<float>(momentum.momentum), momentum.pixels,
                          momentum.shared_pixels, mean, variance, running_mean, running_variance});
}

void BatchNormPrepare(const BatchNormShape& shape, const void* x,
                      const BatchNormTraining& training) {
  StateWork(ArrayBytes(shape.type, shape.pixels() * shape.channels));
  float* const mean = training.mean;
  float* const variance = training.inverse_deviation;
  const RunningBody running{training.active,
                            static_cast<float>(training.momentum),
                            static_cast<double>(shape.pixels()),
                            /*shared_pixels=*/nullptr,
                            mean,
                            variance,
                            training.running_mean,
                            training.running_variance};
  const ScaleBody scale{{.channels = shape.channels, .epsilon = training.epsilon},
                        training.factor,
                        mean,
                        variance,
                        training.gamma,
                        training.beta,
                        /*bias=*/nullptr,
                        training.inverse_deviation,
                        training.scale,
                        training.shift};
  DispatchWidth(shape.type, shape.channels, {x}, [&](auto element, auto width) {
    using Storage = decltype(element);
    const int64_t pixels = shape.pixels();
    const auto* from = static_cast<const Storage*>(x);
    SumOverPixels<width, 2>(
        pixels, shape.channels, 1, StatisticsTerms<Storage, width>{pixels, shape.channels, from},
        PrepareFinish<Storage>{{pixels, shape.channels, from, mean, variance}, running, scale});
  });
}

size_t BatchNormMaskBytes(const BatchNormShape& shape) {
  if (shape.pool || shape.activation == Activation::kNone) return 0;
  return static_cast<size_t>(MaskBytes(shape));
}

void BatchNormApply(const BatchNormShape& shape, const void* x, const float* scale,
                    const float* shift, const BatchNormAddend& addend, void* y, uint8_t* choice) {
  if (shape.pool && !shape.pools_2x2()) return ApplyPool(shape, x, scale, shift, y, choice);
  const int64_t inputs = shape.pixels() * shape.channels;
  const int64_t outputs = shape.out_pixels() * shape.channels;
  uint8_t* const mask = BatchNormMaskBytes(shape) > 0 ? choice : nullptr;
  double choices = 0;
  if (shape.pool && choice != nullptr) choices = ArrayBytes(DataType::kUint8, outputs);
  if (mask != nullptr) choices = MaskBytes(shape);
  StateWork(ArrayBytes(shape.type, inputs * (addend.data != nullptr ? 2 : 1) + outputs) + choices);
  const auto arrays = {x, addend.data, static_cast<const void*>(y),
                       static_cast<const void*>(choice)};
  DispatchWidth(shape.type, shape.channels, arrays, [&](auto element, auto width) {
    using Storage = decltype(element);
    const auto* from = static_cast<const Storage*>(x);
    auto* to = static_cast<Storage*>(y);
    if (shape.pool) {
      ForEachPixel<width>(shape.out_pixels(), shape.channels,
                          ApplyPool2x2<Storage, width>{shape.channels, NonOverlapping2x2(shape),
                                                       from, scale, shift, to, choice});
    } else if (addend.scale != nullptr) {
      ForEachPixel<width>(
          shape.pixels(), shape.channels,
          ApplyPixels<Storage, width, NormalizedAddend<width>>{
              shape.channels, shape.activation, from, scale, shift, addend, to, mask});
    } else {
      ForEachPixel<width>(
          shape.pixels(), shape.channels,
          ApplyPixels<Storage, width, PlainAddend<width>>{shape.channels, shape.activation, from,
                                                          scale, shift, addend, to, mask});
    }
  });
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET
