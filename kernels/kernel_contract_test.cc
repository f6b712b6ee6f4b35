// Holds every instruction set's kernels to the reference, and the reference's gradients to finite
// differences.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/kernel_table.h"
#include "kernels/test_buffer.h"

namespace muster::kernels {
namespace {

using Bytes = std::vector<uint8_t>;

class KernelContractTest : public testing::TestWithParam<InstructionSet> {
 protected:
  void SetUp() override {
    if (GetParam() > DetectInstructionSet()) GTEST_SKIP() << "this processor lacks it";
  }
  const KernelTable& kernels() const { return CpuKernels(GetParam()); }
  const KernelTable& reference() const { return ReferenceKernels(); }
  std::mt19937 random_{11};
};

std::vector<BatchNormShape> BatchNormShapes() {
  std::vector<BatchNormShape> shapes;
  const BatchNormShape sizes[] = {{64, 4, 4, 32}, {3, 7, 5, 19}, {1, 2, 3, 64}, {9, 1, 1, 130},
                                  {5, 9, 8, 3},   {1, 1, 7, 16}, {40, 5, 5, 8}};
  for (BatchNormShape shape : sizes) {
    for (const auto& [relu, pool] : {std::pair(false, false), {true, false}, {true, true}}) {
      if (pool && (shape.height < 2 || shape.width < 2)) continue;
      shape.relu = relu;
      shape.pool = pool;
      shapes.push_back(shape);
    }
  }
  return shapes;
}

std::string Name(const BatchNormShape& shape) {
  return testing::PrintToString(std::vector<int64_t>{shape.rows, shape.height, shape.width,
                                                     shape.channels, shape.relu, shape.pool});
}

// Values far from zero, where a variance by plain sums of squares would cancel.
TEST_P(KernelContractTest, BatchNormStatistics) {
  for (const BatchNormShape& shape : BatchNormShapes()) {
    SCOPED_TRACE(Name(shape));
    TestBuffer x(shape.pixels() * shape.channels, random_);
    for (size_t i = 0; i < x.size(); ++i) x[i] += 1000.0f * static_cast<float>(i % 3);
    TestBuffer mean(shape.channels), expected_mean(shape.channels);
    TestBuffer variance(shape.channels), expected_variance(shape.channels);
    kernels().batch_norm_statistics(shape, x.data(), mean.data(), variance.data());
    reference().batch_norm_statistics(shape, x.data(), expected_mean.data(),
                                      expected_variance.data());
    ExpectClose(mean, expected_mean, "mean");
    ExpectClose(variance, expected_variance, "variance");
  }
}

// What backward needs of a forward by `table`.
struct BatchNormState {
  TestBuffer mean, inverse_deviation, scale, shift;
  TestBuffer y;
  Bytes choice;

  BatchNormState(const KernelTable& table, const BatchNormShape& shape, const TestBuffer& x,
                 const TestBuffer& gamma, const TestBuffer& beta)
      : mean(shape.channels),
        inverse_deviation(shape.channels),
        scale(shape.channels),
        shift(shape.channels),
        y(shape.out_pixels() * shape.channels),
        choice(y.size()) {
    table.batch_norm_statistics(shape, x.data(), mean.data(), inverse_deviation.data());
    for (int64_t c = 0; c < shape.channels; ++c) {
      inverse_deviation[c] = static_cast<float>(1 / std::sqrt(double{inverse_deviation[c]} + 1e-5));
      scale[c] = gamma[c] * inverse_deviation[c];
      shift[c] = beta[c] - mean[c] * scale[c];
    }
    table.batch_norm_apply(shape, x.data(), scale.data(), shift.data(), y.data(), choice.data());
  }

  BatchNormGradient Gradient(const TestBuffer& x, const TestBuffer& dy) const {
    return {x.data(),     dy.data(),   choice.data(),           scale.data(),
            shift.data(), mean.data(), inverse_deviation.data()};
  }
};

TEST_P(KernelContractTest, BatchNormForwardAndBackward) {
  for (const BatchNormShape& shape : BatchNormShapes()) {
    SCOPED_TRACE(Name(shape));
    TestBuffer x(shape.pixels() * shape.channels, random_);
    TestBuffer gamma(shape.channels, random_), beta(shape.channels, random_);
    const BatchNormState state(reference(), shape, x, gamma, beta);
    TestBuffer y(state.y.size());
    Bytes choice(y.size());
    kernels().batch_norm_apply(shape, x.data(), state.scale.data(), state.shift.data(), y.data(),
                               choice.data());
    ExpectClose(y, state.y, "y");
    if (shape.pool) EXPECT_EQ(choice, state.choice);

    TestBuffer dy(y.size(), random_);
    const BatchNormGradient gradient = state.Gradient(x, dy);
    TestBuffer dgamma(shape.channels), expected_dgamma(shape.channels);
    TestBuffer dbeta(shape.channels), expected_dbeta(shape.channels);
    kernels().batch_norm_backward_parameters(shape, gradient, dgamma.data(), dbeta.data());
    reference().batch_norm_backward_parameters(shape, gradient, expected_dgamma.data(),
                                               expected_dbeta.data());
    ExpectClose(dgamma, expected_dgamma, "dgamma");
    ExpectClose(dbeta, expected_dbeta, "dbeta");

    TestBuffer dx(x.size()), expected_dx(x.size());
    kernels().batch_norm_backward_data(shape, gradient, dgamma.data(), dbeta.data(), dx.data());
    reference().batch_norm_backward_data(shape, gradient, dgamma.data(), dbeta.data(),
                                         expected_dx.data());
    ExpectClose(dx, expected_dx, "dx", 2e-5);
    // In the place of x.
    kernels().batch_norm_backward_data(shape, gradient, dgamma.data(), dbeta.data(), x.data());
    EXPECT_EQ(std::memcmp(x.data(), dx.data(), x.size() * sizeof(float)), 0);
  }
}

TEST_P(KernelContractTest, MaxPool) {
  const PoolShape sizes[] = {
      {4, 6, 8, 32}, {2, 5, 7, 21}, {1, 2, 2, 64}, {3, 3, 2, 1}, {0, 4, 4, 8}};
  for (PoolShape shape : sizes) {
    for (const bool relu : {false, true}) {
      shape.relu = relu;
      TestBuffer x(shape.rows * shape.height * shape.width * shape.channels, random_);
      // Equal values: the first one is taken.
      for (size_t i = 0; i < x.size(); ++i) x[i] = std::round(x[i]);
      const size_t outputs = shape.rows * (shape.height / 2) * (shape.width / 2) * shape.channels;
      TestBuffer y(outputs), expected_y(outputs), dy(outputs, random_);
      Bytes choice(outputs), expected_choice(outputs);
      kernels().max_pool_forward(shape, x.data(), y.data(), choice.data());
      reference().max_pool_forward(shape, x.data(), expected_y.data(), expected_choice.data());
      ExpectClose(y, expected_y, "y", 0);
      EXPECT_EQ(choice, expected_choice);
      TestBuffer dx(x.size()), expected_dx(x.size());
      kernels().max_pool_backward(shape, dy.data(), choice.data(), dx.data());
      reference().max_pool_backward(shape, dy.data(), choice.data(), expected_dx.data());
      ExpectClose(dx, expected_dx, "dx", 0);
    }
  }
}

TEST_P(KernelContractTest, Relu) {
  for (const size_t count : {0, 1, 15, 16, 33, 1000}) {
    TestBuffer x(count, random_), dy(count, random_);
    TestBuffer y(count), expected_y(count), dx(count), expected_dx(count);
    if (count > 0) x[0] = 0;
    kernels().relu_forward(count, x.data(), y.data());
    reference().relu_forward(count, x.data(), expected_y.data());
    ExpectClose(y, expected_y, "y", 0);
    kernels().relu_backward(count, y.data(), dy.data(), dx.data());
    reference().relu_backward(count, y.data(), dy.data(), expected_dx.data());
    ExpectClose(dx, expected_dx, "dx", 0);
  }
}

TEST_P(KernelContractTest, ReluKeepsNotANumber) {
  TestBuffer x(17, random_);
  x[3] = x[16] = std::numeric_limits<float>::quiet_NaN();
  kernels().relu_forward(17, x.data(), x.data());
  EXPECT_TRUE(std::isnan(x[3]));
  EXPECT_TRUE(std::isnan(x[16]));
}

TEST_P(KernelContractTest, Dropout) {
  const DropoutMask mask{
      .key = MakePhiloxKey(99), .layer = 3, .first_row = 70, .probability = 0.4f};
  for (const int64_t columns : {1, 6, 128}) {
    TestBuffer x(20 * columns, random_), y(x.size()), expected(x.size());
    kernels().dropout(mask, 20, columns, x.data(), y.data());
    reference().dropout(mask, 20, columns, x.data(), expected.data());
    ExpectClose(y, expected, "y", 1e-6);
  }
}

// The mask belongs to the row of the global batch, whichever rank has it.
TEST_P(KernelContractTest, DropoutDoesNotDependOnHowRowsAreShared) {
  const DropoutMask mask{.key = MakePhiloxKey(5), .probability = 0.5f};
  constexpr int64_t kRows = 12, kColumns = 10;
  TestBuffer x(kRows * kColumns, random_), whole(x.size()), parts(x.size());
  kernels().dropout(mask, kRows, kColumns, x.data(), whole.data());
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>(0, 5), {5, 12}}) {
    DropoutMask part = mask;
    part.first_row = begin;
    kernels().dropout(part, end - begin, kColumns, x.data() + begin * kColumns,
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
      std::vector<int32_t> labels;
      for (int i = 0; i < 9; ++i) labels.push_back(static_cast<int32_t>(random_() % classes));
      TestBuffer dlogits(logits.size()), expected(logits.size());
      const CrossEntropyResult result =
          kernels().softmax_cross_entropy(options, logits.data(), labels.data(), dlogits.data());
      const CrossEntropyResult expected_result =
          reference().softmax_cross_entropy(options, logits.data(), labels.data(), expected.data());
      EXPECT_NEAR(result.loss_sum, expected_result.loss_sum, 1e-6 * (1 + expected_result.loss_sum));
      EXPECT_EQ(result.correct, expected_result.correct);
      ExpectClose(dlogits, expected, "dlogits", 1e-6);
      EXPECT_EQ(
          kernels().softmax_cross_entropy(options, logits.data(), labels.data(), nullptr).loss_sum,
          result.loss_sum);
    }
  }
}

TEST_P(KernelContractTest, Normalize) {
  for (const int64_t channels : {1, 3}) {
    for (const int64_t pixels : {0, 1, 784, 101}) {
      Bytes x(pixels * channels);
      for (uint8_t& byte : x) byte = static_cast<uint8_t>(random_());
      TestBuffer scale(channels, random_), shift(channels, random_);
      TestBuffer y(x.size()), expected(x.size());
      kernels().normalize(pixels, channels, x.data(), scale.data(), shift.data(), y.data());
      reference().normalize(pixels, channels, x.data(), scale.data(), shift.data(),
                            expected.data());
      ExpectClose(y, expected, "y", 1e-6);
    }
  }
}

TEST_P(KernelContractTest, DirectConvolution) {
  const DirectConvolutionShape sizes[] = {{3, 28, 28, 1, 32}, {2, 5, 7, 1, 16}, {2, 9, 3, 2, 48},
                                          {1, 12, 20, 3, 64}, {2, 1, 1, 4, 16}, {0, 4, 4, 1, 16}};
  for (DirectConvolutionShape shape : sizes) {
    for (const bool relu : {false, true}) {
      shape.relu = relu;
      const size_t pixels = shape.rows * shape.height * shape.width;
      TestBuffer x(pixels * shape.in_channels, random_);
      TestBuffer weights(9 * shape.in_channels * shape.out_channels, random_);
      TestBuffer bias(shape.out_channels, random_), scratch(shape.scratch_elements());
      TestBuffer y(pixels * shape.out_channels), expected_y(y.size()), dy(y.size(), random_);
      kernels().direct_convolution_forward(shape, x.data(), weights.data(), bias.data(), y.data(),
                                           scratch.data());
      reference().direct_convolution_forward(shape, x.data(), weights.data(), bias.data(),
                                             expected_y.data(), scratch.data());
      ExpectClose(y, expected_y, "y");
      TestBuffer dweights(weights.size()), expected_dweights(weights.size());
      TestBuffer dbias(bias.size()), expected_dbias(bias.size());
      kernels().direct_convolution_backward_weights(shape, x.data(), dy.data(), dweights.data(),
                                                    dbias.data(), scratch.data());
      reference().direct_convolution_backward_weights(shape, x.data(), dy.data(),
                                                      expected_dweights.data(),
                                                      expected_dbias.data(), scratch.data());
      ExpectClose(dweights, expected_dweights, "dweights");
      ExpectClose(dbias, expected_dbias, "dbias");
    }
  }
}

TEST_P(KernelContractTest, SgdStep) {
  const SgdOptions options{.learning_rate = 0.1f, .momentum = 0.9f, .weight_decay = 0.01f};
  for (const size_t count : {0, 5, 16, 1003}) {
    TestBuffer parameters(count, random_), momentum(count, random_), gradients(count, random_);
    TestBuffer expected_parameters = Moved(parameters, parameters, 0);
    TestBuffer expected_momentum = Moved(momentum, momentum, 0);
    kernels().sgd_step(options, parameters.data(), momentum.data(), gradients.data(), count);
    reference().sgd_step(options, expected_parameters.data(), expected_momentum.data(),
                         gradients.data(), count);
    ExpectClose(parameters, expected_parameters, "parameters", 1e-6);
    ExpectClose(momentum, expected_momentum, "momentum", 1e-6);
  }
}

TEST_P(KernelContractTest, SgdStepWithoutMomentumNeedsNoArray) {
  TestBuffer parameters(20), gradients(20);
  for (int i = 0; i < 20; ++i) parameters[i] = 1, gradients[i] = 2;
  kernels().sgd_step({.learning_rate = 0.25f}, parameters.data(), nullptr, gradients.data(), 20);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(parameters[i], 0.5f);
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, KernelContractTest,
                         testing::Values(InstructionSet::kPlain, InstructionSet::kAvx2,
                                         InstructionSet::kAvx512),
                         [](const auto& info) { return std::string(CpuKernels(info.param).name); });

// Central differences of sum(y * dy) along a random direction of x, gamma and beta.
TEST(ReferenceKernelsTest, BatchNormGradientsAreFiniteDifferences) {
  std::mt19937 random(3);
  for (const bool fused : {false, true}) {
    const BatchNormShape shape{4, 5, 6, 7, fused, fused};
    TestBuffer x(shape.pixels() * shape.channels, random), x_direction(x.size(), random);
    TestBuffer gamma(shape.channels, random), gamma_direction(shape.channels, random);
    TestBuffer beta(shape.channels, random), beta_direction(shape.channels, random);
    TestBuffer dy(shape.out_pixels() * shape.channels, random);
    const KernelTable& table = ReferenceKernels();
    const BatchNormState state(table, shape, x, gamma, beta);
    TestBuffer dgamma(shape.channels), dbeta(shape.channels), dx(x.size());
    const BatchNormGradient gradient = state.Gradient(x, dy);
    table.batch_norm_backward_parameters(shape, gradient, dgamma.data(), dbeta.data());
    table.batch_norm_backward_data(shape, gradient, dgamma.data(), dbeta.data(), dx.data());

    constexpr float kDistance = 1e-3f;
    const auto slope = [&](bool of_x, bool of_gamma, bool of_beta) {
      const auto value = [&](float distance) {
        const BatchNormState moved(table, shape, Moved(x, x_direction, of_x ? distance : 0),
                                   Moved(gamma, gamma_direction, of_gamma ? distance : 0),
                                   Moved(beta, beta_direction, of_beta ? distance : 0));
        return Dot(moved.y, dy);
      };
      return (value(kDistance) - value(-kDistance)) / (2.0 * double{kDistance});
    };
    EXPECT_NEAR(slope(true, false, false), Dot(dx, x_direction), 0.05);
    EXPECT_NEAR(slope(false, true, false), Dot(dgamma, gamma_direction), 0.05);
    EXPECT_NEAR(slope(false, false, true), Dot(dbeta, beta_direction), 0.05);
  }
}

TEST(ReferenceKernelsTest, CrossEntropyGradientIsAFiniteDifference) {
  std::mt19937 random(4);
  const CrossEntropyOptions options{.rows = 6, .classes = 5, .label_smoothing = 0.2};
  TestBuffer logits(30, random), direction(30, random), dlogits(30);
  const std::vector<int32_t> labels = {0, 4, 2, 2, 1, 3};
  const auto value = [&](float distance) {
    return ReferenceKernels()
        .softmax_cross_entropy(options, Moved(logits, direction, distance).data(), labels.data(),
                               nullptr)
        .loss_sum;
  };
  ReferenceKernels().softmax_cross_entropy(options, logits.data(), labels.data(), dlogits.data());
  EXPECT_NEAR((value(1e-2f) - value(-1e-2f)) / 2e-2, Dot(dlogits, direction), 1e-3);
}

}  // namespace
}  // namespace muster::kernels
