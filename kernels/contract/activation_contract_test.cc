// Compares every kernel set's activations and sums with the reference, and the reference with their
// definitions.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "gtest/gtest.h"
#include "kernels/activation.h"
#include "kernels/contract/kernel_contract.h"

namespace muster::kernels {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr size_t kCounts[] = {0, 1, 15, 16, 33, 1000};
constexpr Activation kActivations[] = {Activation::kNone, Activation::kRelu, Activation::kRelu6};

// Values below, between, above and at the bounds.
TypedBuffer AroundTheBounds(DataType type, size_t count, std::mt19937& random) {
  TypedBuffer x(type, count, random);
  for (size_t i = 0; i < count; ++i) x.Set(i, i % 5 == 0 ? 0.0f : i % 7 == 0 ? 6.0f : x[i] * 6);
  return x;
}

double InDouble(Activation activation, double x) {
  if (activation == Activation::kNone) return x;
  return std::min(std::max(x, 0.0), activation == Activation::kRelu ? double{kInfinity} : 6.0);
}

class ActivationContractTest : public KernelContractTest {};

TEST_P(ActivationContractTest, ForwardAndBackward) {
  for (const DataType type : kDataTypes) {
    for (const size_t count : kCounts) {
      for (const Activation activation : kActivations) {
        const TypedBuffer x = AroundTheBounds(type, count, random_), dy(type, count, random_);
        TypedBuffer y(type, count), expected_y(type, count);
        TypedBuffer dx(type, count), expected_dx(type, count);
        kernels().activation_forward(type, activation, count, x.data(), y.data());
        reference().activation_forward(type, activation, count, x.data(), expected_y.data());
        ExpectSame(y, expected_y, "y");
        kernels().activation_backward(type, activation, count, y.data(), dy.data(), dx.data());
        reference().activation_backward(type, activation, count, y.data(), dy.data(),
                                        expected_dx.data());
        ExpectSame(dx, expected_dx, "dx");
        // In place.
        kernels().activation_backward(type, activation, count, y.data(), dy.data(), dy.data());
        ExpectSame(dy, expected_dx, "dx overwriting dy");
        kernels().activation_forward(type, activation, count, y.data(), y.data());
        ExpectSame(y, expected_y, "y in place");
      }
    }
  }
}

TEST_P(ActivationContractTest, HandlesNanAndInfinity) {
  for (const KernelTable* table : {&kernels(), &reference()}) {
    for (const DataType type : kDataTypes) {
      SCOPED_TRACE(std::string(table->name) + " " + NameOf(type));
      TypedBuffer x(type, 20, random_), y(type, 20), dx(type, 20), ones(type, 20);
      for (int i = 0; i < 20; ++i) ones.Set(i, 1);
      for (const int i : {3, 19}) x.Set(i, kNan);
      for (const int i : {4, 18}) x.Set(i, kInfinity);
      for (const int i : {5, 17}) x.Set(i, -kInfinity);
      table->activation_forward(type, Activation::kRelu, 20, x.data(), y.data());
      for (const int i : {3, 19}) EXPECT_TRUE(std::isnan(y[i]));
      for (const int i : {4, 18}) EXPECT_EQ(y[i], kInfinity);
      for (const int i : {5, 17}) EXPECT_EQ(y[i], 0);
      table->activation_backward(type, Activation::kRelu, 20, y.data(), ones.data(), dx.data());
      for (const int i : {3, 4, 18, 19}) EXPECT_EQ(dx[i], 1);
      table->activation_forward(type, Activation::kRelu6, 20, x.data(), y.data());
      for (const int i : {3, 19}) EXPECT_TRUE(std::isnan(y[i]));
      for (const int i : {4, 18}) EXPECT_EQ(y[i], 6);
      for (const int i : {5, 17}) EXPECT_EQ(y[i], 0);
      table->activation_backward(type, Activation::kRelu6, 20, y.data(), ones.data(), dx.data());
      for (const int i : {3, 19}) EXPECT_EQ(dx[i], 1);
      for (const int i : {4, 18}) EXPECT_EQ(dx[i], 0);
      for (const Activation activation : kActivations) {
        table->add_forward(type, 20, x.data(), nullptr, ones.data(), activation, y.data());
        for (const int i : {3, 19}) EXPECT_TRUE(std::isnan(y[i]));
      }
    }
  }
}

TEST_P(ActivationContractTest, Add) {
  for (const DataType type : kDataTypes) {
    for (const size_t count : kCounts) {
      for (const Activation activation : kActivations) {
        for (const float scale : {1.25f, 1.0f, 0.0f}) {
          const bool dropped = scale == 0;
          const auto held = Stored(scale);
          const TypedBuffer a(type, count, random_), b = AroundTheBounds(type, count, random_);
          const TypedBuffer y(type, count), expected(type, count), over_b = b;
          // A dropped branch may contain anything.
          if (dropped && count > 2) a.Set(2, std::nan(""));
          const float* const scale_a = scale == 1 ? nullptr : held.data();
          kernels().add_forward(type, count, a.data(), scale_a, b.data(), activation, y.data());
          reference().add_forward(type, count, a.data(), scale_a, b.data(), activation,
                                  expected.data());
          ExpectRounded(y, expected, "y", 1e-6);
          for (size_t i = 0; i < count; ++i) {
            const double sum = double{b[i]} + (dropped ? 0.0 : double{scale} * double{a[i]});
            ASSERT_NEAR(expected[i], InDouble(activation, sum),
                        1e-5 + Spacing(type, std::abs(sum)));
          }
          // Overwriting either input.
          kernels().add_forward(type, count, a.data(), scale_a, over_b.data(), activation,
                                over_b.data());
          ExpectSame(over_b, y, "y overwriting b");
          kernels().add_forward(type, count, a.data(), scale_a, b.data(), activation, a.data());
          ExpectSame(a, y, "y overwriting a");
          if (!dropped) continue;
          kernels().add_forward(type, count, nullptr, scale_a, b.data(), activation, a.data());
          ExpectSame(a, y, "without a");
        }
      }
    }
  }
}

TEST_P(ActivationContractTest, AccumulateAndScaledCopy) {
  for (const DataType type : kDataTypes) {
    for (const size_t count : kCounts) {
      const TypedBuffer x(type, count, random_), y(type, count, random_), expected = y, before = y;
      reference().accumulate(type, count, x.data(), expected.data());
      for (size_t i = 0; i < count; ++i) {
        ASSERT_EQ(expected[i], RoundTo(type, double{before[i]} + double{x[i]}));
      }
      kernels().accumulate(type, count, x.data(), y.data());
      ExpectSame(y, expected, "sum");
      const TypedBuffer scaled(type, count);
      auto scale = Stored(-0.7f);
      kernels().scaled_copy(type, count, scale.data(), x.data(), scaled.data());
      reference().scaled_copy(type, count, scale.data(), x.data(), expected.data());
      ExpectSame(scaled, expected, "scaled");
      kernels().scaled_copy(type, count, scale.data(), x.data(), x.data());
      ExpectSame(x, expected, "scaled in place");
      // A scale of 0 gives zeros, whatever the input.
      scale[0] = 0;
      if (count > 0) x.Set(0, std::nan(""));
      for (const KernelTable* table : {&kernels(), &reference()}) {
        table->scaled_copy(type, count, scale.data(), x.data(), scaled.data());
        for (size_t i = 0; i < count; ++i) ASSERT_EQ(scaled[i], 0);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(KernelSets, ActivationContractTest, EveryKernelSet(), KernelSetName);

TEST(ReferenceKernelsTest, ActivationGradientsMatchFiniteDifferences) {
  std::mt19937 random(2);
  TestBuffer x(400, random), dy(400, random), y(400), dx(400);
  for (size_t i = 0; i < x.size(); ++i) x[i] *= 6;
  for (const Activation activation : {Activation::kRelu, Activation::kRelu6}) {
    const bool relu = activation == Activation::kRelu;
    const KernelTable& table = ReferenceKernels();
    table.activation_forward(DataType::kFloat32, activation, 400, x.data(), y.data());
    table.activation_backward(DataType::kFloat32, activation, 400, y.data(), dy.data(), dx.data());
    const auto forward = [&](Doubles values) {
      for (double& value : values) value = InDouble(activation, value);
      return values;
    };
    ExpectGradient(forward, x, dy, dx, random, relu ? "relu" : "relu6");
  }
}

}  // namespace
}  // namespace muster::kernels
