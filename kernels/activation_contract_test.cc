// Holds every instruction set's activations and sums to the reference, and the reference to their
// definitions.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "gtest/gtest.h"
#include "kernels/activation.h"
#include "kernels/kernel_contract.h"

namespace muster::kernels {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr size_t kCounts[] = {0, 1, 15, 16, 33, 1000};
constexpr Activation kActivations[] = {Activation::kNone, Activation::kRelu, Activation::kRelu6};

// Values below, between and above the bounds, and the bounds themselves.
TestBuffer AroundTheBounds(size_t count, std::mt19937& random) {
  TestBuffer x(count, random);
  for (size_t i = 0; i < count; ++i) x[i] = i % 5 == 0 ? 0.0f : i % 7 == 0 ? 6.0f : x[i] * 6;
  return x;
}

double InDouble(Activation activation, double x) {
  if (activation == Activation::kNone) return x;
  return std::min(std::max(x, 0.0), activation == Activation::kRelu ? double{kInfinity} : 6.0);
}

class ActivationContractTest : public KernelContractTest {};

TEST_P(ActivationContractTest, ReluAndRelu6) {
  for (const size_t count : kCounts) {
    TestBuffer x = AroundTheBounds(count, random_), dy(count, random_);
    for (const Activation activation : {Activation::kRelu, Activation::kRelu6}) {
      const auto forward = [&](const KernelTable& table) {
        return activation == Activation::kRelu ? table.relu_forward : table.relu6_forward;
      };
      const auto backward = [&](const KernelTable& table) {
        return activation == Activation::kRelu ? table.relu_backward : table.relu6_backward;
      };
      TestBuffer y(count), expected_y(count), dx(count), expected_dx(count);
      forward(kernels())(count, x.data(), y.data());
      forward(reference())(count, x.data(), expected_y.data());
      ExpectClose(y, expected_y, "y", 0);
      backward(kernels())(count, y.data(), dy.data(), dx.data());
      backward(reference())(count, y.data(), dy.data(), expected_dx.data());
      ExpectClose(dx, expected_dx, "dx", 0);
      // In place.
      backward(kernels())(count, y.data(), dy.data(), dy.data());
      ExpectClose(dy, expected_dx, "dx in the place of dy", 0);
      forward(kernels())(count, y.data(), y.data());
      ExpectClose(y, expected_y, "y of y", 0);
    }
  }
}

TEST_P(ActivationContractTest, NotANumberAndInfinity) {
  for (const KernelTable* table : {&kernels(), &reference()}) {
    SCOPED_TRACE(table->name);
    TestBuffer x(20, random_), y(20), dx(20), ones(20);
    std::fill_n(ones.data(), 20, 1.0f);
    x[3] = x[19] = kNan;
    x[4] = x[18] = kInfinity;
    x[5] = x[17] = -kInfinity;
    table->relu_forward(20, x.data(), y.data());
    for (const int i : {3, 19}) EXPECT_TRUE(std::isnan(y[i]));
    for (const int i : {4, 18}) EXPECT_EQ(y[i], kInfinity);
    for (const int i : {5, 17}) EXPECT_EQ(y[i], 0);
    table->relu_backward(20, y.data(), ones.data(), dx.data());
    for (const int i : {3, 4, 18, 19}) EXPECT_EQ(dx[i], 1);
    table->relu6_forward(20, x.data(), y.data());
    for (const int i : {3, 19}) EXPECT_TRUE(std::isnan(y[i]));
    for (const int i : {4, 18}) EXPECT_EQ(y[i], 6);
    for (const int i : {5, 17}) EXPECT_EQ(y[i], 0);
    table->relu6_backward(20, y.data(), ones.data(), dx.data());
    for (const int i : {3, 19}) EXPECT_EQ(dx[i], 1);
    for (const int i : {4, 18}) EXPECT_EQ(dx[i], 0);
    for (const Activation activation : kActivations) {
      table->add_forward(20, x.data(), 1, ones.data(), activation, y.data());
      for (const int i : {3, 19}) EXPECT_TRUE(std::isnan(y[i]));
    }
  }
}

TEST_P(ActivationContractTest, Add) {
  for (const size_t count : kCounts) {
    for (const Activation activation : kActivations) {
      for (const bool dropped : {false, true}) {
        TestBuffer a(count, random_), b(count, random_), y(count), expected(count);
        for (size_t i = 0; i < count; ++i) b[i] *= 5;
        const float* const branch = dropped ? nullptr : a.data();
        kernels().add_forward(count, branch, 1.25f, b.data(), activation, y.data());
        reference().add_forward(count, branch, 1.25f, b.data(), activation, expected.data());
        ExpectClose(y, expected, "y", 1e-6);
        for (size_t i = 0; i < count; ++i) {
          const double sum = double{b[i]} + (dropped ? 0.0 : 1.25 * double{a[i]});
          ASSERT_NEAR(expected[i], InDouble(activation, sum), 1e-5);
        }
        // In the place of either.
        TestBuffer over_b = Moved(b, b, 0);
        kernels().add_forward(count, branch, 1.25f, over_b.data(), activation, over_b.data());
        ExpectClose(over_b, y, "y in the place of b", 0);
        if (dropped) continue;
        kernels().add_forward(count, branch, 1.25f, b.data(), activation, a.data());
        ExpectClose(a, y, "y in the place of a", 0);
      }
    }
  }
}

TEST_P(ActivationContractTest, AccumulateAndScaledCopy) {
  for (const size_t count : kCounts) {
    TestBuffer x(count, random_), y(count, random_);
    TestBuffer sum = Moved(y, x, 1), expected = Moved(y, y, 0), scaled(count);
    reference().accumulate(count, x.data(), expected.data());
    ExpectClose(expected, sum, "reference's sum", 0);
    kernels().accumulate(count, x.data(), y.data());
    ExpectClose(y, expected, "sum", 0);
    kernels().scaled_copy(count, -0.7f, x.data(), scaled.data());
    reference().scaled_copy(count, -0.7f, x.data(), expected.data());
    ExpectClose(scaled, expected, "scaled", 0);
    kernels().scaled_copy(count, -0.7f, x.data(), x.data());
    ExpectClose(x, expected, "scaled in place", 0);
  }
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, ActivationContractTest, EveryInstructionSet(),
                         InstructionSetName);

TEST(ReferenceKernelsTest, ActivationGradientsAreFiniteDifferences) {
  std::mt19937 random(2);
  TestBuffer x(400, random), dy(400, random), y(400), dx(400);
  for (size_t i = 0; i < x.size(); ++i) x[i] *= 6;
  for (const Activation activation : {Activation::kRelu, Activation::kRelu6}) {
    const bool relu = activation == Activation::kRelu;
    const KernelTable& table = ReferenceKernels();
    (relu ? table.relu_forward : table.relu6_forward)(400, x.data(), y.data());
    (relu ? table.relu_backward : table.relu6_backward)(400, y.data(), dy.data(), dx.data());
    const auto forward = [&](Doubles values) {
      for (double& value : values) value = InDouble(activation, value);
      return values;
    };
    ExpectGradient(forward, x, dy, dx, random, relu ? "relu" : "relu6");
  }
}

}  // namespace
}  // namespace muster::kernels
