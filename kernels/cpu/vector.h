// A vector of as many floats as the instruction set being compiled for holds in one register.
//
// Compiled once per instruction set, like kernels/functors.h. Code here and in the *_body.h files
// calls nothing inline from outside its own namespace: the linker keeps one copy of such a function
// for the whole program, and it could be the one compiled for AVX-512.
#ifndef MUSTER_KERNELS_CPU_VECTOR_H_
#define MUSTER_KERNELS_CPU_VECTOR_H_

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

typedef float Vector __attribute__((vector_size(kLanes * sizeof(float))));
typedef int32_t IntVector __attribute__((vector_size(kLanes * sizeof(int32_t))));
typedef uint8_t ByteVector __attribute__((vector_size(kLanes)));
// Loads and stores go through this one: floats need not be aligned to vectors.
typedef float UnalignedVector
    __attribute__((vector_size(kLanes * sizeof(float)), aligned(alignof(float)), may_alias));

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

template <>
struct Element<Vector> {
  static constexpr int kWidth = kLanes;
  using Int = IntVector;
  static Vector Splat(float value) { return Vector{} + value; }
  static IntVector SplatInt(int32_t value) { return IntVector{} + value; }
  static Vector Load(const float* p) { return *reinterpret_cast<const UnalignedVector*>(p); }
  static void Store(float* p, Vector value) { *reinterpret_cast<UnalignedVector*>(p) = value; }
  static IntVector LoadBytes(const uint8_t* p) {
    ByteVector bytes;
    __builtin_memcpy(&bytes, p, sizeof(bytes));
    return __builtin_convertvector(bytes, IntVector);
  }
  static void StoreBytes(uint8_t* p, IntVector value) {
    const ByteVector bytes = __builtin_convertvector(value, ByteVector);
    __builtin_memcpy(p, &bytes, sizeof(bytes));
  }
  static Vector FromInt(IntVector value) { return __builtin_convertvector(value, Vector); }
};

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
  for (; channel + kLanes <= channels; channel += kLanes) body.template Run<Vector, 1>(channel);
  for (; channel < channels; ++channel) body.template Run<float, 1>(channel);
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_CPU_VECTOR_H_
