// Elements of arrays as CUDA kernels see them: widened to float, several at once where they lie so.
//
// The .cu files are compiled twice: by nvcc for GPUs, in namespace cuda, and by the C++ compiler
// for the processor, in namespace cuda_on_host, where the contract tests run them on every machine.
#ifndef MUSTER_KERNELS_CUDA_LAUNCH_ELEMENTS_H_
#define MUSTER_KERNELS_CUDA_LAUNCH_ELEMENTS_H_

#ifdef __CUDACC__
#define MUSTER_INSTRUCTION_SET cuda
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#else
#define MUSTER_INSTRUCTION_SET cuda_on_host
#endif

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "kernels/activation.h"
#include "kernels/data_type.h"
#include "kernels/functors.h"
#include "kernels/half.h"
#include "kernels/host_device.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

MUSTER_HOST_DEVICE inline float Widen(float value) { return value; }

MUSTER_HOST_DEVICE inline float Widen(Bfloat16 value) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(static_cast<uint32_t>(value.bits) << 16);
#else
  return FromBfloat16(value.bits);
#endif
}

MUSTER_HOST_DEVICE inline float Widen(Float16 value) {
#ifdef __CUDA_ARCH__
  return __half2float(__ushort_as_half(value.bits));
#else
  return FromFloat16(value.bits);
#endif
}

MUSTER_HOST_DEVICE inline void Narrow(float value, float& to) { to = value; }

MUSTER_HOST_DEVICE inline void Narrow(float value, Bfloat16& to) {
#ifdef __CUDA_ARCH__
  to.bits = __bfloat16_as_ushort(__float2bfloat16_rn(value));
#else
  to.bits = ToBfloat16(value);
#endif
}

MUSTER_HOST_DEVICE inline void Narrow(float value, Float16& to) {
#ifdef __CUDA_ARCH__
  to.bits = __half_as_ushort(__float2half_rn(value));
#else
  to.bits = ToFloat16(value);
#endif
}

// The nearest value of `type`.
MUSTER_HOST_DEVICE inline float Rounded(DataType type, float value) {
  if (type == DataType::kBfloat16) {
    Bfloat16 stored;
    Narrow(value, stored);
    return Widen(stored);
  }
  if (type == DataType::kFloat16) {
    Float16 stored;
    Narrow(value, stored);
    return Widen(stored);
  }
  return value;
}

template <int kCount>
struct Floats {
  float values[kCount];
  MUSTER_HOST_DEVICE float& operator[](int i) { return values[i]; }
  MUSTER_HOST_DEVICE float operator[](int i) const { return values[i]; }
};

// Loaded and stored at once: of kCount * sizeof(Storage) bytes, and aligned to as many.
template <typename Storage, int kCount>
struct alignas(sizeof(Storage) * kCount) Stored {
  Storage values[kCount];
};

template <int kCount, typename Storage>
MUSTER_HOST_DEVICE inline Floats<kCount> Load(const Storage* from) {
  const auto stored = *reinterpret_cast<const Stored<Storage, kCount>*>(from);
  Floats<kCount> result;
  for (int i = 0; i < kCount; ++i) result[i] = Widen(stored.values[i]);
  return result;
}

template <int kCount, typename Storage>
MUSTER_HOST_DEVICE inline void Store(Storage* to, const Floats<kCount>& values) {
  Stored<Storage, kCount> stored;
  for (int i = 0; i < kCount; ++i) Narrow(values[i], stored.values[i]);
  *reinterpret_cast<Stored<Storage, kCount>*>(to) = stored;
}

MUSTER_HOST_DEVICE inline float Activated(Activation activation, float x) {
  if (activation == Activation::kRelu) return ReluFunctor<float>()(x);
  if (activation == Activation::kRelu6) return Relu6Functor<float>()(x);
  return x;
}

// dy where the activation whose output is y lets it pass, else 0.
MUSTER_HOST_DEVICE inline float Passed(Activation activation, float y, float dy) {
  if (activation == Activation::kRelu) return ReluBackwardFunctor<float>()(y, dy);
  if (activation == Activation::kRelu6) return Relu6BackwardFunctor<float>()(y, dy);
  return dy;
}

// Whether vectors of 16 bytes may begin at each of them; null is nowhere.
inline bool Aligned(std::initializer_list<const void*> arrays) {
  for (const void* array : arrays) {
    if (reinterpret_cast<uintptr_t>(array) % 16 != 0) return false;
  }
  return true;
}

// Calls visit(an element of the type's storage).
template <typename Visit>
void DispatchType(DataType type, const Visit& visit) {
  switch (type) {
    case DataType::kBfloat16:
      return visit(Bfloat16{});
    case DataType::kFloat16:
      return visit(Float16{});
    default:  // kFloat32
      return visit(float{});
  }
}

// Calls visit(an element of the type's storage, how many of them a thread takes at once): as many
// as 16 bytes hold where `channels` is a multiple of them and the arrays are aligned, else one.
template <typename Visit>
void DispatchWidth(DataType type, int64_t channels, std::initializer_list<const void*> arrays,
                   const Visit& visit) {
  const bool aligned = Aligned(arrays);
  DispatchType(type, [&](auto element) {
    constexpr int kWidth = 16 / sizeof(element);
    if (aligned && channels % kWidth == 0) {
      visit(element, std::integral_constant<int, kWidth>());
    } else {
      visit(element, std::integral_constant<int, 1>());
    }
  });
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_CUDA_LAUNCH_ELEMENTS_H_
