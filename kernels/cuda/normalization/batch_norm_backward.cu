#include "kernels/cuda/normalization/batch_norm.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {
namespace {

// The activation's mask on dy, without pooling.
template <typename Storage, int kWidth>
struct Mask {
  Activation activation;
  const Storage* y;  // or null
  Floats<kWidth> scale;
  Floats<kWidth> shift;
  MUSTER_HOST_DEVICE Floats<kWidth> Apply(int64_t at, const Floats<kWidth>& x,
                                          Floats<kWidth> dy) const {
    if (activation == Activation::kNone) return dy;
    Floats<kWidth> outputs;
    if (y != nullptr) {
      outputs = Load<kWidth>(y + at);
    } else {
      for (int i = 0; i < kWidth; ++i) {
        outputs[i] = AffineFunctor<float>{scale[i], shift[i]}(x[i]);
      }
    }
    for (int i = 0; i < kWidth; ++i) dy[i] = ActivationGradient(activation, outputs[i], dy[i]);
    return dy;
  }
};

template <typename Storage, int kWidth>
MUSTER_HOST_DEVICE Mask<Storage, kWidth> MaskOf(Activation activation,
                                                const BatchNormGradient& gradient,
                                                int64_t channel) {
  Mask<Storage, kWidth> mask{activation, static_cast<const Storage*>(gradient.y), {}, {}};
  if (activation == Activation::kNone || gradient.y != nullptr) return mask;
  mask.scale = Channels<kWidth>(gradient.scale, channel);
  mask.shift = Channels<kWidth>(gradient.shift, channel);
  return mask;
}

// Sums of dy and of dy * (x - mean), dy being masked by the activation.
template <typename Storage, int kWidth>
struct ParametersTerms {
  int64_t channels;
  Activation activation;
  BatchNormGradient gradient;
  Storage* dz;  // or null

  struct PerThread {
    int64_t channels;
    int64_t channel;
    const Storage* x;
    const Storage* dy;
    Storage* dz;
    Floats<kWidth> mean;
    Mask<Storage, kWidth> mask;
    MUSTER_HOST_DEVICE void Add(int64_t pixel, Floats<kWidth>* sums) const {
      const int64_t at = pixel * channels + channel;
      const Floats<kWidth> values = Load<kWidth>(x + at);
      const Floats<kWidth> passed = mask.Apply(at, values, Load<kWidth>(dy + at));
      for (int i = 0; i < kWidth; ++i) {
        sums[0][i] += passed[i];
        sums[1][i] += passed[i] * (values[i] - mean[i]);
      }
      if (dz != nullptr) Store<kWidth>(dz + at, passed);
    }
  };
  MUSTER_HOST_DEVICE PerThread operator()(int64_t, int64_t channel) const {
    return {channels,
            channel,
            static_cast<const Storage*>(gradient.x),
            static_cast<const Storage*>(gradient.dy),
            dz,
            Channels<kWidth>(gradient.mean, channel),
            MaskOf<Storage, kWidth>(activation, gradient, channel)};
  }
};

// The same with 2x2 max pooling.
template <typename Storage, int kWidth>
struct Pool2x2ParametersTerms {
  int64_t channels;
  NonOverlapping2x2 windows;
  BatchNormGradient gradient;

  struct PerThread {
    Pool2x2ParametersTerms all;
    int64_t channel;
    Floats<kWidth> mean;
    MUSTER_HOST_DEVICE void Add(int64_t window, Floats<kWidth>* sums) const {
      const int64_t out = window * all.channels + channel;
      const auto* x = static_cast<const Storage*>(all.gradient.x);
      const Floats<kWidth> dy = Load<kWidth>(static_cast<const Storage*>(all.gradient.dy) + out);
      const auto chosen =
          *reinterpret_cast<const AlignedVector<uint8_t, kWidth>*>(all.gradient.choice + out);
      const int64_t first = all.windows.FirstPixel(window);
      for (int corner = 0; corner < 4; ++corner) {
        const int64_t pixel = first + all.windows.CornerOffset(corner);
        const Floats<kWidth> values = Load<kWidth>(x + pixel * all.channels + channel);
        for (int i = 0; i < kWidth; ++i) {
          const float passed = chosen.values[i] == corner ? dy[i] : 0.0f;
          sums[0][i] += passed;
          sums[1][i] += passed * (values[i] - mean[i]);
        }
      }
    }
  };
  MUSTER_HOST_DEVICE PerThread operator()(int64_t, int64_t channel) const {
    return {*this, channel, Channels<kWidth>(gradient.mean, channel)};
  }
};

struct ParametersFinish {
  const float* inverse_deviation;
  float* dgamma;
  float* dbeta;
  MUSTER_HOST_DEVICE void operator()(int64_t, int64_t channel, const double* sums) const {
    dbeta[channel] = static_cast<float>(sums[0]);
    dgamma[channel] = static_cast<float>(sums[1] * inverse_deviation[channel]);
  }
};

// Per channel: dx = scale * dy + slope * x + offset.
template <int kWidth>
struct DataCoefficients {
  BatchNormBackwardFunctor<float> functors[kWidth];

  MUSTER_HOST_DEVICE DataCoefficients(const BatchNormGradient& gradient, const float* dgamma,
                                      const float* dbeta, int64_t channel) {
    const double pixels =
        gradient.shared_pixels != nullptr ? *gradient.shared_pixels : gradient.pixels;
    const double share = 1 / pixels;
    for (int i = 0; i < kWidth; ++i) {
      const int64_t c = channel + i;
      const double scale = gradient.scale[c];
      const double slope = -scale * dgamma[c] * share * gradient.inverse_deviation[c];
      const double offset = -scale * dbeta[c] * share - slope * gradient.mean[c];
      functors[i] = {gradient.scale[c], static_cast<float>(slope), static_cast<float>(offset)};
    }
  }
  MUSTER_HOST_DEVICE Floats<kWidth> operator()(const Floats<kWidth>& x,
                                               const Floats<kWidth>& dy) const {
    Floats<kWidth> dx;
    for (int i = 0; i < kWidth; ++i) dx[i] = functors[i](x[i], dy[i]);
    return dx;
  }
};

template <typename Storage, int kWidth>
struct PixelData {
  int64_t channels;
  Activation activation;
  BatchNormGradient gradient;
  const float* dgamma;
  const float* dbeta;
  Storage* dx;

  struct PerThread {
    PixelData all;
    int64_t channel;
    DataCoefficients<kWidth> coefficients;
    Mask<Storage, kWidth> mask;
    MUSTER_HOST_DEVICE void operator()(int64_t pixel) const {
      const int64_t at = pixel * all.channels + channel;
      const Floats<kWidth> x = Load<kWidth>(static_cast<const Storage*>(all.gradient.x) + at);
      const Floats<kWidth> dy = Load<kWidth>(static_cast<const Storage*>(all.gradient.dy) + at);
      Store<kWidth>(all.dx + at, coefficients(x, mask.Apply(at, x, dy)));
    }
  };
  MUSTER_HOST_DEVICE PerThread operator()(int64_t channel) const {
    return {*this, channel, DataCoefficients<kWidth>(gradient, dgamma, dbeta, channel),
            MaskOf<Storage, kWidth>(activation, gradient, channel)};
  }
};

template <typename Storage, int kWidth>
struct Pool2x2Data {
  int64_t channels;
  NonOverlapping2x2 windows;
  BatchNormGradient gradient;
  const float* dgamma;
  const float* dbeta;
  Storage* dx;

  struct PerThread {
    Pool2x2Data all;
    int64_t channel;
    DataCoefficients<kWidth> coefficients;
    MUSTER_HOST_DEVICE void operator()(int64_t pixel) const {
      const int64_t at = pixel * all.channels + channel;
      const Floats<kWidth> x = Load<kWidth>(static_cast<const Storage*>(all.gradient.x) + at);
      int corner;
      const int64_t window = all.windows.WindowOf(pixel, corner);
      Floats<kWidth> dy = {};
      if (window >= 0) {
        const int64_t out = window * all.channels + channel;
        dy = Load<kWidth>(static_cast<const Storage*>(all.gradient.dy) + out);
        const auto chosen =
            *reinterpret_cast<const AlignedVector<uint8_t, kWidth>*>(all.gradient.choice + out);
        for (int i = 0; i < kWidth; ++i) dy[i] = chosen.values[i] == corner ? dy[i] : 0.0f;
      }
      Store<kWidth>(all.dx + at, coefficients(x, dy));
    }
  };
  MUSTER_HOST_DEVICE PerThread operator()(int64_t channel) const {
    return {*this, channel, DataCoefficients<kWidth>(gradient, dgamma, dbeta, channel)};
  }
};

// What both passes read.
double GradientBytes(const BatchNormShape& shape, const BatchNormGradient& gradient) {
  const int64_t inputs = shape.pixels() * shape.channels;
  const int64_t outputs = shape.out_pixels() * shape.channels;
  const bool reads_y = shape.activation != Activation::kNone && gradient.y != nullptr;
  return ArrayBytes(shape.type, inputs * (reads_y ? 2 : 1) + outputs) +
         (shape.pool ? ArrayBytes(DataType::kUint8, outputs) : 0);
}

}  // namespace

void BatchNormBackwardParameters(const BatchNormShape& shape, const BatchNormGradient& gradient,
                                 float* dgamma, float* dbeta, void* dz) {
  StateWork(GradientBytes(shape, gradient) +
            (dz != nullptr ? ArrayBytes(shape.type, shape.pixels() * shape.channels) : 0));
  const ParametersFinish finish{gradient.inverse_deviation, dgamma, dbeta};
  DispatchWidth(shape.type, shape.channels,
                {gradient.x, gradient.dy, gradient.y, shape.pool ? gradient.choice : nullptr, dz},
                [&](auto element, auto width) {
                  using Storage = decltype(element);
                  if (shape.pool) {
                    SumOverPixels<width, 2>(shape.out_pixels(), shape.channels, 1,
                                            Pool2x2ParametersTerms<Storage, width>{
                                                shape.channels, NonOverlapping2x2(shape), gradient},
                                            finish);
                  } else {
                    SumOverPixels<width, 2>(
                        shape.pixels(), shape.channels, 1,
                        ParametersTerms<Storage, width>{shape.channels, shape.activation, gradient,
                                                        static_cast<Storage*>(dz)},
                        finish);
                  }
                });
}

void BatchNormBackwardData(const BatchNormShape& shape, const BatchNormGradient& gradient,
                           const float* dgamma, const float* dbeta, void* dx) {
  StateWork(GradientBytes(shape, gradient) +
            ArrayBytes(shape.type, shape.pixels() * shape.channels));
  DispatchWidth(shape.type, shape.channels,
                {gradient.x, gradient.dy, gradient.y, shape.pool ? gradient.choice : nullptr, dx},
                [&](auto element, auto width) {
                  using Storage = decltype(element);
                  auto* to = static_cast<Storage*>(dx);
                  if (shape.pool) {
                    ForEachPixel<width>(
                        shape.pixels(), shape.channels,
                        Pool2x2Data<Storage, width>{shape.channels, NonOverlapping2x2(shape),
                                                    gradient, dgamma, dbeta, to});
                  } else {
                    ForEachPixel<width>(shape.pixels(), shape.channels,
                                        PixelData<Storage, width>{shape.channels, shape.activation,
                                                                  gradient, dgamma, dbeta, to});
                  }
                });
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET
