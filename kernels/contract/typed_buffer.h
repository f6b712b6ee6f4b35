// Arrays of any DataType, for the contract tests of kernels.
#ifndef MUSTER_KERNELS_CONTRACT_TYPED_BUFFER_H_
#define MUSTER_KERNELS_CONTRACT_TYPED_BUFFER_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <random>

#include "gtest/gtest.h"
#include "kernels/contract/test_buffer.h"
#include "kernels/data_type.h"
#include "kernels/half.h"

namespace muster::kernels {

inline constexpr DataType kDataTypes[] = {DataType::kFloat32, DataType::kBfloat16,
                                          DataType::kFloat16};

// 64-byte aligned, initially NaN.
class TypedBuffer {
 public:
  TypedBuffer(DataType type, size_t count)
      : type_(type), count_(count), bytes_((count * SizeOf(type) + 3) / 4) {
    for (size_t i = 0; i < count; ++i) Set(i, std::nanf(""));
  }
  // Normally distributed.
  TypedBuffer(DataType type, size_t count, std::mt19937& random) : TypedBuffer(type, count) {
    std::normal_distribution<float> normal;
    for (size_t i = 0; i < count; ++i) Set(i, normal(random));
  }
  TypedBuffer(const TypedBuffer& other) : TypedBuffer(other.type_, other.count_) {
    std::memcpy(data(), other.data(), count_ * SizeOf(type_));
  }
  TypedBuffer(TypedBuffer&&) = default;

  DataType type() const { return type_; }
  size_t size() const { return count_; }
  void* data() const { return bytes_.data(); }
  // Address of element `index`.
  void* at(size_t index) const { return static_cast<char*>(data()) + index * SizeOf(type_); }
  float operator[](size_t i) const { return LoadElement(type_, data(), static_cast<int64_t>(i)); }
  void Set(size_t i, double value) const {
    StoreElement(type_, value, data(), static_cast<int64_t>(i));
  }

 private:
  DataType type_;
  size_t count_;
  TestBuffer bytes_;
};

inline void ExpectSame(const TypedBuffer& actual, const TypedBuffer& expected, const char* what) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    const float value = actual[i], right = expected[i];
    if (value == right || (std::isnan(value) && std::isnan(right))) continue;
    FAIL() << what << " at " << i << ": " << value << " instead of " << right;
  }
}

// Distance between adjacent values of about this magnitude. For bfloat16 below the normal numbers,
// which its instructions flush to zero, the smallest normal number.
inline double Spacing(DataType type, double magnitude) {
  if (type == DataType::kFloat32) return 0;
  if (type == DataType::kBfloat16) return std::max(magnitude * 0x1p-7, 0x1p-126);
  return std::max(magnitude * 0x1p-10, 0x1p-24);
}

// Checks float32 values within `tolerance` relative to the largest magnitude, like ExpectClose; for
// other types allows one more rounding.
inline void ExpectRounded(const TypedBuffer& actual, const TypedBuffer& expected, const char* what,
                          double tolerance = 1e-5) {
  ASSERT_EQ(actual.size(), expected.size());
  double largest = 1;
  for (size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::abs(double{expected[i]}));
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    const double value = actual[i], right = expected[i];
    const double allowed = tolerance * largest + Spacing(expected.type(), std::abs(right));
    if (std::abs(value - right) <= allowed) continue;
    FAIL() << what << " at " << i << ": " << value << " instead of " << right << ", not within "
           << allowed;
  }
}

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_CONTRACT_TYPED_BUFFER_H_
