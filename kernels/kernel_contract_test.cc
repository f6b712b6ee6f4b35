// Holds every kernel set's kernels that have no test of their own to the reference, and the
// reference's gradients to finite differences.
#include "kernels/kernel_contract.h"

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace muster::kernels {
namespace {

TEST_P(KernelContractTest, Dropout) {
  const DropoutMask mask{
      .key = MakePhiloxKey(99), .layer = 3, .first_row = 70, .probability = 0.4f};
  for (const int64_t columns : {1, 6, 128}) {
    for (const DataType type : kDataTypes) {
      TypedBuffer x(type, 20 * columns, random_), y(type, x.size()), expected(type, x.size());
      kernels().dropout(type, mask, 20, columns, x.data(), y.data());
      reference().dropout(type, mask, 20, columns, x.data(), expected.data());
      ExpectRounded(y, expected, "y", 1e-6);
      for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i] == 0, expected[i] == 0);
      kernels().dropout(type, mask, 20, columns, x.data(), x.data());
      ExpectSame(x, y, "y in the place of x");
    }
  }
}

// The mask belongs to the row of the global batch, whichever rank has it.
TEST_P(KernelContractTest, DropoutDoesNotDependOnHowRowsAreShared) {
  const DropoutMask mask{.key = MakePhiloxKey(5), .probability = 0.5f};
  constexpr int64_t kRows = 12, kColumns = 10;
  TestBuffer x(kRows * kColumns, random_), whole(x.size()), parts(x.size());
  kernels().dropout(DataType::kFloat32, mask, kRows, kColumns, x.data(), whole.data());
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>(0, 5), {5, 12}}) {
    DropoutMask part = mask;
    part.first_row = begin;
    kernels().dropout(DataType::kFloat32, part, end - begin, kColumns, x.data() + begin * kColumns,
                      parts.data() + begin * kColumns);
  }
  ExpectClose(parts, whole, "y", 0);
  int64_t dropped = 0;
  for (size_t i = 0; i < whole.size(); ++i) dropped += whole[i] == 0;
  EXPECT_NEAR(dropped, kRows * kColumns / 2, 25);
}

TEST_P(KernelContractTest, SoftmaxCrossEntropy) {
  for (const int64_t classes : {1, 10, 1000}) {
    for (const double smoothing : {0.0, 0.1}) {
      const CrossEntropyOptions options{
          .rows = 9, .classes = classes, .label_smoothing = smoothing, .scale = 0.25f};
      TestBuffer logits(9 * classes, random_);
      for (size_t i = 0; i < logits.size(); ++i) logits[i] *= 50;
      TestVector<int32_t> labels;
      for (int i = 0; i < 9; ++i) labels.push_back(static_cast<int32_t>(random_() % classes));
      TestBuffer dlogits(logits.size()), expected(logits.size());
      TestVector<CrossEntropyResult> results(3);
      auto& [result, expected_result, without_gradient] =
          *reinterpret_cast<CrossEntropyResult(*)[3]>(results.data());
      kernels().softmax_cross_entropy(options, logits.data(), labels.data(), dlogits.data(),
                                      &result);
      reference().softmax_cross_entropy(options, logits.data(), labels.data(), expected.data(),
                                        &expected_result);
      EXPECT_NEAR(result.loss_sum, expected_result.loss_sum, 1e-6 * (1 + expected_result.loss_sum));
      EXPECT_EQ(result.correct, expected_result.correct);
      ExpectClose(dlogits, expected, "dlogits", 1e-6);
      kernels().softmax_cross_entropy(options, logits.data(), labels.data(), nullptr,
                                      &without_gradient);
      EXPECT_EQ(without_gradient.loss_sum, result.loss_sum);
    }
  }
}

TEST_P(KernelContractTest, DirectConvolution) {
  if (kernels().direct_convolution_forward == nullptr) GTEST_SKIP() << "there is none";
  const DirectConvolutionShape sizes[] = {{3, 28, 28, 1, 32}, {2, 5, 7, 1, 16}, {2, 9, 3, 2, 48},
                                          {1, 12, 20, 3, 64}, {2, 1, 1, 4, 16}, {0, 4, 4, 1, 16}};
  for (DirectConvolutionShape shape : sizes) {
    for (const auto& [relu, has_bias] : {std::pair(false, false), {false, true}, {true, true}}) {
      shape.relu = relu;
      const size_t pixels = shape.rows * shape.height * shape.width;
      TestBuffer x(pixels * shape.in_channels, random_);
      TestBuffer weights(9 * shape.in_channels * shape.out_channels, random_);
      TestBuffer bias(shape.out_channels, random_), scratch(shape.scratch_elements());
      const auto if_bias = [has_bias = has_bias](const TestBuffer& buffer) {
        return has_bias ? buffer.data() : nullptr;
      };
      TestBuffer y(pixels * shape.out_channels), expected_y(y.size()), dy(y.size(), random_);
      kernels().direct_convolution_forward(shape, x.data(), weights.data(), if_bias(bias), y.data(),
                                           scratch.data());
      reference().direct_convolution_forward(shape, x.data(), weights.data(), if_bias(bias),
                                             expected_y.data(), scratch.data());
      ExpectClose(y, expected_y, "y");
      TestBuffer dweights(weights.size()), expected_dweights(weights.size());
      TestBuffer dbias(bias.size()), expected_dbias(bias.size());
      kernels().direct_convolution_backward_weights(shape, x.data(), dy.data(), dweights.data(),
                                                    if_bias(dbias), scratch.data());
      reference().direct_convolution_backward_weights(shape, x.data(), dy.data(),
                                                      expected_dweights.data(),
                                                      if_bias(expected_dbias), scratch.data());
      ExpectClose(dweights, expected_dweights, "dweights");
      if (has_bias) ExpectClose(dbias, expected_dbias, "dbias");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(KernelSets, KernelContractTest, EveryKernelSet(), KernelSetName);

TEST(ReferenceKernelsTest, CrossEntropyGradientIsAFiniteDifference) {
  std::mt19937 random(4);
  const CrossEntropyOptions options{.rows = 6, .classes = 5, .label_smoothing = 0.2};
  TestBuffer logits(30, random), direction(30, random), dlogits(30);
  const std::vector<int32_t> labels = {0, 4, 2, 2, 1, 3};
  const auto value = [&](float distance) {
    CrossEntropyResult result;
    ReferenceKernels().softmax_cross_entropy(options, Moved(logits, direction, distance).data(),
                                             labels.data(), nullptr, &result);
    return result.loss_sum;
  };
  CrossEntropyResult result;
  ReferenceKernels().softmax_cross_entropy(options, logits.data(), labels.data(), dlogits.data(),
                                           &result);
  EXPECT_NEAR((value(1e-2f) - value(-1e-2f)) / 2e-2, Dot(dlogits, direction), 1e-3);
}

}  // namespace
}  // namespace muster::kernels
