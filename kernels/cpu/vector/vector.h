// A vector of as many floats as fit a register of the current instruction set, loaded from and
// stored to arrays of any DataType.
//
// Compiled once per instruction set, like kernels/functors.h. Code here and in the *_body.h files
// must not call inline functions outside its own namespace: the linker keeps one copy of such a
// function for the whole program, which could be the one compiled for AVX-512.
#ifndef MUSTER_KERNELS_CPU_VECTOR_VECTOR_H_
#define MUSTER_KERNELS_CPU_VECTOR_VECTOR_H_

#include <cstddef>
#include <cstdint>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "kernels/cpu/vector/half_bits.h"
#include "kernels/data_type.h"

#ifndef MUSTER_INSTRUCTION_SET
#error "define MUSTER_INSTRUCTION_SET before including kernels/cpu/vector/vector.h"
#endif

// For functions that take a loop's body, whose values stay in registers only if it is inlined.
#define MUSTER_ALWAYS_INLINE inline __attribute__((always_inline))

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

#if defined(__AVX512F__)
inline constexpr int kLanes = 16;
inline constexpr int kRegisters = 32;
#elif defined(__AVX2__)
inline constexpr int kLanes = 8;
inline constexpr int kRegisters = 16;
#else
inline constexpr int kLanes = 4;
inline constexpr int kRegisters = 16;
#endif

template <int kCount>
struct VectorOf {
  typedef float Float __attribute__((vector_size(kCount * sizeof(float))));
  typedef int32_t Int __attribute__((vector_size(kCount * sizeof(int32_t))));
  typedef uint32_t Word __attribute__((vector_size(kCount * sizeof(uint32_t))));
  typedef uint16_t Half __attribute__((vector_size(kCount * sizeof(uint16_t))));
  typedef uint8_t Byte __attribute__((vector_size(kCount)));
  // Type of loads and stores: floats need not be aligned to vectors.
  typedef float Unaligned
      __attribute__((vector_size(kCount * sizeof(float)), aligned(alignof(float)), may_alias));
};

using Vector = VectorOf<kLanes>::Float;
using IntVector = VectorOf<kLanes>::Int;

// Conversion instructions for as many floats as exist: to float16, and with avx512_bf16 to
// bfloat16. The latter flushes subnormal floats, below 2^-126, to zero.
template <int kCount>
struct HalfInstructions {
  static constexpr bool kFloat16 = false;
  static constexpr bool kBfloat16 = false;
};

#if defined(__F16C__)
// Not an intrinsic, because for its half type with arithmetic the compiler compares and selects
// halves one by one.
template <typename Float, typename Half>
MUSTER_ALWAYS_INLINE Float WidenFloat16(Half half) {
  Float value;
#if defined(__AVX512VL__)
  __asm__("vcvtph2ps %1, %0" : "=v"(value) : "v"(half));
#else
  __asm__("vcvtph2ps %1, %0" : "=x"(value) : "x"(half));
#endif
  return value;
}

template <>
struct HalfInstructions<4> {
  using Float = VectorOf<4>::Float;
  using Half = VectorOf<4>::Half;
  static constexpr bool kFloat16 = true;
  static Float FromFloat16(Half half) {
    return WidenFloat16<Float>(_mm_cvtsi64_si128(__builtin_bit_cast(int64_t, half)));
  }
  static Half ToFloat16(Float value) {
    return FirstHalf(_mm_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
  }
#if defined(__AVX512BF16__)
  static constexpr bool kBfloat16 = true;
  static Half ToBfloat16(Float value) {
    return FirstHalf(__builtin_bit_cast(__m128i, _mm_cvtneps_pbh(value)));
  }
#else
  static constexpr bool kBfloat16 = false;
#endif
  static Half FirstHalf(__m128i both) { return __builtin_bit_cast(Half, _mm_cvtsi128_si64(both)); }
};

template <>
struct HalfInstructions<8> {
  using Float = VectorOf<8>::Float;
  using Half = VectorOf<8>::Half;
  static constexpr bool kFloat16 = true;
  static Float FromFloat16(Half half) { return WidenFloat16<Float>(half); }
  static Half ToFloat16(Float value) {
    return __builtin_bit_cast(Half, _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
  }
#if defined(__AVX512BF16__)
  static constexpr bool kBfloat16 = true;
  static Half ToBfloat16(Float value) {
    return __builtin_bit_cast(Half, _mm256_cvtneps_pbh(value));
  }
#else
  static constexpr bool kBfloat16 = false;
#endif
};
#endif  // __F16C__

#if defined(__AVX512F__)
template <>
struct HalfInstructions<16> {
  using Float = VectorOf<16>::Float;
  using Half = VectorOf<16>::Half;
  static constexpr bool kFloat16 = true;
  static Float FromFloat16(Half half) { return WidenFloat16<Float>(half); }
  static Half ToFloat16(Float value) {
    return __builtin_bit_cast(Half, _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
  }
#if defined(__AVX512BF16__)
  static constexpr bool kBfloat16 = true;
  static Half ToBfloat16(Float value) {
    return __builtin_bit_cast(Half, _mm512_cvtneps_pbh(value));
  }
#else
  static constexpr bool kBfloat16 = false;
#endif
};
#endif  // __AVX512F__

// Operations on an element type, so that one template serves whole vectors and the remaining
// floats. Stores to 16-bit types round to nearest even; NaN stays NaN.
template <typename T>
struct Element;

template <>
struct Element<float> {
  static constexpr int kWidth = 1;
  using Int = int32_t;
  using Word = uint32_t;
  static float Splat(float value) { return value; }
  static int32_t SplatInt(int32_t value) { return value; }
  static float Load(const float* p) { return *p; }
  static float Load(const Bfloat16* p) {
    return FromBfloat16Bits<float>(static_cast<uint32_t>(p->bits));
  }
  static float Load(const Float16* p) {
#if defined(__F16C__)
    return _cvtsh_ss(p->bits);
#else
    return FromFloat16Bits<float>(static_cast<uint32_t>(p->bits));
#endif
  }
  static void Store(float* p, float value) { *p = value; }
  static void Store(Bfloat16* p, float value) {
#if defined(__AVX512BF16__)
    p->bits = __builtin_bit_cast(uint16_t, _mm_cvtness_sbh(value));
#else
    p->bits = static_cast<uint16_t>(ToBfloat16Bits<float, uint32_t>(value));
#endif
  }
  static void Store(Float16* p, float value) {
#if defined(__F16C__)
    p->bits = _cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT);
#else
    p->bits = static_cast<uint16_t>(ToFloat16Bits<float, uint32_t>(value));
#endif
  }
  static int32_t LoadBytes(const uint8_t* p) { return *p; }
  static void StoreBytes(uint8_t* p, int32_t value) { *p = static_cast<uint8_t>(value); }
  static float FromInt(int32_t value) { return static_cast<float>(value); }
};

template <int kCount>
struct VectorElement {
  static constexpr int kWidth = kCount;
  using T = typename VectorOf<kCount>::Float;
  using Int = typename VectorOf<kCount>::Int;
  using Word = typename VectorOf<kCount>::Word;
  using Half = typename VectorOf<kCount>::Half;
  using Instructions = HalfInstructions<kCount>;
  static T Splat(float value) { return T{} + value; }
  static Int SplatInt(int32_t value) { return Int{} + value; }
  static T Load(const float* p) {
    return *reinterpret_cast<const typename VectorOf<kCount>::Unaligned*>(p);
  }
  static T Load(const Bfloat16* p) {
    return FromBfloat16Bits<T>(__builtin_convertvector(LoadHalf(p), Word));
  }
  static T Load(const Float16* p) {
    if constexpr (Instructions::kFloat16) return Instructions::FromFloat16(LoadHalf(p));
    return FromFloat16Bits<T>(__builtin_convertvector(LoadHalf(p), Word));
  }
  static void Store(float* p, T value) {
    *reinterpret_cast<typename VectorOf<kCount>::Unaligned*>(p) = value;
  }
  static void Store(Bfloat16* p, T value) {
    const Half halves = ToBfloat16(value);
    __builtin_memcpy(p, &halves, sizeof(halves));
  }
  static void Store(Float16* p, T value) {
    const Half halves = ToFloat16(value);
    __builtin_memcpy(p, &halves, sizeof(halves));
  }
  static Half ToBfloat16(T value) {
    if constexpr (Instructions::kBfloat16) return Instructions::ToBfloat16(value);
    return __builtin_convertvector((ToBfloat16Bits<T, Word>(value)), Half);
  }
  static Half ToFloat16(T value) {
    if constexpr (Instructions::kFloat16) return Instructions::ToFloat16(value);
    return __builtin_convertvector((ToFloat16Bits<T, Word>(value)), Half);
  }
  static Int LoadBytes(const uint8_t* p) {
    typename VectorOf<kCount>::Byte bytes;
    __builtin_memcpy(&bytes, p, sizeof(bytes));
    return __builtin_convertvector(bytes, Int);
  }
  static void StoreBytes(uint8_t* p, Int value) {
    const auto bytes = __builtin_convertvector(value, typename VectorOf<kCount>::Byte);
    __builtin_memcpy(p, &bytes, sizeof(bytes));
  }
  static T FromInt(Int value) { return __builtin_convertvector(value, T); }

 private:
  static Half LoadHalf(const void* p) {
    Half halves;
    __builtin_memcpy(&halves, p, sizeof(halves));
    return halves;
  }
};

template <>
struct Element<VectorOf<4>::Float> : VectorElement<4> {};
#if defined(__AVX2__)
template <>
struct Element<VectorOf<8>::Float> : VectorElement<8> {};
#endif
#if defined(__AVX512F__)
template <>
struct Element<VectorOf<16>::Float> : VectorElement<16> {};
#endif

// Calls body(Storage()) with the storage type of `type`.
template <typename Body>
inline void DispatchType(DataType type, const Body& body) {
  switch (type) {
    case DataType::kBfloat16:
      return body(Bfloat16{});
    case DataType::kFloat16:
      return body(Float16{});
    default:  // kFloat32
      return body(float{});
  }
}

// Calls body.Run<vector of kCount, 1>, then with half as many, while channels are left for it;
// returns the first channel not covered.
template <int kCount, typename Body>
inline int64_t CoverByNarrowerVectors(int64_t channel, int64_t channels, const Body& body) {
  if constexpr (kCount < 4) {
    return channel;
  } else {
    if (channel + kCount <= channels) {
      body.template Run<typename VectorOf<kCount>::Float, 1>(channel);
      channel += kCount;
    }
    return CoverByNarrowerVectors<kCount / 2>(channel, channels, body);
  }
}

// Calls body.Run<T, kCount>(channel) for blocks of kCount elements of type T until all channels are
// covered: wide blocks keep the per-channel values of a loop over pixels in registers.
template <typename Body>
inline void ForEachChannelBlock(int64_t channels, const Body& body) {
  int64_t channel = 0;
  for (; channel + 4 * kLanes <= channels; channel += 4 * kLanes) {
    body.template Run<Vector, 4>(channel);
  }
  for (; channel + 2 * kLanes <= channels; channel += 2 * kLanes) {
    body.template Run<Vector, 2>(channel);
  }
  channel = CoverByNarrowerVectors<kLanes>(channel, channels, body);
  for (; channel < channels; ++channel) body.template Run<float, 1>(channel);
}

// Calls body.Run<T>(i) for whole vectors, then for the remaining elements.
template <typename Body>
inline void ForEachElement(size_t count, const Body& body) {
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) body.template Run<Vector>(i);
  for (; i < count; ++i) body.template Run<float>(i);
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_CPU_VECTOR_VECTOR_H_
