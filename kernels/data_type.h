// Data types of array elements, in memory and in communication between ranks.
#ifndef MUSTER_KERNELS_DATA_TYPE_H_
#define MUSTER_KERNELS_DATA_TYPE_H_

#include <cstddef>
#include <cstdint>

namespace muster::kernels {

// Ranks compare these numbers to check that they call the same operation (OperationSignature);
// therefore they must not change.
enum class DataType : uint8_t {
  kFloat32 = 0,
  kFloat64 = 1,
  kBfloat16 = 2,
  kFloat16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kUint8 = 6
};

// Whether kernels support the type; collectives support all types. Creating a plan or a kernel with
// another type is INVALID_ARGUMENT, so that kernel calls need not check it. Arithmetic on 16-bit
// types is in float32: values are widened when loaded and rounded to nearest even when stored.
constexpr bool IsKernelType(DataType type) {
  return type == DataType::kFloat32 || type == DataType::kBfloat16 || type == DataType::kFloat16;
}

// Element types of arrays in memory.
struct Bfloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};

constexpr size_t SizeOf(DataType type) {
  switch (type) {
    case DataType::kFloat64:
    case DataType::kInt64:
      return 8;
    case DataType::kFloat32:
    case DataType::kInt32:
      return 4;
    case DataType::kBfloat16:
    case DataType::kFloat16:
      return 2;
    case DataType::kUint8:
      return 1;
  }
  return 1;
}

// Returns "?" for an invalid value.
constexpr const char* NameOf(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return "float32";
    case DataType::kFloat64:
      return "float64";
    case DataType::kBfloat16:
      return "bfloat16";
    case DataType::kFloat16:
      return "float16";
    case DataType::kInt32:
      return "int32";
    case DataType::kInt64:
      return "int64";
    case DataType::kUint8:
      return "uint8";
  }
  return "?";
}

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_DATA_TYPE_H_
