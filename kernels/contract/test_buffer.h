// Arrays for the contract tests of kernels.
#ifndef MUSTER_KERNELS_CONTRACT_TEST_BUFFER_H_
#define MUSTER_KERNELS_CONTRACT_TEST_BUFFER_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <random>
#include <type_traits>
#include <vector>

#include "gtest/gtest.h"

namespace muster::kernels {

// Allocator of test arrays: 64-byte aligned and accessible to the kernels under test.
struct TestMemory {
  void* (*allocate)(size_t bytes) = [](size_t bytes) {
    return std::aligned_alloc(64, (bytes / 64 + 1) * 64);
  };
  void (*release)(void* data) = std::free;
};

// Allocator of arrays that are created from now on.
inline TestMemory test_memory;

// Allocates with the test_memory of its construction, and releases with the same, even after a
// fixture has replaced test_memory.
template <typename T>
struct TestAllocator {
  using value_type = T;
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_copy_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;
  TestAllocator() = default;
  template <typename U>
  TestAllocator(const TestAllocator<U>& other) : memory(other.memory) {}
  T* allocate(size_t count) { return static_cast<T*>(memory.allocate(count * sizeof(T))); }
  void deallocate(T* data, size_t) { memory.release(data); }
  bool operator==(const TestAllocator& other) const {
    return memory.release == other.memory.release;
  }

  TestMemory memory = test_memory;
};

// For element types other than float.
template <typename T>
using TestVector = std::vector<T, TestAllocator<T>>;

// One value in memory that the kernels under test can read.
template <typename T>
TestVector<T> Stored(const T& value) {
  return TestVector<T>(1, value);
}

// 64-byte aligned floats, initially NaN, so that elements that a kernel fails to write are
// detected.
class TestBuffer {
 public:
  explicit TestBuffer(size_t count)
      : count_(count),
        data_(static_cast<float*>(test_memory.allocate(count * sizeof(float))),
              test_memory.release) {
    std::fill_n(data_.get(), count, std::nanf(""));
  }
  TestBuffer(size_t count, std::mt19937& random) : TestBuffer(count) { Randomise(random); }

  float* data() const { return data_.get(); }
  size_t size() const { return count_; }
  float& operator[](size_t i) const { return data_.get()[i]; }

  void Randomise(std::mt19937& random) {
    std::normal_distribution<float> normal;
    for (size_t i = 0; i < count_; ++i) data_.get()[i] = normal(random);
  }

 private:
  size_t count_;
  std::unique_ptr<float, void (*)(void*)> data_;
};

inline double Dot(const TestBuffer& a, const TestBuffer& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += double{a[i]} * double{b[i]};
  return sum;
}

inline TestBuffer Moved(const TestBuffer& from, const TestBuffer& by, float distance) {
  TestBuffer sum(from.size());
  for (size_t i = 0; i < sum.size(); ++i) sum[i] = from[i] + distance * by[i];
  return sum;
}

// Checks each value within `tolerance` relative to the largest magnitude, because sums of many
// products cancel while their errors do not.
inline void ExpectClose(const TestBuffer& actual, const TestBuffer& expected, const char* what,
                        double tolerance = 1e-5) {
  ASSERT_EQ(actual.size(), expected.size());
  double largest = 1;
  for (size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::abs(double{expected[i]}));
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], tolerance * largest) << what << " at " << i;
  }
}

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_CONTRACT_TEST_BUFFER_H_
