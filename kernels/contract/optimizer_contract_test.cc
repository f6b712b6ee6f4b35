// Compares every kernel set's optimizer steps with the reference.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>

#include "gtest/gtest.h"
#include "kernels/contract/kernel_contract.h"
#include "kernels/contract/test_buffer.h"
#include "kernels/cpu/table/instruction_set.h"
#include "kernels/half.h"
#include "kernels/kernel_table.h"
#include "kernels/optimizer.h"

namespace muster::kernels {
namespace {

constexpr size_t kCounts[] = {0, 1, 5, 16, 31, 32, 33, 1003};

TestBuffer Copy(const TestBuffer& buffer) {
  TestBuffer copy(buffer.size());
  std::memcpy(copy.data(), buffer.data(), buffer.size() * sizeof(float));
  return copy;
}

TestBuffer Absolute(TestBuffer buffer) {
  for (size_t i = 0; i < buffer.size(); ++i) buffer[i] = std::abs(buffer[i]);
  return buffer;
}

bool BitEqual(const TestBuffer& a, const TestBuffer& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

double SumOfSquares(const KernelTable& table, const float* x, size_t count) {
  TestVector<double> sum(1, std::nan(""));
  table.sum_of_squares(x, count, sum.data());
  return sum[0];
}

class OptimizerContractTest : public KernelSetTest {};

TEST_P(OptimizerContractTest, Sgd) {
  for (const bool nesterov : {false, true}) {
    const SgdOptions options{.momentum = 0.9f, .weight_decay = 0.01, .nesterov = nesterov};
    const auto scalars =
        Stored(UpdateScalars{.learning_rate = 0.1, .gradient_scale = 0.3, .decay_scale = 0.5});
    for (const size_t count : kCounts) {
      TestBuffer parameters(count, random_), velocities(count, random_), gradients(count, random_);
      TestBuffer expected_parameters = Copy(parameters), expected_velocities = Copy(velocities);
      kernels().sgd_step(options, scalars.data(), parameters.data(), velocities.data(),
                         gradients.data(), count);
      reference().sgd_step(options, scalars.data(), expected_parameters.data(),
                           expected_velocities.data(), gradients.data(), count);
      ExpectClose(parameters, expected_parameters, "parameters", 1e-6);
      ExpectClose(velocities, expected_velocities, "velocities", 1e-6);
    }
  }
}

// g = 0.5 * 4 + 0.5 * 2 = 3, velocity = 0.5 * 8 + 3 = 7.
TEST_P(OptimizerContractTest, SgdMatchesManualCalculation) {
  for (const auto& [nesterov, expected] : {std::pair(false, 0.25f), {true, 2 - 0.25f * 6.5f}}) {
    TestBuffer parameters(17), velocities(17), gradients(17);
    for (int i = 0; i < 17; ++i) parameters[i] = 2, velocities[i] = 8, gradients[i] = 4;
    const auto scalars =
        Stored(UpdateScalars{.learning_rate = 0.25, .gradient_scale = 0.5, .decay_scale = 2});
    kernels().sgd_step({.momentum = 0.5f, .weight_decay = 0.25, .nesterov = nesterov},
                       scalars.data(), parameters.data(), velocities.data(), gradients.data(), 17);
    for (int i = 0; i < 17; ++i) {
      EXPECT_EQ(velocities[i], 7);
      EXPECT_EQ(parameters[i], expected);
    }
  }
}

TEST_P(OptimizerContractTest, SgdWithoutMomentumNeedsNoArray) {
  TestBuffer parameters(20), gradients(20);
  for (int i = 0; i < 20; ++i) parameters[i] = 1, gradients[i] = 2;
  const auto scalars = Stored(UpdateScalars{.learning_rate = 0.25});
  kernels().sgd_step({}, scalars.data(), parameters.data(), nullptr, gradients.data(), 20);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(parameters[i], 0.5f);
}

TEST_P(OptimizerContractTest, AdamW) {
  for (const int t : {1, 2, 1000}) {
    const AdamWOptions options{.beta1 = 0.85, .beta2 = 0.995, .epsilon = 1e-6, .weight_decay = 0.2};
    const auto scalars = Stored(UpdateScalars{.learning_rate = 0.01,
                                              .gradient_scale = 0.7,
                                              .step_size = 0.01 / (1 - std::pow(0.85, t)),
                                              .root_scale = 1 / std::sqrt(1 - std::pow(0.995, t))});
    for (const size_t count : kCounts) {
      TestBuffer parameters(count, random_), exp_avg(count, random_), gradients(count, random_);
      TestBuffer exp_avg_sq = Absolute(TestBuffer(count, random_));
      TestBuffer expected_parameters = Copy(parameters), expected_avg = Copy(exp_avg);
      TestBuffer expected_avg_sq = Copy(exp_avg_sq);
      kernels().adamw_step(options, scalars.data(), parameters.data(), exp_avg.data(),
                           exp_avg_sq.data(), gradients.data(), count);
      reference().adamw_step(options, scalars.data(), expected_parameters.data(),
                             expected_avg.data(), expected_avg_sq.data(), gradients.data(), count);
      ExpectClose(parameters, expected_parameters, "parameters", 1e-6);
      ExpectClose(exp_avg, expected_avg, "exp_avg", 1e-6);
      ExpectClose(exp_avg_sq, expected_avg_sq, "exp_avg_sq", 1e-6);
    }
  }
}

// Each value is the result of the step without rounding, rounded bitwise: small and large values,
// ties and NaN.
TEST_P(OptimizerContractTest, RoundsResults) {
  constexpr size_t kCount = 20011;
  const TestBuffer gradients(kCount, random_), parameters(kCount, random_);
  const TestBuffer first(kCount, random_), second = Absolute(TestBuffer(kCount, random_));
  const auto scalars = Stored(UpdateScalars{.learning_rate = 0.5, .step_size = 0.1});
  std::uniform_int_distribution<int> exponent(-30, 20);
  for (size_t i = 0; i < kCount; ++i) {
    const float size = std::ldexp(1.0f, exponent(random_));
    for (const TestBuffer* buffer : {&gradients, &parameters, &first}) (*buffer)[i] *= size;
    second[i] *= size;
    if (i % 3 == 0) gradients[i] = 0, first[i] = 0, parameters[i] = (1 + 0x1p-8f) * size;
    if (i % 3 == 1) gradients[i] = 0, first[i] = 0, parameters[i] = -(1 + 0x3p-11f) * size;
    if (i % 1000 == 500) gradients[i] = std::nanf("");
    if (i % 1000 == 501) gradients[i] = -std::numeric_limits<float>::infinity();
  }
  for (const DataType type : {DataType::kBfloat16, DataType::kFloat16}) {
    const auto expect_rounded = [&](const TestBuffer& rounded, const TestBuffer& exact) {
      for (size_t i = 0; i < kCount; ++i) {
        const float expected = RoundTo(type, double{exact[i]});
        if (std::isnan(expected)) {
          ASSERT_TRUE(std::isnan(rounded[i])) << i;
        } else {
          ASSERT_EQ(rounded[i], expected) << i << " from " << exact[i];
          ASSERT_EQ(std::signbit(rounded[i]), std::signbit(expected)) << i;
        }
      }
    };
    const auto step = [&](bool adamw, DataType round_to, TestBuffer& p, TestBuffer& m,
                          TestBuffer& v) {
      if (adamw) {
        kernels().adamw_step({.weight_decay = 0.1, .round_to = round_to}, scalars.data(), p.data(),
                             m.data(), v.data(), gradients.data(), kCount);
      } else {
        kernels().sgd_step({.momentum = 0.5f, .round_to = round_to}, scalars.data(), p.data(),
                           m.data(), gradients.data(), kCount);
      }
    };
    for (const bool adamw : {false, true}) {
      TestBuffer p = Copy(parameters), m = Copy(first), v = Copy(second);
      TestBuffer exact_p = Copy(parameters), exact_m = Copy(first), exact_v = Copy(second);
      step(adamw, type, p, m, v);
      step(adamw, DataType::kFloat32, exact_p, exact_m, exact_v);
      expect_rounded(p, exact_p);
      expect_rounded(m, exact_m);
      if (adamw) expect_rounded(v, exact_v);
    }
  }
}

TEST_P(OptimizerContractTest, ReferenceRoundsResults) {
  TestBuffer parameters(2), velocities(2), gradients(2);
  const SgdOptions options{.momentum = 0.5f, .round_to = DataType::kBfloat16};
  const auto scalars = Stored(UpdateScalars{.learning_rate = 1});
  for (SgdStep* step : {kernels().sgd_step, reference().sgd_step}) {
    parameters[0] = parameters[1] = 1, velocities[0] = velocities[1] = 2;
    gradients[0] = 0x1p-8f, gradients[1] = 0x3p-8f;
    step(options, scalars.data(), parameters.data(), velocities.data(), gradients.data(), 2);
    EXPECT_EQ(velocities[0], 1);  // a tie, rounded to even
    EXPECT_EQ(velocities[1], 1 + 0x1p-6f);
    EXPECT_EQ(parameters[0], -0x1p-8f);  // from the velocity before rounding
    EXPECT_EQ(parameters[1], -0x3p-8f);
  }
}

// Padding between tensors is zero in all arrays, and no optimizer may change it.
TEST_P(OptimizerContractTest, ZerosStayZeros) {
  TestBuffer zeros(40), parameters(40), first(40), second(40);
  for (int i = 0; i < 40; ++i) zeros[i] = parameters[i] = first[i] = second[i] = 0;
  const auto scalars =
      Stored(UpdateScalars{.learning_rate = 0.1, .step_size = 0.1, .average_weight = 0.1f});
  kernels().adamw_step({.weight_decay = 0.1}, scalars.data(), parameters.data(), first.data(),
                       second.data(), zeros.data(), 40);
  kernels().sgd_step({.momentum = 0.9f, .weight_decay = 0.1}, scalars.data(), parameters.data(),
                     first.data(), zeros.data(), 40);
  kernels().lerp(scalars.data(), zeros.data(), parameters.data(), 40);
  for (int i = 0; i < 40; ++i) ASSERT_EQ(parameters[i], 0);
}

// Ranges may be split anywhere: ranks need not use the same splits.
TEST_P(OptimizerContractTest, RangesGiveTheSameResultAsTheWhole) {
  constexpr size_t kCount = 101;
  const SgdOptions sgd{.momentum = 0.9f, .weight_decay = 0.1};
  const AdamWOptions adamw{.weight_decay = 0.1};
  const auto scalars = Stored(UpdateScalars{
      .learning_rate = 0.1, .step_size = 0.1, .root_scale = 3, .average_weight = 0.3f});
  TestBuffer whole(kCount, random_), first(kCount, random_), gradients(kCount, random_);
  TestBuffer second = Absolute(TestBuffer(kCount, random_));
  TestBuffer sliced = Copy(whole), first_sliced = Copy(first), second_sliced = Copy(second);
  const auto step = [&](TestBuffer& p, TestBuffer& m, TestBuffer& v, size_t begin, size_t end) {
    kernels().sgd_step(sgd, scalars.data(), p.data() + begin, m.data() + begin,
                       gradients.data() + begin, end - begin);
    kernels().adamw_step(adamw, scalars.data(), p.data() + begin, m.data() + begin,
                         v.data() + begin, gradients.data() + begin, end - begin);
    kernels().lerp(scalars.data(), gradients.data() + begin, p.data() + begin, end - begin);
  };
  step(whole, first, second, 0, kCount);
  step(sliced, first_sliced, second_sliced, 0, 37);
  step(sliced, first_sliced, second_sliced, 37, kCount);
  EXPECT_TRUE(BitEqual(sliced, whole));
  EXPECT_TRUE(BitEqual(first_sliced, first));
  EXPECT_TRUE(BitEqual(second_sliced, second));
}

TEST_P(OptimizerContractTest, SumOfSquares) {
  for (const size_t count : kCounts) {
    const TestBuffer x(count, random_);
    const double sum = SumOfSquares(kernels(), x.data(), count);
    EXPECT_NEAR(sum, SumOfSquares(reference(), x.data(), count), 1e-13 * sum) << count;
    EXPECT_EQ(sum, SumOfSquares(kernels(), x.data(), count)) << count;
    if (GetParam() >= KernelSet::kCudaOnHost) continue;
    EXPECT_EQ(sum, SumOfSquares(CpuKernels(InstructionSet::kPlain), x.data(), count)) << count;
  }
}

// Neither the sum nor some of the squares fit a float.
TEST_P(OptimizerContractTest, SumOfSquaresIsInDouble) {
  TestBuffer x(4097);
  for (size_t i = 0; i < 4097; ++i) x[i] = 1e-25f;
  x[4096] = 1e25f;
  EXPECT_NEAR(SumOfSquares(kernels(), x.data(), 4096) / (4096 * 1e-50), 1, 1e-6);
  EXPECT_NEAR(SumOfSquares(kernels(), x.data(), 4097) / 1e50, 1, 1e-6);
}

TEST_P(OptimizerContractTest, Lerp) {
  for (const size_t count : kCounts) {
    const TestBuffer x(count, random_);
    TestBuffer y(count, random_), expected = Copy(y);
    auto scalars = Stored(UpdateScalars{.average_weight = 0.01f});
    kernels().lerp(scalars.data(), x.data(), y.data(), count);
    reference().lerp(scalars.data(), x.data(), expected.data(), count);
    ExpectClose(y, expected, "y", 1e-6);
    scalars[0].average_weight = 1;
    kernels().lerp(scalars.data(), x.data(), y.data(), count);
    EXPECT_TRUE(BitEqual(y, x));
  }
}

TEST_P(OptimizerContractTest, SkippedStepChangesNothing) {
  constexpr size_t kCount = 37;
  const TestBuffer before(kCount, random_), gradients(kCount);  // NaN
  auto scalars = Stored(UpdateScalars{.learning_rate = 0.1, .step_size = 0.1, .skip = 1});
  const KernelTable* const tables[] = {&kernels(), &reference()};
  for (const KernelTable* table : tables) {
    TestBuffer p = Copy(before), m = Copy(before), v = Copy(before);
    table->sgd_step({.momentum = 0.5f}, scalars.data(), p.data(), m.data(), gradients.data(),
                    kCount);
    table->adamw_step({}, scalars.data(), p.data(), m.data(), v.data(), gradients.data(), kCount);
    table->lerp(scalars.data(), gradients.data(), p.data(), kCount);
    for (const TestBuffer* buffer : {&p, &m, &v}) EXPECT_TRUE(BitEqual(*buffer, before));
  }
  // RestoreSkipped undoes earlier changes only if the step is skipped.
  for (const uint32_t skip : {0, 1}) {
    scalars[0].skip = skip;
    for (const KernelTable* table : tables) {
      TestBuffer values = Copy(gradients);
      table->restore_skipped(scalars.data(), before.data(), values.data(), kCount);
      EXPECT_TRUE(BitEqual(values, skip != 0 ? before : gradients));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(KernelSets, OptimizerContractTest,
                         testing::ValuesIn(WithCudaPtx({KernelSet::kPlain, KernelSet::kAvx2,
                                                        KernelSet::kAvx512, KernelSet::kCudaOnHost,
                                                        KernelSet::kCuda})),
                         KernelSetName);

}  // namespace
}  // namespace muster::kernels
