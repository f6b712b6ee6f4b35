// A vector of as many floats as the instruction set being compiled for holds in one register.
//
// Compiled once per instruction set, like kernels/functors.h. Code here and in the *_body.h files
// calls nothing inline from outside its own namespace: the linker keeps one copy of such a function
// for the whole program, and it could be the one compiled for AVX-512.
#ifndef MUSTER_KERNELS_CPU_VECTOR_H_
#define MUSTER_KERNELS_CPU_VECTOR_H_

#include <cstddef>
#include <cstdint>

#ifndef MUSTER_INSTRUCTION_SET
#error "define MUSTER_INSTRUCTION_SET before including kernels/cpu/vector.h"
#endif

// For functions that take a loop's body: the body's values stay in registers only once it is
// inlined.
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
  typedef uint8_t Byte __attribute__((vector_size(kCount)));
  // Loads and stores go through this one: floats need not be aligned to vectors.
  typedef float Unaligned
      __attribute__((vector_size(kCount * sizeof(float)), aligned(alignof(float)), may_alias));
};

using Vector = VectorOf<kLanes>::Float;
using IntVector = VectorOf<kLanes>::Int;

// What a kernel needs to know of its element type, so that one template serves whole vectors and
// the floats left over.
template <typename T>
struct Element;

template <>
struct Element<float> {
  static constexpr int kWidth = 1;
  using Int = int32_t;
  static float Splat(float value) { return value; }
  static int32_t SplatInt(int32_t value) { return value; }
  static float Load(const float* p) { return *p; }
  static void Store(float* p, float value) { *p = value; }
  static int32_t LoadBytes(const uint8_t* p) { return *p; }
  static void StoreBytes(uint8_t* p, int32_t value) { *p = static_cast<uint8_t>(value); }
  static float FromInt(int32_t value) { return static_cast<float>(value); }
};

template <int kCount>
struct VectorElement {
  static constexpr int kWidth = kCount;
  using T = typename VectorOf<kCount>::Float;
  using Int = typename VectorOf<kCount>::Int;
  static T Splat(float value) { return T{} + value; }
  static Int SplatInt(int32_t value) { return Int{} + value; }
  static T Load(const float* p) {
    return *reinterpret_cast<const typename VectorOf<kCount>::Unaligned*>(p);
  }
  static void Store(float* p, T value) {
    *reinterpret_cast<typename VectorOf<kCount>::Unaligned*>(p) = value;
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

// Calls body.Run<vector of kCount, 1>, then of half as many, as long as channels are left for it;
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

// Calls body.Run<T>(i) for whole vectors, then for the elements left over.
template <typename Body>
inline void ForEachElement(size_t count, const Body& body) {
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) body.template Run<Vector>(i);
  for (; i < count; ++i) body.template Run<float>(i);
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_CPU_VECTOR_H_
