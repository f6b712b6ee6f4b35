// Batch norm with its activation and pooling; see kernels/batch_norm.h. Compiled once per
// instruction set.
//
// Forward reads x twice (statistics, then everything else), backward twice (parameters, then data).
#ifndef MUSTER_KERNELS_CPU_NORMALIZATION_BATCH_NORM_BODY_H_
#define MUSTER_KERNELS_CPU_NORMALIZATION_BATCH_NORM_BODY_H_

#include <cstdint>
#include <type_traits>

#include "kernels/batch_norm.h"
#include "kernels/cpu/activation/activation_body.h"
#include "kernels/cpu/normalization/batch_norm_pool_body.h"
#include "kernels/cpu/vector/columns.h"
#include "kernels/cpu/vector/vector.h"
#include "kernels/functors.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

// Sums of the distance from a value of the channel, and of its square: avoids cancellation if the
// mean is far from zero.
template <typename Storage>
struct StatisticsTerms {
  const Storage* x;
  const ColumnValues& pivots;

  template <int kVectors>
  void Prefetch(int64_t at) const {
    PrefetchVectors<kVectors>(x + at);
  }

  template <typename T, int kCount>
  auto At(int64_t column) const {
    return [x = x, pivot = ChannelValues<T, kCount>(pivots.values + column)](int i, int64_t at,
                                                                             T& sum, T& square) {
      const T distance = Element<T>::Load(x + at) - pivot[i];
      sum = sum + distance;
      square = square + distance * distance;
    };
  }
};

template <typename Storage>
inline void StatisticsOf(const BatchNormShape& shape, const Storage* x, float* mean,
                         float* variance) {
  const int64_t pixels = PixelsOf(shape);
  ForEachRangeOfChannels(shape.channels, [&](int64_t channel, int64_t channels) {
    ColumnSums sums;
    ColumnValues pivots;
    ForEachBlockOfChannels(pixels, shape.channels, channel, channels, [&](const auto& block) {
      pivots.Fill(block, [&](int64_t c) { return Element<float>::Load(x + c); });
      sums.Add(block, StatisticsTerms<Storage>{x, pivots});
    });
    for (int64_t c = 0; c < channels; ++c) {
      const double shift = sums.first[c] / static_cast<double>(pixels);
      const double spread = sums.second[c] / static_cast<double>(pixels) - shift * shift;
      const double pivot = static_cast<double>(Element<float>::Load(x + channel + c));
      mean[channel + c] = static_cast<float>(pivot + shift);
      variance[channel + c] = static_cast<float>(spread < 0 ? 0 : spread);
    }
  });
}

inline void BatchNormStatistics(const BatchNormShape& shape, const void* x, float* mean,
                                float* variance) {
  DispatchType(shape.type, [&](auto element) {
    StatisticsOf(shape, static_cast<const decltype(element)*>(x), mean, variance);
  });
}

// What ApplyBody adds: see BatchNormAddend.
enum class Summand { kNone, kPlain, kNormalized };

template <Activation kActivation, Summand kSummand, typename Storage>
struct ApplyBody {
  const Storage* x;
  const ColumnValues& scales;
  const ColumnValues& shifts;
  const Storage* addend;
  const ColumnValues& addend_scales;  // with kNormalized
  const ColumnValues& addend_shifts;
  Storage* y;

  template <int kVectors>
  void Prefetch(int64_t at) const {
    if constexpr (kSummand == Summand::kNone) return;  // the hardware prefetcher handles one input
    PrefetchVectors<kVectors>(x + at);
    PrefetchVectors<kVectors>(addend + at);
  }

  template <typename T>
  void Run(int64_t column, int64_t at) const {
    const AffineFunctor<T> affine{scales.Load<T>(column), shifts.Load<T>(column)};
    T value = affine(Element<T>::Load(x + at));
    if constexpr (kSummand == Summand::kPlain) value = value + Element<T>::Load(addend + at);
    if constexpr (kSummand == Summand::kNormalized) {
      const AffineFunctor<T> summand{addend_scales.Load<T>(column), addend_shifts.Load<T>(column)};
      value = value + summand(Element<T>::Load(addend + at));
    }
    Element<T>::Store(y + at, Activate<kActivation>(value));
  }
};

inline void BatchNormApply(const BatchNormShape& shape, const void* x, const float* scale,
                           const float* shift, const BatchNormAddend& addend, void* y,
                           uint8_t* choice) {
  if (shape.pool) return PooledApply(shape, x, scale, shift, y, choice);
  ForEachColumnBlock(PixelsOf(shape), shape.channels, [&](const ColumnBlock& block) {
    ColumnValues scales, shifts, addend_scales, addend_shifts;
    scales.Fill(block, scale);
    shifts.Fill(block, shift);
    if (addend.scale != nullptr) {
      addend_scales.Fill(block, addend.scale);
      addend_shifts.Fill(block, addend.shift);
    }
    DispatchType(shape.type, [&](auto element) {
      using Storage = decltype(element);
      const auto* from = static_cast<const Storage*>(x);
      const auto* sum = static_cast<const Storage*>(addend.data);
      auto* to = static_cast<Storage*>(y);
      DispatchActivation(shape.activation, [&]<Activation kActivation>() {
        const auto apply = [&]<Summand kSummand>() {
          ForEachInRows(block, ApplyBody<kActivation, kSummand, Storage>{
                                   from, scales, shifts, sum, addend_scales, addend_shifts, to});
        };
        if (sum == nullptr) return apply.template operator()<Summand::kNone>();
        if (addend.scale == nullptr) return apply.template operator()<Summand::kPlain>();
        apply.template operator()<Summand::kNormalized>();
      });
    });
  });
}

// dy where the activation's mask is set, derived from its output (kFromY) or from its recomputed
// input.
template <Activation kActivation, bool kFromY, typename Storage>
struct MaskedGradient {
  const Storage* dy;
  const Storage* y;

  template <int kVectors>
  void Prefetch(int64_t at) const {
    PrefetchVectors<kVectors>(dy + at);
    if constexpr (kFromY && kActivation != Activation::kNone) PrefetchVectors<kVectors>(y + at);
  }

  template <typename T>
  MUSTER_ALWAYS_INLINE T operator()(int64_t at, T x, T scale, T shift) const {
    const T gradient = Element<T>::Load(dy + at);
    if constexpr (kActivation == Activation::kNone) return gradient;
    if constexpr (kFromY) return PassBack<kActivation>(Element<T>::Load(y + at), gradient);
    return PassBack<kActivation>(AffineFunctor<T>{scale, shift}(x), gradient);
  }
};

// Calls visit(MaskedGradient) with the one for the shape.
template <typename Visit>
MUSTER_ALWAYS_INLINE void DispatchMask(const BatchNormShape& shape,
                                       const BatchNormGradient& gradient, const Visit& visit) {
  DispatchType(shape.type, [&](auto element) {
    using Storage = decltype(element);
    const auto* dy = static_cast<const Storage*>(gradient.dy);
    const auto* y = static_cast<const Storage*>(gradient.y);
    DispatchActivation(shape.activation, [&]<Activation kActivation>() {
      if (kActivation != Activation::kNone && y != nullptr) {
        visit(element, MaskedGradient<kActivation, true, Storage>{dy, y});
      } else {
        visit(element, MaskedGradient<kActivation, false, Storage>{dy, y});
      }
    });
  });
}

// Sums of the gradient, and of its products with x minus the mean.
template <typename Masked, typename Storage>
struct ParametersTerms {
  Masked masked;
  const Storage* x;
  Storage* dz;
  const ColumnValues& means;
  const ColumnValues& scales;
  const ColumnValues& shifts;

  template <int kVectors>
  void Prefetch(int64_t at) const {
    PrefetchVectors<kVectors>(x + at);
    masked.template Prefetch<kVectors>(at);
  }

  template <typename T, int kCount>
  auto At(int64_t column) const {
    return [masked = masked, x = x, dz = dz, mean = ChannelValues<T, kCount>(means.values + column),
            scale = ChannelValues<T, kCount>(scales.values + column),
            shift = ChannelValues<T, kCount>(shifts.values + column)](int i, int64_t at, T& sum,
                                                                      T& product) {
      const T value = Element<T>::Load(x + at);
      const T dy = masked(at, value, scale[i], shift[i]);
      if (dz != nullptr) Element<T>::Store(dz + at, dy);
      sum = sum + dy;
      product = product + dy * (value - mean[i]);
    };
  }
};

inline void BatchNormBackwardParameters(const BatchNormShape& shape,
                                        const BatchNormGradient& gradient, float* dgamma,
                                        float* dbeta, void* dz) {
  if (shape.pool) return PooledBackwardParameters(shape, gradient, dgamma, dbeta);
  ForEachRangeOfChannels(shape.channels, [&](int64_t channel, int64_t channels) {
    ColumnSums sums;
    const auto add = [&](const ColumnBlock& block) {
      ColumnValues means, scales, shifts;
      means.Fill(block, gradient.mean);
      scales.Fill(block, gradient.scale);
      shifts.Fill(block, gradient.shift);
      DispatchMask(shape, gradient, [&](auto element, const auto& masked) {
        using Storage = decltype(element);
        using Terms = ParametersTerms<std::remove_cvref_t<decltype(masked)>, Storage>;
        sums.Add(block, Terms{masked, static_cast<const Storage*>(gradient.x),
                              static_cast<Storage*>(dz), means, scales, shifts});
      });
    };
    ForEachBlockOfChannels(PixelsOf(shape), shape.channels, channel, channels, add);
    for (int64_t c = 0; c < channels; ++c) {
      dbeta[channel + c] = static_cast<float>(sums.first[c]);
      dgamma[channel + c] = static_cast<float>(
          sums.second[c] * static_cast<double>(gradient.inverse_deviation[channel + c]));
    }
  });
}

template <typename Masked, typename Storage>
struct DataBody {
  Masked masked;
  const Storage* x;
  Storage* dx;
  const ColumnValues& scales;
  const ColumnValues& shifts;
  const ColumnValues& slopes;
  const ColumnValues& offsets;

  template <int kVectors>
  void Prefetch(int64_t at) const {
    PrefetchVectors<kVectors>(x + at);
    masked.template Prefetch<kVectors>(at);
  }

  template <typename T>
  void Run(int64_t column, int64_t at) const {
    const T value = Element<T>::Load(x + at);
    const T scale = scales.Load<T>(column);
    const T dy = masked(at, value, scale, shifts.Load<T>(column));
    const BatchNormBackwardFunctor<T> functor{scale, slopes.Load<T>(column),
                                              offsets.Load<T>(column)};
    Element<T>::Store(dx + at, functor(value, dy));
  }
};

inline void BatchNormBackwardData(const BatchNormShape& shape, const BatchNormGradient& gradient,
                                  const float* dgamma, const float* dbeta, void* dx) {
  if (shape.pool) return PooledBackwardData(shape, gradient, dgamma, dbeta, dx);
  ForEachColumnBlock(PixelsOf(shape), shape.channels, [&](const ColumnBlock& block) {
    ColumnValues scales, shifts, slopes, offsets;
    scales.Fill(block, gradient.scale);
    shifts.Fill(block, gradient.shift);
    slopes.Fill(block, [&](int64_t c) { return DataSlope(gradient, dgamma, c); });
    offsets.Fill(block, [&](int64_t c) { return DataOffset(gradient, dgamma, dbeta, c); });
    DispatchMask(shape, gradient, [&](auto element, const auto& masked) {
      using Storage = decltype(element);
      using Body = DataBody<std::remove_cvref_t<decltype(masked)>, Storage>;
      ForEachInRows(block, Body{masked, static_cast<const Storage*>(gradient.x),
                                static_cast<Storage*>(dx), scales, shifts, slopes, offsets});
    });
  });
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_CPU_NORMALIZATION_BATCH_NORM_BODY_H_
