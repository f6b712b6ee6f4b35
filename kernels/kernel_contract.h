// What the contract tests of kernel tables share: a fixture that runs once per instruction set, and
// finite differences.
#ifndef MUSTER_KERNELS_KERNEL_CONTRACT_H_
#define MUSTER_KERNELS_KERNEL_CONTRACT_H_

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/kernel_table.h"
#include "kernels/test_buffer.h"
#include "kernels/typed_buffer.h"

namespace muster::kernels {

using Bytes = std::vector<uint8_t>;
using Doubles = std::vector<double>;

class KernelContractTest : public testing::TestWithParam<InstructionSet> {
 protected:
  void SetUp() override {
    if (GetParam() > DetectInstructionSet()) GTEST_SKIP() << "this processor lacks it";
  }
  const KernelTable& kernels() const { return CpuKernels(GetParam()); }
  const KernelTable& reference() const { return ReferenceKernels(); }
  int64_t Draw(int64_t first, int64_t last) {
    return std::uniform_int_distribution<int64_t>(first, last)(random_);
  }

  std::mt19937 random_{11};
};

// The second and the third argument of INSTANTIATE_TEST_SUITE_P.
inline auto EveryInstructionSet() {
  return testing::Values(InstructionSet::kPlain, InstructionSet::kAvx2, InstructionSet::kAvx512,
                         InstructionSet::kAvx512Bf16);
}
inline std::string InstructionSetName(const testing::TestParamInfo<InstructionSet>& info) {
  return CpuKernels(info.param).name;
}

inline Doubles ToDoubles(const TestBuffer& buffer) {
  return Doubles(buffer.data(), buffer.data() + buffer.size());
}

// from + distance * direction
inline Doubles Step(const Doubles& from, const Doubles& direction, double distance) {
  Doubles sum = from;
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += distance * direction[i];
  return sum;
}

inline double Dot(const Doubles& a, const Doubles& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// The gradient of dy . forward(x) with respect to x is `gradient`: the central difference along a
// random direction is the gradient's part along it. forward takes and gives Doubles.
template <typename Forward>
void ExpectGradient(const Forward& forward, const TestBuffer& x, const TestBuffer& dy,
                    const TestBuffer& gradient, std::mt19937& random, const char* what) {
  const Doubles direction = ToDoubles(TestBuffer(x.size(), random));
  const Doubles at = ToDoubles(x);
  const Doubles weights = ToDoubles(dy);
  constexpr double kDistance = 1e-6;  // small enough that no kink lies between
  const double ahead = Dot(forward(Step(at, direction, kDistance)), weights);
  const double behind = Dot(forward(Step(at, direction, -kDistance)), weights);
  // The gradient's own values are float.
  double scale = 1e-3;
  for (size_t i = 0; i < x.size(); ++i) scale += std::abs(double{gradient[i]} * direction[i]);
  EXPECT_NEAR((ahead - behind) / (2 * kDistance), Dot(ToDoubles(gradient), direction), 1e-6 * scale)
      << what;
}

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_KERNEL_CONTRACT_H_
