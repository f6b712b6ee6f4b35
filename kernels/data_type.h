// The types of array elements, in memory and as ranks exchange them.
#ifndef MUSTER_KERNELS_DATA_TYPE_H_
#define MUSTER_KERNELS_DATA_TYPE_H_

#include <cstddef>
#include <cstdint>

namespace muster::kernels {

// Ranks compare these numbers to check that they call the same operation (OperationSignature), so
// they stay as they are.
enum class DataType : uint8_t {
  kFloat32 = 0,
  kFloat64 = 1,
  kBfloat16 = 2,
  kFloat16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kUint8 = 6
};

// The types that kernels read and write; collectives support all of the above. Creating a plan or a
// kernel with another type is INVALID_ARGUMENT, so a kernel call need not check again. Arithmetic
// on the 16-bit types is in float32: values are widened as they are loaded and rounded to nearest
// even as they are stored.
constexpr bool IsKernelType(DataType type) {
  return type == DataType::kFloat32 || type == DataType::kBfloat16 || type == DataType::kFloat16;
}

// Elements in memory, so that a pointer says what it points to.
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

// "?" for a number that names no type.
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
