// Shared by the contract tests of kernel tables: a fixture that runs once per kernel set, and
// checks by finite differences.
#ifndef MUSTER_KERNELS_CONTRACT_KERNEL_CONTRACT_H_
#define MUSTER_KERNELS_CONTRACT_KERNEL_CONTRACT_H_

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "kernels/contract/kernel_set.h"
#include "kernels/contract/test_buffer.h"
#include "kernels/contract/typed_buffer.h"
#include "kernels/kernel_table.h"

namespace muster::kernels {

using Bytes = TestVector<uint8_t>;
using Doubles = std::vector<double>;

// Skips kernel sets that cannot run here; allocates the test's arrays where the kernels can access
// them.
class KernelSetTest : public testing::TestWithParam<KernelSet> {
 protected:
  void SetUp() override {
    const absl::StatusOr<KernelSetUse> use = UseKernelSet(GetParam());
    if (!use.ok()) GTEST_SKIP() << use.status().message();
    kernels_ = use->kernels;
    test_memory = use->memory;
  }
  void TearDown() override { test_memory = TestMemory(); }

  const KernelTable& kernels() const { return *kernels_; }
  const KernelTable& reference() const { return ReferenceKernels(); }

  std::mt19937 random_{29};

 private:
  const KernelTable* kernels_ = nullptr;
};

class KernelContractTest : public KernelSetTest {
 protected:
  KernelContractTest() { random_.seed(11); }
  int64_t Draw(int64_t first, int64_t last) {
    return std::uniform_int_distribution<int64_t>(first, last)(random_);
  }
};

// The second and the third argument of INSTANTIATE_TEST_SUITE_P. EveryInstructionSet is for kernels
// that exist only for CPUs.
inline auto EveryInstructionSet() {
  return testing::Values(KernelSet::kPlain, KernelSet::kAvx2, KernelSet::kAvx512,
                         KernelSet::kAvx512Bf16);
}
inline auto EveryKernelSet() {
  return testing::ValuesIn(
      WithCudaPtx({KernelSet::kPlain, KernelSet::kAvx2, KernelSet::kAvx512, KernelSet::kAvx512Bf16,
                   KernelSet::kCudaOnHost, KernelSet::kCuda}));
}
inline std::string KernelSetName(const testing::TestParamInfo<KernelSet>& info) {
  return NameOf(info.param);
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

// Checks `gradient`, the gradient of dy . forward(x) with respect to x: the central difference
// along a random direction must equal the gradient's component along it. forward maps Doubles to
// Doubles.
template <typename Forward>
void ExpectGradient(const Forward& forward, const TestBuffer& x, const TestBuffer& dy,
                    const TestBuffer& gradient, std::mt19937& random, const char* what) {
  const Doubles direction = ToDoubles(TestBuffer(x.size(), random));
  const Doubles at = ToDoubles(x);
  const Doubles weights = ToDoubles(dy);
  constexpr double kDistance = 1e-6;  // small, so that no kink lies between
  const double ahead = Dot(forward(Step(at, direction, kDistance)), weights);
  const double behind = Dot(forward(Step(at, direction, -kDistance)), weights);
  // The gradient's values are float.
  double scale = 1e-3;
  for (size_t i = 0; i < x.size(); ++i) scale += std::abs(double{gradient[i]} * direction[i]);
  EXPECT_NEAR((ahead - behind) / (2 * kDistance), Dot(ToDoubles(gradient), direction), 1e-6 * scale)
      << what;
}

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_CONTRACT_KERNEL_CONTRACT_H_
