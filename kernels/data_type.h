// What the elements of an activation are stored as.
#ifndef MUSTER_KERNELS_DATA_TYPE_H_
#define MUSTER_KERNELS_DATA_TYPE_H_

#include <cstddef>
#include <cstdint>

namespace muster::kernels {

// Arithmetic on the 16-bit types is in float32: values are widened as they are loaded and rounded
// to nearest even as they are stored.
enum class DataType : uint8_t { kFloat32, kBfloat16, kFloat16 };

// Elements in memory, so that a pointer says what it points to.
struct Bfloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};

constexpr size_t SizeOf(DataType type) { return type == DataType::kFloat32 ? 4 : 2; }

constexpr const char* NameOf(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return "float32";
    case DataType::kBfloat16:
      return "bfloat16";
    case DataType::kFloat16:
      return "float16";
  }
  return "";
}

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_DATA_TYPE_H_
