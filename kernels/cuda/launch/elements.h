// Loads and stores of array elements in CUDA kernels, widened to float and vectorised.
//
// The .cu files are compiled three times: by nvcc for GPUs, in namespace cuda; by the C++ compiler
// for the CPU, in namespace cuda_on_host, so that the contract tests run them on every machine; and
// in namespace cuda_counted with launches that are only counted, not run (see launch.h).
#ifndef MUSTER_KERNELS_CUDA_LAUNCH_ELEMENTS_H_
#define MUSTER_KERNELS_CUDA_LAUNCH_ELEMENTS_H_

#ifdef __CUDACC__
#define MUSTER_INSTRUCTION_SET cuda
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#elif defined(MUSTER_COUNT_LAUNCHES)
#define MUSTER_INSTRUCTION_SET cuda_counted
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

// Rounds to the nearest value of `type`.
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

// kCount elements that are loaded and stored by one instruction; aligned to its size.
template <typename Storage, int kCount>
struct alignas(sizeof(Storage) * kCount) AlignedVector {
  Storage values[kCount];
};

template <int kCount, typename Storage>
MUSTER_HOST_DEVICE inline AlignedVector<Storage, kCount> LoadStored(const Storage* from) {
  return *reinterpret_cast<const AlignedVector<Storage, kCount>*>(from);
}

template <typename Storage, int kCount>
MUSTER_HOST_DEVICE inline Floats<kCount> Widened(const AlignedVector<Storage, kCount>& stored) {
  Floats<kCount> result;
  for (int i = 0; i < kCount; ++i) result[i] = Widen(stored.values[i]);
  return result;
}

template <int kCount, typename Storage>
MUSTER_HOST_DEVICE inline Floats<kCount> Load(const Storage* from) {
  return Widened(LoadStored<kCount>(from));
}

template <int kCount, typename Storage>
MUSTER_HOST_DEVICE inline void Store(Storage* to, const Floats<kCount>& values) {
  AlignedVector<Storage, kCount> stored;
  for (int i = 0; i < kCount; ++i) Narrow(values[i], stored.values[i]);
  *reinterpret_cast<AlignedVector<Storage, kCount>*>(to) = stored;
}

MUSTER_HOST_DEVICE inline float Activate(Activation activation, float x) {
  if (activation == Activation::kRelu) return ReluFunctor<float>()(x);
  if (activation == Activation::kRelu6) return Relu6Functor<float>()(x);
  return x;
}

// The gradient of an activation with output y: dy or 0.
MUSTER_HOST_DEVICE inline float ActivationGradient(Activation activation, float y, float dy) {
  if (activation == Activation::kRelu) return ReluBackwardFunctor<float>()(y, dy);
  if (activation == Activation::kRelu6) return Relu6BackwardFunctor<float>()(y, dy);
  return dy;
}

// Whether every array is 16-byte aligned. Null pointers count as aligned.
inline bool Aligned(std::initializer_list<const void*> arrays) {
  for (const void* array : arrays) {
    if (reinterpret_cast<uintptr_t>(array) % 16 != 0) return false;
  }
  return true;
}

// Calls visit(element), whose type is the storage type of `type`.
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

// Calls visit(element, width): an element of the storage type, and the vector width as a
// std::integral_constant. The width is that of 16 bytes if `channels` is a multiple of it and all
// arrays are aligned, and 1 otherwise.
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
