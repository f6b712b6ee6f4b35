#include "kernels/cuda/normalization/batch_norm.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {
namespace {

// One pixel's vectors of the arrays that backward reads, without pooling.
template <typename Storage, int kWidth>
struct GradientValues {
  using Vector = AlignedVector<Storage, kWidth>;
  Vector x;
  Vector dy;
  Vector dy_addend;  // addend of BatchNormGradient, if it has one
  Vector y;          // if the mask is derived from it
  uint8_t mask;      // if forward wrote it
};

// Where the activation's mask is derived from; kNone without an activation. Variants, so that none
// needs the registers of all.
enum class MaskFrom { kNone, kInput, kOutput, kForward };

// Pixels whose loads are in flight in a thread, of two arrays or three.
constexpr int PixelsInFlight(MaskFrom from) { return from == MaskFrom::kOutput ? 1 : 2; }

// Reads these vectors for a thread's channels, and applies the activation's mask to dy.
template <typename Storage, int kWidth, MaskFrom kFrom>
struct GradientReader {
  using Values = GradientValues<Storage, kWidth>;

  int64_t channels;
  int64_t channel;
  Activation activation;
  const Storage* x;
  const Storage* dy;
  const Storage* dy_addend;  // or null; always null with kInput
  const Storage* y;          // with kOutput
  const uint8_t* mask;       // with kForward
  Floats<kWidth> scale;      // with kInput
  Floats<kWidth> shift;

  MUSTER_HOST_DEVICE GradientReader(const BatchNormShape& shape, const BatchNormGradient& gradient,
                                    int64_t channel)
      : channels(shape.channels),
        channel(channel),
        activation(shape.activation),
        x(static_cast<const Storage*>(gradient.x)),
        dy(static_cast<const Storage*>(gradient.dy)),
        dy_addend(static_cast<const Storage*>(gradient.dy_addend)),
        y(static_cast<const Storage*>(gradient.y)),
        mask(gradient.mask) {
    if constexpr (kFrom == MaskFrom::kInput) {
      scale = Channels<kWidth>(gradient.scale, channel);
      shift = Channels<kWidth>(gradient.shift, channel);
    }
  }

  MUSTER_HOST_DEVICE int64_t At(int64_t pixel) const { return pixel * channels + channel; }

  // `addend_pixel` is the pixel's number in dy_addend; negative if that does not cover it.
  MUSTER_HOST_DEVICE Values Read(int64_t pixel, int64_t addend_pixel) const {
    const int64_t at = At(pixel);
    Values values = {};  // all of it, because compilers convert also what is not read
    values.x = LoadStored<kWidth>(x + at);
    values.dy = LoadStored<kWidth>(dy + at);
    if constexpr (kFrom != MaskFrom::kInput) {
      if (dy_addend != nullptr && addend_pixel >= 0) {
        values.dy_addend = LoadStored<kWidth>(dy_addend + At(addend_pixel));
      }
    }
    if constexpr (kFrom == MaskFrom::kOutput) values.y = LoadStored<kWidth>(y + at);
    if constexpr (kFrom == MaskFrom::kForward) values.mask = mask[at / kWidth];
    return values;
  }
  MUSTER_HOST_DEVICE Values Read(int64_t pixel) const { return Read(pixel, pixel); }

  // The gradient of the normalised value of channel i.
  MUSTER_HOST_DEVICE float Masked(const Values& values, int i) const {
    float gradient = Widen(values.dy.values[i]);
    if constexpr (kFrom == MaskFrom::kInput) {
      const float output = AffineFunctor<float>{scale[i], shift[i]}(Widen(values.x.values[i]));
      return ActivationGradient(activation, output, gradient);
    }
    if (dy_addend != nullptr) {
      Storage sum;
      Narrow(gradient + Widen(values.dy_addend.values[i]), sum);
      gradient = Widen(sum);
    }
    if constexpr (kFrom == MaskFrom::kNone) return gradient;
    if constexpr (kFrom == MaskFrom::kForward) return (values.mask >> i & 1) != 0 ? gradient : 0.0f;
    return ActivationGradient(activation, Widen(values.y.values[i]), gradient);
  }
};

// The number in dy_addend of a pixel of dy: the same, or with BatchNormGradient::dy_addend_stride.
struct SamePixels {
  MUSTER_HOST_DEVICE int64_t operator()(int64_t pixel) const { return pixel; }
};
struct StridedPixels {
  int32_t rows;  // of dy_addend
  int32_t columns;
  Divider by_height;
  Divider by_width;
  Divider by_stride;

  StridedPixels(const BatchNormShape& shape, int64_t stride)
      : rows(static_cast<int32_t>(CeilDiv(shape.height, stride))),
        columns(static_cast<int32_t>(CeilDiv(shape.width, stride))),
        by_height(shape.height),
        by_width(shape.width),
        by_stride(stride) {}
  MUSTER_HOST_DEVICE int64_t operator()(int64_t pixel) const {
    auto sample = static_cast<int32_t>(pixel);
    int32_t column = by_width.DivModSmall(sample);
    int32_t row = by_height.DivModSmall(sample);
    const int32_t between = by_stride.DivModSmall(column) | by_stride.DivModSmall(row);
    return between != 0 ? -1 : (sample * rows + row) * columns + column;
  }
};

// Sums of dy and of dy * (x - mean), dy being masked by the activation.
template <typename Storage, int kWidth, MaskFrom kFrom, typename AddendPixels = SamePixels>
struct ParametersTerms {
  BatchNormShape shape;
  BatchNormGradient gradient;
  Storage* dz;  // or null
  AddendPixels addend_pixels;

  struct PerThread {
    using Values = GradientValues<Storage, kWidth>;
    static constexpr int kInFlight = PixelsInFlight(kFrom);
    GradientReader<Storage, kWidth, kFrom> reader;
    Storage* dz;
    AddendPixels addend_pixels;
    Floats<kWidth> mean;
    MUSTER_HOST_DEVICE Values Read(int64_t pixel) const {
      return reader.Read(pixel, addend_pixels(pixel));
    }
    MUSTER_HOST_DEVICE void Add(int64_t pixel, const Values& read, Floats<kWidth>* sums) const {
      AlignedVector<Storage, kWidth> stored;
      for (int i = 0; i < kWidth; ++i) {
        const float passed = reader.Masked(read, i);
        sums[0][i] += passed;
        sums[1][i] += passed * (Widen(read.x.values[i]) - mean[i]);
        Narrow(passed, stored.values[i]);
      }
      if (dz == nullptr) return;
      *reinterpret_cast<AlignedVector<Storage, kWidth>*>(dz + reader.At(pixel)) = stored;
    }
  };
  MUSTER_HOST_DEVICE PerThread operator()(int64_t, int64_t channel) const {
    return {
        {shape, gradient, channel}, dz, addend_pixels, Channels<kWidth>(gradient.mean, channel)};
  }
};

// The same for a sum and, as a third sum, the shortcut, whose sum of dy is that of the sum. Masks
// were written by forward.
template <typename Storage, int kWidth>
struct SumParametersTerms {
  using Reader = GradientReader<Storage, kWidth, MaskFrom::kForward>;

  BatchNormShape shape;
  BatchNormGradient gradient;
  Storage* dz;

  struct Values {
    typename Reader::Values sum;
    AlignedVector<Storage, kWidth> shortcut_x;
  };
  struct PerThread {
    static constexpr int kInFlight = 1;
    Reader reader;
    const Storage* shortcut_x;
    Storage* dz;
    Floats<kWidth> mean;
    Floats<kWidth> shortcut_mean;
    MUSTER_HOST_DEVICE Values Read(int64_t pixel) const {
      return {reader.Read(pixel), LoadStored<kWidth>(shortcut_x + reader.At(pixel))};
    }
    MUSTER_HOST_DEVICE void Add(int64_t pixel, const Values& read, Floats<kWidth>* sums) const {
      AlignedVector<Storage, kWidth> stored;
      for (int i = 0; i < kWidth; ++i) {
        const float passed = reader.Masked(read.sum, i);
        sums[0][i] += passed;
        sums[1][i] += passed * (Widen(read.sum.x.values[i]) - mean[i]);
        sums[2][i] += passed * (Widen(read.shortcut_x.values[i]) - shortcut_mean[i]);
        Narrow(passed, stored.values[i]);
      }
      *reinterpret_cast<AlignedVector<Storage, kWidth>*>(dz + reader.At(pixel)) = stored;
    }
  };
  MUSTER_HOST_DEVICE PerThread operator()(int64_t, int64_t channel) const {
    return {{shape, gradient, channel},
            static_cast<const Storage*>(gradient.shortcut.x),
            dz,
            Channels<kWidth>(gradient.mean, channel),
            Channels<kWidth>(gradient.shortcut.mean, channel)};
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

struct SumParametersFinish {
  ParametersFinish sum;
  BatchNormShortcut shortcut;
  MUSTER_HOST_DEVICE void operator()(int64_t index, int64_t channel, const double* sums) const {
    sum(index, channel, sums);
    shortcut.dbeta[channel] = static_cast<float>(sums[0]);
    shortcut.dgamma[channel] = static_cast<float>(sums[2] * shortcut.inverse_deviation[channel]);
  }
};

template <typename Storage, int kWidth, MaskFrom kFrom>
struct PixelData {
  static constexpr int kBlocksPerMultiprocessor = 3;

  BatchNormShape shape;
  BatchNormGradient gradient;
  const float* dgamma;
  const float* dbeta;
  Storage* dx;

  struct PerThread {
    using Values = GradientValues<Storage, kWidth>;
    static constexpr int kInFlight = PixelsInFlight(kFrom);
    GradientReader<Storage, kWidth, kFrom> reader;
    DataCoefficients<kWidth> coefficients;
    Storage* dx;
    MUSTER_HOST_DEVICE Values Read(int64_t pixel) const { return reader.Read(pixel); }
    MUSTER_HOST_DEVICE void Use(int64_t pixel, const Values& read) const {
      Floats<kWidth> values;
      for (int i = 0; i < kWidth; ++i) {
        values[i] = coefficients.functors[i](Widen(read.x.values[i]), reader.Masked(read, i));
      }
      Store<kWidth>(dx + reader.At(pixel), values);
    }
  };
  MUSTER_HOST_DEVICE PerThread operator()(int64_t channel) const {
    return {
        {shape, gradient, channel}, DataCoefficients<kWidth>(gradient, dgamma, dbeta, channel), dx};
  }
};

// The arrays of one batch norm's second pass.
template <typename Storage>
struct DataArrays {
  BatchNormGradient gradient;
  const float* dgamma;
  const float* dbeta;
  Storage* dx;
};

// The same for a sum and its shortcut: of two adjacent threads one computes dx of the sum, and the
// other that of the shortcut. Both load the same masked dy in the same instruction. One thread
// would need the coefficients of both.
template <typename Storage, int kWidth>
struct SumPixelData {
  static constexpr int kBlocksPerMultiprocessor = 3;

  int64_t channels;
  DataArrays<Storage> sum;
  DataArrays<Storage> shortcut;

  struct Values {
    AlignedVector<Storage, kWidth> x;
    AlignedVector<Storage, kWidth> dy;
  };
  struct PerThread {
    static constexpr int kInFlight = 2;
    int64_t channels;
    const Storage* x;
    const Storage* dy;
    Storage* dx;
    DataCoefficients<kWidth> coefficients;
    MUSTER_HOST_DEVICE Values Read(int64_t pixel) const {
      const int64_t at = pixel * channels;
      return {LoadStored<kWidth>(x + at), LoadStored<kWidth>(dy + at)};
    }
    MUSTER_HOST_DEVICE void Use(int64_t pixel, const Values& read) const {
      Store<kWidth>(dx + pixel * channels, coefficients(Widened(read.x), Widened(read.dy)));
    }
  };
  // `doubled`: index among 2 * channels, those of the sum and of the shortcut in turn.
  MUSTER_HOST_DEVICE PerThread operator()(int64_t doubled) const {
    const DataArrays<Storage>& arrays = doubled / kWidth % 2 == 0 ? sum : shortcut;
    const int64_t channel = doubled / (2 * kWidth) * kWidth;
    return {channels, static_cast<const Storage*>(arrays.gradient.x) + channel,
            static_cast<const Storage*>(arrays.gradient.dy) + channel, arrays.dx + channel,
            DataCoefficients<kWidth>(arrays.gradient, arrays.dgamma, arrays.dbeta, channel)};
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
  double masks = 0;
  if (shape.pool) {
    masks = ArrayBytes(DataType::kUint8, outputs);
  } else if (shape.activation != Activation::kNone && gradient.mask != nullptr) {
    masks = MaskBytes(shape);
  } else if (shape.activation != Activation::kNone && gradient.y != nullptr) {
    masks = ArrayBytes(shape.type, outputs);
  }
  return ArrayBytes(shape.type, inputs + outputs) + masks;
}

// Elements of dy_addend; 0 without one.
int64_t AddendElements(const BatchNormShape& shape, const BatchNormGradient& gradient) {
  if (gradient.dy_addend == nullptr) return 0;
  return shape.samples * CeilDiv(shape.height, gradient.dy_addend_stride) *
         CeilDiv(shape.width, gradient.dy_addend_stride) * shape.channels;
}

// Calls visit(element, width, mask): see DispatchWidth; `mask` is a std::integral_constant of
// MaskFrom. `to` is the output.
template <typename Visit>
void DispatchGradient(const BatchNormShape& shape, const BatchNormGradient& gradient,
                      const void* to, const Visit& visit) {
  DispatchWidth(shape.type, shape.channels,
                {gradient.x, gradient.dy, gradient.dy_addend, gradient.y,
                 shape.pool ? gradient.choice : nullptr, to},
                [&](auto element, auto width) {
                  if (shape.activation == Activation::kNone) {
                    visit(element, width, std::integral_constant<MaskFrom, MaskFrom::kNone>());
                  } else if (gradient.mask != nullptr) {
                    visit(element, width, std::integral_constant<MaskFrom, MaskFrom::kForward>());
                  } else if (gradient.y == nullptr) {
                    visit(element, width, std::integral_constant<MaskFrom, MaskFrom::kInput>());
                  } else {
                    visit(element, width, std::integral_constant<MaskFrom, MaskFrom::kOutput>());
                  }
                });
}

// The passes of one batch norm.

void BackwardParameters(const BatchNormShape& shape, const BatchNormGradient& gradient,
                        float* dgamma, float* dbeta, void* dz) {
  if (shape.pool && !shape.pools_2x2()) {
    // That of a batch norm of the values at the maxima.
    const PoolChoice choice(shape, gradient.choice);
    BatchNormGradient maxima = gradient;
    maxima.x = choice.x;
    maxima.y = nullptr;
    maxima.mask = choice.mask;
    return BackwardParameters(WithoutPool(shape), maxima, dgamma, dbeta, dz);
  }
  const bool strided = gradient.dy_addend != nullptr && gradient.dy_addend_stride > 1;
  const int64_t written = dz != nullptr ? shape.pixels() * shape.channels : 0;
  StateWork(GradientBytes(shape, gradient) +
            ArrayBytes(shape.type, AddendElements(shape, gradient) + written));
  const ParametersFinish finish{gradient.inverse_deviation, dgamma, dbeta};
  DispatchGradient(shape, gradient, dz, [&](auto element, auto width, auto mask) {
    using Storage = decltype(element);
    if (shape.pool) {
      const Pool2x2ParametersTerms<Storage, width> terms{shape.channels, NonOverlapping2x2(shape),
                                                         gradient};
      SumOverPixels<width, 2>(shape.out_pixels(), shape.channels, 1, terms, finish);
      return;
    }
    auto* const to = static_cast<Storage*>(dz);
    if constexpr (mask == MaskFrom::kForward) {
      if (strided) {
        const ParametersTerms<Storage, width, mask, StridedPixels> terms{
            shape, gradient, to, StridedPixels(shape, gradient.dy_addend_stride)};
        return SumOverPixels<width, 2>(shape.pixels(), shape.channels, 1, terms, finish);
      }
    }
    const ParametersTerms<Storage, width, mask> terms{shape, gradient, to, {}};
    SumOverPixels<width, 2>(shape.pixels(), shape.channels, 1, terms, finish);
  });
}

void BackwardData(const BatchNormShape& shape, const BatchNormGradient& gradient,
                  const float* dgamma, const float* dbeta, void* dx) {
  if (shape.pool && !shape.pools_2x2()) {
    return BackwardDataOfPool(shape, gradient, dgamma, dbeta, dx);
  }
  StateWork(GradientBytes(shape, gradient) +
            ArrayBytes(shape.type, shape.pixels() * shape.channels));
  DispatchGradient(shape, gradient, dx, [&](auto element, auto width, auto mask) {
    using Storage = decltype(element);
    auto* const to = static_cast<Storage*>(dx);
    if (shape.pool) {
      const Pool2x2Data<Storage, width> data{
          shape.channels, NonOverlapping2x2(shape), gradient, dgamma, dbeta, to};
      ForEachPixel<width>(shape.pixels(), shape.channels, data);
    } else {
      const PixelData<Storage, width, mask> data{shape, gradient, dgamma, dbeta, to};
      ForEachPixel<width>(shape.pixels(), shape.channels, data);
    }
  });
}

// Both passes of a sum together with those of its shortcut.

void SumParameters(const BatchNormShape& shape, const BatchNormGradient& gradient, float* dgamma,
                   float* dbeta, void* dz) {
  const int64_t elements = shape.pixels() * shape.channels;
  StateWork(GradientBytes(shape, gradient) +
            ArrayBytes(shape.type, 2 * elements + AddendElements(shape, gradient)));
  const auto arrays = {gradient.x, gradient.dy, gradient.dy_addend, gradient.shortcut.x,
                       static_cast<const void*>(dz)};
  DispatchWidth(shape.type, shape.channels, arrays, [&](auto element, auto width) {
    using Storage = decltype(element);
    SumOverPixels<width, 3>(
        shape.pixels(), shape.channels, 1,
        SumParametersTerms<Storage, width>{shape, gradient, static_cast<Storage*>(dz)},
        SumParametersFinish{{gradient.inverse_deviation, dgamma, dbeta}, gradient.shortcut});
  });
}

void SumData(const BatchNormShape& shape, const BatchNormGradient& gradient, const float* dgamma,
             const float* dbeta, void* dx) {
  StateWork(5 * ArrayBytes(shape.type, shape.pixels() * shape.channels));
  const auto arrays = {gradient.x, gradient.dy, gradient.shortcut.x,
                       static_cast<const void*>(gradient.shortcut.dx),
                       static_cast<const void*>(dx)};
  DispatchWidth(shape.type, shape.channels, arrays, [&](auto element, auto width) {
    using Storage = decltype(element);
    const BatchNormShortcut& shortcut = gradient.shortcut;
    const SumPixelData<Storage, width> data{
        shape.channels,
        {gradient, dgamma, dbeta, static_cast<Storage*>(dx)},
        {GradientOfShortcut(gradient, gradient.dy), shortcut.dgamma, shortcut.dbeta,
         static_cast<Storage*>(shortcut.dx)}};
    ForEachPixel<width>(shape.pixels(), 2 * shape.channels, data);
  });
}

}  // namespace

void BatchNormBackwardParameters(const BatchNormShape& shape, const BatchNormGradient& gradient,
                                 float* dgamma, float* dbeta, void* dz) {
  if (gradient.shortcut.x != nullptr && gradient.mask != nullptr &&
      gradient.dy_addend_stride == 1) {
    return SumParameters(shape, gradient, dgamma, dbeta, dz);
  }
  BackwardParametersInTurn<BackwardParameters>(shape, gradient, dgamma, dbeta, dz);
}

void BatchNormBackwardData(const BatchNormShape& shape, const BatchNormGradient& gradient,
                           const float* dgamma, const float* dbeta, void* dx) {
  if (gradient.shortcut.x != nullptr) return SumData(shape, gradient, dgamma, dbeta, dx);
  BackwardData(shape, gradient, dgamma, dbeta, dx);
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET
