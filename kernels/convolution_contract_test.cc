// Holds cpu::MakeConvolution to reference::MakeConvolution, and the reference's gradients to finite
// differences.
#include <cmath>
#include <memory>
#include <ostream>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/convolution.h"
#include "kernels/test_buffer.h"

namespace muster::kernels {
namespace {

struct Case {
  const char* name;
  ConvolutionShape shape;
  bool data_gradient = true;
};
void PrintTo(const Case& value, std::ostream* os) { *os << value.name; }

std::vector<Case> Cases() {
  return {
      {"first", {28, 28, 1, 32, 3, 1, 1}, false},
      {"first_odd", {7, 11, 1, 16, 3, 1, 1}, false},
      {"first_two_channels", {5, 9, 2, 48, 3, 1, 1}, false},
      {"first_colour", {13, 32, 3, 64, 3, 1, 1}, false},
      {"first_four_channels", {1, 3, 4, 16, 3, 1, 1}, false},
      {"first_by_onednn", {9, 9, 3, 20, 3, 1, 1}, false},
      {"middle", {14, 14, 32, 64, 3, 1, 1}},
      {"odd_channels", {7, 5, 13, 19, 3, 1, 1}},
      {"strided", {15, 14, 16, 24, 3, 2, 1}},
      {"pointwise", {6, 6, 24, 40, 1, 1, 0}},
      {"five", {12, 12, 6, 16, 5, 1, 2}},
      {"linear", {1, 1, 3136, 128, 1, 1, 0}},
      {"linear_odd", {1, 1, 37, 10, 1, 1, 0}},
  };
}

class ConvolutionContractTest : public testing::TestWithParam<Case> {
 protected:
  static constexpr int64_t kMaxRows = 5;
  const ConvolutionShape& shape() const { return GetParam().shape; }
  std::unique_ptr<Convolution> Make(bool relu, int threads = 1) const {
    auto made = cpu::MakeConvolution(shape(), Options(relu, threads));
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? *std::move(made) : nullptr;
  }
  ConvolutionOptions Options(bool relu, int threads = 1) const {
    return {.max_rows = kMaxRows,
            .relu = relu,
            .data_gradient = GetParam().data_gradient,
            .threads = threads};
  }
  std::mt19937 random_{7};
};

TEST_P(ConvolutionContractTest, AgreesWithTheReferenceForAnyNumberOfRows) {
  for (const bool relu : {false, true}) {
    const auto reference = reference::MakeConvolution(shape(), Options(relu));
    const auto convolution = Make(relu);
    ASSERT_NE(convolution, nullptr);
    SCOPED_TRACE(convolution->description());
    TestBuffer workspace(convolution->workspace_bytes() / sizeof(float) + 1);
    TestBuffer canonical(shape().weights());
    canonical.Randomise(random_);
    TestBuffer weights(convolution->weights_elements());
    convolution->ImportWeights(canonical.data(), weights.data());
    TestBuffer bias(shape().out_channels);
    bias.Randomise(random_);
    // The largest, then fewer, then the largest again: what one number of rows leaves must not hurt
    // another.
    for (const int64_t rows : {kMaxRows, int64_t{1}, int64_t{3}, kMaxRows}) {
      TestBuffer x(rows * shape().input_elements());
      x.Randomise(random_);
      TestBuffer y(rows * shape().output_elements());
      TestBuffer expected_y(y.size());
      convolution->Forward(rows, x.data(), weights.data(), bias.data(), y.data(), workspace.data());
      reference->Forward(rows, x.data(), canonical.data(), bias.data(), expected_y.data(), nullptr);
      ExpectClose(y, expected_y, "y");

      TestBuffer dy(y.size());
      dy.Randomise(random_);
      if (GetParam().data_gradient) {
        TestBuffer dx(x.size());
        TestBuffer expected_dx(x.size());
        convolution->BackwardData(rows, dy.data(), weights.data(), dx.data(), workspace.data());
        reference->BackwardData(rows, dy.data(), canonical.data(), expected_dx.data(), nullptr);
        ExpectClose(dx, expected_dx, "dx");
      }

      TestBuffer dweights(convolution->weights_elements());
      TestBuffer dbias(bias.size());
      TestBuffer canonical_dweights(canonical.size());
      TestBuffer expected_dweights(canonical.size());
      TestBuffer expected_dbias(bias.size());
      convolution->BackwardWeights(rows, x.data(), dy.data(), dweights.data(), dbias.data(),
                                   workspace.data());
      convolution->ExportWeights(dweights.data(), canonical_dweights.data());
      reference->BackwardWeights(rows, x.data(), dy.data(), expected_dweights.data(),
                                 expected_dbias.data(), nullptr);
      ExpectClose(canonical_dweights, expected_dweights, "dweights");
      ExpectClose(dbias, expected_dbias, "dbias");
    }
  }
}

TEST_P(ConvolutionContractTest, NoRowsGiveZeroGradients) {
  const auto convolution = Make(false);
  ASSERT_NE(convolution, nullptr);
  TestBuffer workspace(convolution->workspace_bytes() / sizeof(float) + 1);
  TestBuffer weights(convolution->weights_elements());
  TestBuffer dweights(weights.size());
  TestBuffer dbias(shape().out_channels);
  convolution->Forward(0, nullptr, weights.data(), dbias.data(), nullptr, workspace.data());
  convolution->BackwardWeights(0, nullptr, nullptr, dweights.data(), dbias.data(),
                               workspace.data());
  for (size_t i = 0; i < dweights.size(); ++i) ASSERT_EQ(dweights[i], 0.0f);
  for (size_t i = 0; i < dbias.size(); ++i) ASSERT_EQ(dbias[i], 0.0f);
}

TEST_P(ConvolutionContractTest, ExportGivesBackWhatWasImportedAndPaddingIsZero) {
  const auto convolution = Make(false);
  ASSERT_NE(convolution, nullptr);
  TestBuffer canonical(shape().weights());
  canonical.Randomise(random_);
  TestBuffer weights(convolution->weights_elements());
  TestBuffer exported(canonical.size());
  convolution->ImportWeights(canonical.data(), weights.data());
  convolution->ExportWeights(weights.data(), exported.data());
  double sum = 0;
  double exported_sum = 0;
  for (size_t i = 0; i < canonical.size(); ++i) {
    ASSERT_EQ(exported[i], canonical[i]);
    exported_sum += std::abs(exported[i]);
  }
  for (size_t i = 0; i < weights.size(); ++i) sum += std::abs(weights[i]);
  EXPECT_NEAR(sum, exported_sum, 1e-6 * sum);
}

// A convolution is linear in x and in its weights: a difference over any distance is the
// derivative.
TEST_P(ConvolutionContractTest, ReferenceGradientsAreFiniteDifferences) {
  const auto reference = reference::MakeConvolution(shape(), Options(false));
  constexpr int64_t kRows = 2;
  TestBuffer x(kRows * shape().input_elements());
  TestBuffer direction(x.size());
  TestBuffer weights(shape().weights());
  TestBuffer weight_direction(weights.size());
  TestBuffer bias(shape().out_channels);
  TestBuffer dy(kRows * shape().output_elements());
  for (TestBuffer* buffer : {&x, &direction, &weights, &weight_direction, &bias, &dy}) {
    buffer->Randomise(random_);
  }
  const auto value = [&](TestBuffer& at_x, TestBuffer& at_weights) {
    TestBuffer y(dy.size());
    reference->Forward(kRows, at_x.data(), at_weights.data(), bias.data(), y.data(), nullptr);
    double sum = 0;
    for (size_t i = 0; i < dy.size(); ++i) sum += double{y[i]} * double{dy[i]};
    return sum;
  };
  TestBuffer dx(x.size());
  TestBuffer dweights(weights.size());
  TestBuffer dbias(bias.size());
  reference->BackwardData(kRows, dy.data(), weights.data(), dx.data(), nullptr);
  reference->BackwardWeights(kRows, x.data(), dy.data(), dweights.data(), dbias.data(), nullptr);
  const double base = value(x, weights);
  TestBuffer moved_x = Moved(x, direction, 1);
  TestBuffer moved_weights = Moved(weights, weight_direction, 1);
  const double tolerance = 1e-5 * (1 + std::sqrt(Dot(dy, dy) * Dot(moved_x, moved_x)));
  EXPECT_NEAR(value(moved_x, weights) - base, Dot(dx, direction), tolerance);
  EXPECT_NEAR(value(x, moved_weights) - base, Dot(dweights, weight_direction), tolerance);
}

TEST_P(ConvolutionContractTest, TheSameCallGivesTheSameBits) {
  const auto convolution = Make(false);
  ASSERT_NE(convolution, nullptr);
  TestBuffer workspace(convolution->workspace_bytes() / sizeof(float) + 1);
  TestBuffer x(kMaxRows * shape().input_elements());
  TestBuffer dy(kMaxRows * shape().output_elements());
  x.Randomise(random_);
  dy.Randomise(random_);
  TestBuffer first(convolution->weights_elements());
  TestBuffer second(first.size());
  TestBuffer dbias(shape().out_channels);
  convolution->BackwardWeights(kMaxRows, x.data(), dy.data(), first.data(), dbias.data(),
                               workspace.data());
  convolution->BackwardWeights(kMaxRows, x.data(), dy.data(), second.data(), dbias.data(),
                               workspace.data());
  for (size_t i = 0; i < first.size(); ++i) ASSERT_EQ(first[i], second[i]);
}

INSTANTIATE_TEST_SUITE_P(Shapes, ConvolutionContractTest, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

TEST(ConvolutionTest, AnImpossibleShapeIsAnError) {
  const ConvolutionShape shape{2, 2, 8, 8, 5, 1, 0};
  EXPECT_EQ(cpu::MakeConvolution(shape, {}).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace muster::kernels
