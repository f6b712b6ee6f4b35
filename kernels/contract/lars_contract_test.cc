// Compares every kernel set's layer-wise adaptive rates with the reference, and the reference with
// manual calculation.
#include <cmath>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/contract/kernel_contract.h"
#include "kernels/contract/test_buffer.h"
#include "kernels/half.h"
#include "kernels/lars.h"
#include "kernels/optimizer.h"

namespace muster::kernels {
namespace {

TestBuffer Copy(const TestBuffer& buffer) {
  TestBuffer copy(buffer.size());
  std::memcpy(copy.data(), buffer.data(), buffer.size() * sizeof(float));
  return copy;
}

// Contiguous tensors from an offset of `first`; every third is not adapted.
struct Layout {
  explicit Layout(const std::vector<int64_t>& counts, int64_t first = 0) : elements(first) {
    for (const int64_t count : counts) {
      tensors.push_back({.offset = elements,
                         .count = count,
                         .first_piece = options.pieces,
                         .adapted = tensors.size() % 3 != 2});
      elements += count;
      options.pieces += LarsPieces(count);
    }
    options.tensors = static_cast<int64_t>(counts.size());
  }
  TestVector<LarsTensor> tensors;
  LarsOptions options;
  int64_t elements;
};

class LarsContractTest : public KernelSetTest {
 protected:
  TestVector<UpdateScalars> Rates(const Layout& layout, const KernelTable& table,
                                  const UpdateScalars& scalars, const TestBuffer& parameters,
                                  const TestBuffer& gradients) {
    TestVector<UpdateScalars> rates(layout.tensors.size());
    const auto stored = Stored(scalars);
    table.lars_rates(layout.options, layout.tensors.data(), stored.data(), parameters.data(),
                     gradients.data(), rates.data());
    return rates;
  }
};

// Norms of 3 and 4, then a tensor of zeros, one that is not adapted, and one without a gradient.
TEST_P(LarsContractTest, RatesMatchManualCalculation) {
  Layout layout({2, 2, 2, 1});
  layout.options.trust_coefficient = 0.5;
  layout.options.weight_decay = 1;
  TestBuffer parameters(7), gradients(7);
  const float w[] = {3, 0, 0, 0, 3, 0, 2}, g[] = {0, 4, 1, 0, 0, 4, 0};
  for (int i = 0; i < 7; ++i) parameters[i] = w[i], gradients[i] = g[i];
  UpdateScalars scalars{.learning_rate = 2, .gradient_scale = 0.5, .average_weight = 0.25f};
  const double expected[] = {2 * 0.5 * 3 / (2 + 3.0), 2, 2, 2};
  const KernelTable* const tables[] = {&kernels(), &reference()};
  for (const KernelTable* table : tables) {
    scalars.skip = 0;
    auto rates = Rates(layout, *table, scalars, parameters, gradients);
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(rates[i].learning_rate, 1);
      EXPECT_NEAR(rates[i].decay_scale, expected[i], 1e-15) << i;
      EXPECT_NEAR(rates[i].gradient_scale, expected[i] / 2, 1e-15) << i;
      EXPECT_EQ(rates[i].skip, 0u);
    }
    scalars.skip = 1;
    rates = Rates(layout, *table, scalars, parameters, gradients);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(rates[i].skip, 1u);
  }
}

// Tensors of one element, one piece, one element more, and many pieces; with and without the
// alignment of vectors.
TEST_P(LarsContractTest, EveryTensorHasItsOwnRate) {
  const std::vector<int64_t> kAligned = {16, 64, 4,  kLarsPiece, 2 * kLarsPiece + 4,
                                         8,  0,  32, 12,         5 * kLarsPiece};
  const std::vector<int64_t> kOdd = {1, 3, 17, kLarsPiece + 1, 5, 2 * kLarsPiece - 1, 2};
  for (const auto& [counts, first] :
       {std::pair(kAligned, int64_t{0}), {kAligned, int64_t{1}}, {kOdd, int64_t{3}}}) {
    for (const bool has_velocities : {false, true}) {
      Layout layout(counts, first);
      layout.options.trust_coefficient = 0.02;
      layout.options.weight_decay = 0.01;
      layout.options.momentum = has_velocities ? 0.9f : 0;
      const UpdateScalars scalars{.learning_rate = 0.5, .gradient_scale = 0.125};
      TestBuffer parameters(layout.elements, random_), velocities(layout.elements, random_);
      const TestBuffer gradients(layout.elements, random_);
      TestBuffer expected_parameters = Copy(parameters), expected_velocities = Copy(velocities);

      const auto rates = Rates(layout, kernels(), scalars, parameters, gradients);
      const auto expected = Rates(layout, reference(), scalars, parameters, gradients);
      for (size_t i = 0; i < rates.size(); ++i) {
        EXPECT_NEAR(rates[i].decay_scale, expected[i].decay_scale, 1e-12) << i;
        EXPECT_NEAR(rates[i].gradient_scale, expected[i].gradient_scale, 1e-12) << i;
      }
      kernels().lars_step(layout.options, layout.tensors.data(), expected.data(), parameters.data(),
                          has_velocities ? velocities.data() : nullptr, gradients.data());
      reference().lars_step(
          layout.options, layout.tensors.data(), expected.data(), expected_parameters.data(),
          has_velocities ? expected_velocities.data() : nullptr, gradients.data());
      ExpectClose(parameters, expected_parameters, "parameters", 1e-6);
      ExpectClose(velocities, expected_velocities, "velocities", 1e-6);
    }
  }
}

// Bitwise, so that ranks with the same sums stay identical.
TEST_P(LarsContractTest, RatesAreDeterministic) {
  Layout layout({3 * kLarsPiece + 7, 1000, 31});
  layout.options.trust_coefficient = 0.001;
  const TestBuffer parameters(layout.elements, random_), gradients(layout.elements, random_);
  const UpdateScalars scalars{.learning_rate = 0.5};
  const auto once = Rates(layout, kernels(), scalars, parameters, gradients);
  const auto again = Rates(layout, kernels(), scalars, parameters, gradients);
  for (size_t i = 0; i < once.size(); ++i) EXPECT_EQ(once[i].decay_scale, again[i].decay_scale);
}

TEST_P(LarsContractTest, RoundsResults) {
  Layout layout({40, 33});
  layout.options.momentum = 0.5f;
  layout.options.round_to = DataType::kBfloat16;
  TestBuffer parameters(layout.elements, random_), velocities(layout.elements, random_);
  const TestBuffer gradients(layout.elements, random_);
  const TestVector<UpdateScalars> rates(2, UpdateScalars{.learning_rate = 0.5});
  kernels().lars_step(layout.options, layout.tensors.data(), rates.data(), parameters.data(),
                      velocities.data(), gradients.data());
  for (int64_t i = 0; i < layout.elements; ++i) {
    EXPECT_EQ(parameters[i], RoundTo(DataType::kBfloat16, double{parameters[i]}));
    EXPECT_EQ(velocities[i], RoundTo(DataType::kBfloat16, double{velocities[i]}));
  }
}

TEST_P(LarsContractTest, SkippedStepChangesNothing) {
  const Layout layout({40, 33});
  const TestBuffer before(layout.elements, random_), gradients(layout.elements);  // NaN
  const KernelTable* const tables[] = {&kernels(), &reference()};
  for (const KernelTable* table : tables) {
    TestBuffer parameters = Copy(before), velocities = Copy(before);
    const auto rates = Rates(layout, *table, {.learning_rate = 1, .skip = 1}, before, gradients);
    table->lars_step(layout.options, layout.tensors.data(), rates.data(), parameters.data(),
                     velocities.data(), gradients.data());
    for (const TestBuffer* buffer : {&parameters, &velocities}) {
      EXPECT_EQ(std::memcmp(buffer->data(), before.data(), before.size() * sizeof(float)), 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(KernelSets, LarsContractTest, EveryKernelSet(), KernelSetName);

}  // namespace
}  // namespace muster::kernels
