// How the depthwise kernels read their operands, as a template parameter. Compiled once per
// instruction set.
#ifndef MUSTER_KERNELS_CPU_CONVOLUTION_DEPTHWISE_OPERAND_H_
#define MUSTER_KERNELS_CPU_CONVOLUTION_DEPTHWISE_OPERAND_H_

#include "kernels/cpu/vector/vector.h"
#include "kernels/data_type.h"
#include "kernels/depthwise_convolution.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

template <typename Low, typename T>
MUSTER_ALWAYS_INLINE T RoundThrough(T value) {
  Low rounded[Element<T>::kWidth];
  Element<T>::Store(rounded, value);
  return Element<T>::Load(static_cast<const Low*>(rounded));
}

MUSTER_ALWAYS_INLINE auto RoundToType(DataType type, auto value) -> decltype(value) {
  switch (type) {
    case DataType::kBfloat16:
      return RoundThrough<Bfloat16>(value);
    case DataType::kFloat16:
      return RoundThrough<Float16>(value);
    default:  // kFloat32
      return value;
  }
}

// Elements of type S that are multiplied without rounding.
template <typename S>
struct StoredOperand {
  using Storage = S;
  template <typename T>
  static MUSTER_ALWAYS_INLINE T Load(const S* p) {
    return Element<T>::Load(p);
  }
  template <typename T>
  static MUSTER_ALWAYS_INLINE T Round(T value) {
    return value;
  }
};

// Floats that are rounded to Low before they are multiplied.
template <typename Low>
struct RoundedOperand : StoredOperand<float> {
  template <typename T>
  static MUSTER_ALWAYS_INLINE T Round(T value) {
    return RoundThrough<Low>(value);
  }
};

// Calls visit(operand) with the operand for the shape's types.
template <typename Visit>
inline void VisitOperand(const DepthwiseConvolutionShape& shape, const Visit& visit) {
  switch (shape.type) {
    case DataType::kBfloat16:
      return visit(StoredOperand<Bfloat16>());
    case DataType::kFloat16:
      return visit(StoredOperand<Float16>());
    default:  // kFloat32
      break;
  }
  switch (shape.compute_type) {
    case DataType::kBfloat16:
      return visit(RoundedOperand<Bfloat16>());
    case DataType::kFloat16:
      return visit(RoundedOperand<Float16>());
    default:  // kFloat32
      return visit(StoredOperand<float>());
  }
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_CPU_CONVOLUTION_DEPTHWISE_OPERAND_H_
