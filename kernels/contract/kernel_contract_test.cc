// Compares kernels that have no separate test with the reference, for every kernel set, and the
// reference's gradients with finite differences.
#include "kernels/contract/kernel_contract.h"

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace muster::kernels {
namespace {

TEST_P(KernelContractTest, Dropout) {
  const DropoutMask mask{.layer = 3, .probability = 0.4f};
  const auto draw = Stored(RandomDraw{.key = MakePhiloxKey(99), .first_sample = 70});
  for (const int64_t columns : {1, 6, 128}) {
    for (const DataType type : kDataTypes) {
      TypedBuffer x(type, 20 * columns, random_), y(type, x.size()), expected(type, x.size());
      kernels().dropout(type, mask, draw.data(), 20, columns, x.data(), y.data());
      reference().dropout(type, mask, draw.data(), 20, columns, x.data(), expected.data());
      ExpectRounded(y, expected, "y", 1e-6);
      for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i] == 0, expected[i] == 0);
      kernels().dropout(type, mask, draw.data(), 20, columns, x.data(), x.data());
      ExpectSame(x, y, "y overwriting x");
    }
  }
}

// The mask depends on the global sample index, not on the rank.
TEST_P(KernelContractTest, DropoutDoesNotDependOnTheDistributionOverRanks) {
  const DropoutMask mask{.probability = 0.5f};
  auto draw = Stored(RandomDraw{.key = MakePhiloxKey(5)});
  constexpr int64_t kSamples = 12, kColumns = 10;
  TestBuffer x(kSamples * kColumns, random_), whole(x.size()), sliced(x.size());
  kernels().dropout(DataType::kFloat32, mask, draw.data(), kSamples, kColumns, x.data(),
                    whole.data());
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>(0, 5), {5, 12}}) {
    draw[0].first_sample = begin;
    kernels().dropout(DataType::kFloat32, mask, draw.data(), end - begin, kColumns,
                      x.data() + begin * kColumns, sliced.data() + begin * kColumns);
  }
  ExpectClose(sliced, whole, "y", 0);
  int64_t dropped = 0;
  for (size_t i = 0; i < whole.size(); ++i) dropped += whole[i] == 0;
  EXPECT_NEAR(dropped, kSamples * kColumns / 2, 25);
}

// The second block is in the first's branch, and the first in that of the third.
TEST_P(KernelContractTest, BlocksAreDrawnByStepAndNode) {
  TestVector<BlockDraw> blocks = {{.node = 4, .around = 2, .probability = 0.3},
                                  {.node = 3, .around = 0, .probability = 0.5},
                                  {.node = 9, .around = -1, .probability = 0.2},
                                  {.node = 12, .around = -1, .probability = 0}};
  TestVector<BlockState> states(4);
  constexpr int kSteps = 2000;
  double dropped[4] = {};
  for (int step = 0; step < kSteps; ++step) {
    const auto draw = Stored(RandomDraw{.key = DerivePhiloxKey(7, step)});
    kernels().draw_blocks(draw.data(), 4, blocks.data(), states.data());
    for (int i = 0; i < 4; ++i) {
      const bool is_dropped = IsDropped(blocks[i], draw[0].key);
      dropped[i] += is_dropped ? 1.0 / kSteps : 0;
      const auto kept = static_cast<float>(1 / (1 - blocks[i].probability));
      ASSERT_EQ(states[i].factor, is_dropped ? 0 : kept);
    }
    ASSERT_EQ(states[2].active, states[2].factor != 0);
    ASSERT_EQ(states[0].active, states[0].factor != 0 && states[2].active != 0);
    ASSERT_EQ(states[1].active, states[1].factor != 0 && states[0].active != 0);
    ASSERT_EQ(states[3].active, 1);
  }
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(dropped[i], blocks[i].probability, 0.04) << i;
}

TEST_P(KernelContractTest, SoftmaxCrossEntropy) {
  for (const int64_t classes : {1, 10, 130, 1000, 1500, 1501}) {
    for (const double smoothing : {0.0, 0.1}) {
      const CrossEntropyOptions options{
          .samples = 9, .classes = classes, .label_smoothing = smoothing, .scale = 0.5};
      const auto loss_scale = Stored(0.5);
      TestBuffer logits(9 * classes, random_);
      for (size_t i = 0; i < logits.size(); ++i) logits[i] *= 50;
      TestVector<int32_t> labels;
      for (int i = 0; i < 9; ++i) labels.push_back(static_cast<int32_t>(random_() % classes));
      if (classes > 1) {  // the first of equal logits is the prediction
        for (const int64_t at : {0, 1}) logits[at] = logits[classes + at] = 500;
        labels[0] = 0;
        labels[1] = 1;
      }
      TestBuffer dlogits(logits.size()), expected(logits.size());
      TestVector<LossResult> results(3);
      auto& [result, expected_result, without_gradient] =
          *reinterpret_cast<LossResult(*)[3]>(results.data());
      kernels().softmax_cross_entropy(options, logits.data(), labels.data(), loss_scale.data(),
                                      dlogits.data(), &result);
      CrossEntropyOptions scaled = options;
      scaled.scale *= 0.5;
      reference().softmax_cross_entropy(scaled, logits.data(), labels.data(), nullptr,
                                        expected.data(), &expected_result);
      EXPECT_NEAR(result.loss_sum, expected_result.loss_sum, 1e-6 * (1 + expected_result.loss_sum));
      EXPECT_EQ(result.correct, expected_result.correct);
      ExpectClose(dlogits, expected, "dlogits", 1e-6);
      kernels().softmax_cross_entropy(options, logits.data(), labels.data(), nullptr, nullptr,
                                      &without_gradient);
      EXPECT_EQ(without_gradient.loss_sum, result.loss_sum);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(KernelSets, KernelContractTest, EveryKernelSet(), KernelSetName);

TEST(ReferenceKernelsTest, CrossEntropyGradientMatchesFiniteDifferences) {
  std::mt19937 random(4);
  const CrossEntropyOptions options{.samples = 6, .classes = 5, .label_smoothing = 0.2};
  TestBuffer logits(30, random), direction(30, random), dlogits(30);
  const std::vector<int32_t> labels = {0, 4, 2, 2, 1, 3};
  const auto value = [&](float distance) {
    LossResult result;
    ReferenceKernels().softmax_cross_entropy(options, Moved(logits, direction, distance).data(),
                                             labels.data(), nullptr, nullptr, &result);
    return result.loss_sum;
  };
  LossResult result;
  ReferenceKernels().softmax_cross_entropy(options, logits.data(), labels.data(), nullptr,
                                           dlogits.data(), &result);
  EXPECT_NEAR((value(1e-2f) - value(-1e-2f)) / 2e-2, Dot(dlogits, direction), 1e-3);
}

}  // namespace
}  // namespace muster::kernels
