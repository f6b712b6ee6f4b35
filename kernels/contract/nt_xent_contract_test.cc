// Compares every kernel set's NT-Xent with the reference, and the reference with finite differences
// of the loss as defined by its formula.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/contract/kernel_contract.h"
#include "kernels/contract/test_buffer.h"
#include "kernels/kernel_table.h"

namespace muster::kernels {
namespace {

using Embeddings = std::vector<double>;  // [samples, width]

// The summed losses of all samples, normalised and in double, computed directly by the formula.
double TextbookLoss(const Embeddings& z, int64_t samples, int64_t width, double temperature) {
  const auto cosine = [&](int64_t i, int64_t j) {
    double product = 0, square_i = 0, square_j = 0;
    for (int64_t k = 0; k < width; ++k) {
      product += z[i * width + k] * z[j * width + k];
      square_i += z[i * width + k] * z[i * width + k];
      square_j += z[j * width + k] * z[j * width + k];
    }
    return product / std::sqrt(square_i * square_j);
  };
  double loss = 0;
  for (int64_t i = 0; i < samples; ++i) {
    double sum = 0;
    for (int64_t j = 0; j < samples; ++j) {
      if (j != i) sum += std::exp(cosine(i, j) / temperature);
    }
    loss += std::log(sum) - cosine(i, i ^ 1) / temperature;
  }
  return loss;
}

// One group's loss computed with one table, from embeddings to gradients.
struct GroupLoss {
  GroupLoss(const KernelTable& table, const NtXentShape& shape, const TestBuffer& z, float scale)
      : units(z.size()),
        inverse_norms(shape.samples),
        logits(shape.logits_elements()),
        log_sums(shape.row_stride()),
        dunits(shape.anchors * shape.width),
        dz(dunits.size()) {
    table.l2_normalize_forward(shape.samples, shape.width, z.data(), units.data(),
                               inverse_norms.data());
    // The log sums of all samples, as received from the other processes.
    NtXentShape whole = shape;
    whole.first = 0;
    whole.anchors = shape.samples;
    TestVector<LossResult> shared_result(1);
    TestBuffer all_logits(whole.logits_elements()), workspace(shape.workspace_elements());
    table.nt_xent_forward(whole, units.data(), all_logits.data(), log_sums.data(), workspace.data(),
                          shared_result.data());
    TestBuffer own_log_sums(shape.anchors);
    table.nt_xent_forward(shape, units.data(), logits.data(), own_log_sums.data(), workspace.data(),
                          shared_result.data());
    result = shared_result[0];
    for (int64_t i = 0; i < shape.anchors; ++i) {
      EXPECT_EQ(std::memcmp(&own_log_sums[i], &log_sums[shape.first + i], sizeof(float)), 0) << i;
    }
    forward_logits.assign(logits.data(), logits.data() + logits.size());
    const auto loss_scale = Stored(0.5);
    table.nt_xent_backward(shape, 2 * scale, loss_scale.data(), units.data(), log_sums.data(),
                           logits.data(), dunits.data());
    table.l2_normalize_backward(shape.anchors, shape.width,
                                units.data() + shape.first * shape.width,
                                inverse_norms.data() + shape.first, dunits.data(), dz.data());
  }

  TestBuffer units, inverse_norms, logits, log_sums, dunits, dz;
  std::vector<float> forward_logits;
  LossResult result;
};

std::vector<NtXentShape> Shapes() {
  return {{.samples = 2, .first = 0, .anchors = 2, .width = 1},
          {.samples = 6, .first = 2, .anchors = 4, .width = 3, .temperature = 0.5f},
          {.samples = 16, .first = 0, .anchors = 16, .width = 16, .temperature = 0.1f},
          {.samples = 34, .first = 20, .anchors = 14, .width = 129, .temperature = 0.07f},
          {.samples = 34, .first = 34, .anchors = 0, .width = 5},
          {.samples = 0, .first = 0, .anchors = 0, .width = 5},
          // More than one pass over the depth of both products.
          {.samples = 550, .first = 100, .anchors = 38, .width = 261, .temperature = 0.5f}};
}

std::string Name(const NtXentShape& shape) {
  return testing::PrintToString(
      std::vector<int64_t>{shape.samples, shape.first, shape.anchors, shape.width});
}

class NtXentContractTest : public KernelSetTest {};

TEST_P(NtXentContractTest, MatchesTheReference) {
  for (const NtXentShape& shape : Shapes()) {
    SCOPED_TRACE(Name(shape));
    const TestBuffer z(shape.samples * shape.width, random_);
    const GroupLoss actual(kernels(), shape, z, 0.25f),
        expected(ReferenceKernels(), shape, z, 0.25f);
    ExpectClose(actual.units, expected.units, "units", 1e-6);
    EXPECT_EQ(actual.result.correct, expected.result.correct);
    EXPECT_NEAR(actual.result.loss_sum, expected.result.loss_sum,
                1e-5 * std::max<int64_t>(1, shape.anchors));
    for (int64_t i = 0; i < shape.samples; ++i) {
      ASSERT_NEAR(actual.log_sums[i], expected.log_sums[i], 1e-5);
    }
    for (int64_t a = 0; a < shape.anchors; ++a) {
      for (int64_t j = 0; j < shape.samples; ++j) {
        const float value = actual.forward_logits[a * shape.row_stride() + j];
        const float wanted = expected.forward_logits[a * shape.row_stride() + j];
        if (j == shape.first + a) {
          EXPECT_EQ(value, -std::numeric_limits<float>::infinity());
        } else {
          ASSERT_NEAR(value, wanted, 1e-5);
        }
      }
    }
    ExpectClose(actual.dunits, expected.dunits, "dunits");
    ExpectClose(actual.dz, expected.dz, "dz");
  }
}

TEST_P(NtXentContractTest, MatchesTheReferenceAtExtremeTemperatures) {
  for (const float temperature : {0.01f, 0.001f, 1000.0f}) {
    SCOPED_TRACE(temperature);
    const NtXentShape shape{
        .samples = 22, .first = 4, .anchors = 10, .width = 7, .temperature = temperature};
    const TestBuffer z(shape.samples * shape.width, random_);
    const GroupLoss actual(kernels(), shape, z, 1), expected(ReferenceKernels(), shape, z, 1);
    EXPECT_EQ(actual.result.correct, expected.result.correct);
    // Logits are up to 1 / temperature, and rounding errors grow accordingly.
    const double tolerance = 1e-6 * std::max(1.0, 1.0 / temperature);
    EXPECT_NEAR(actual.result.loss_sum, expected.result.loss_sum, 10 * tolerance);
    ExpectClose(actual.dz, expected.dz, "dz", tolerance);
  }
}

// Only the direction matters.
TEST_P(NtXentContractTest, DoesNotDependOnTheLengthsOfVectors) {
  const NtXentShape shape{.samples = 12, .anchors = 12, .width = 9};
  const TestBuffer z(shape.samples * shape.width, random_);
  TestBuffer scaled(z.size());
  for (size_t i = 0; i < z.size(); ++i) {
    scaled[i] = z[i] * (i / shape.width % 2 == 0 ? 1e25f : 1e-9f);
  }
  const GroupLoss plain(kernels(), shape, z, 1), actual(kernels(), shape, scaled, 1);
  ExpectClose(actual.units, plain.units, "units", 1e-6);
  EXPECT_NEAR(actual.result.loss_sum, plain.result.loss_sum, 1e-4);
}

TEST_P(NtXentContractTest, VectorWithoutDirectionHasNoGradient) {
  const NtXentShape shape{.samples = 10, .anchors = 10, .width = 6, .temperature = 0.2f};
  TestBuffer z(shape.samples * shape.width, random_);
  for (int64_t i = 0; i < shape.width; ++i) z[3 * shape.width + i] = 0;
  const GroupLoss actual(kernels(), shape, z, 1), expected(ReferenceKernels(), shape, z, 1);
  EXPECT_TRUE(std::isfinite(actual.result.loss_sum));
  EXPECT_NEAR(actual.result.loss_sum, expected.result.loss_sum, 1e-4);
  ExpectClose(actual.dz, expected.dz, "dz");
  for (int64_t i = 0; i < shape.width; ++i) EXPECT_EQ(actual.dz[3 * shape.width + i], 0);
  double others = 0;
  for (size_t i = 0; i < actual.dz.size(); ++i) others += std::abs(double{actual.dz[i]});
  EXPECT_GT(others, 0.1);
}

TEST_P(NtXentContractTest, LossIsZeroWithoutNegatives) {
  const NtXentShape shape{.samples = 2, .anchors = 2, .width = 5, .temperature = 0.1f};
  const TestBuffer z(shape.samples * shape.width, random_);
  const GroupLoss actual(kernels(), shape, z, 1);
  EXPECT_EQ(actual.result.loss_sum, 0);
  EXPECT_EQ(actual.result.correct, 2u);
  for (size_t i = 0; i < actual.dz.size(); ++i) EXPECT_EQ(actual.dz[i], 0);
}

// A collapsed model, whose embeddings are all equal, predicts nothing.
TEST_P(NtXentContractTest, EqualSimilaritiesAreNotCorrect) {
  const NtXentShape shape{.samples = 8, .anchors = 8, .width = 4};
  TestBuffer z(shape.samples * shape.width);
  for (size_t i = 0; i < z.size(); ++i) z[i] = 1;
  const GroupLoss actual(kernels(), shape, z, 1);
  EXPECT_EQ(actual.result.correct, 0u);
  EXPECT_NEAR(actual.result.loss_sum, 8 * std::log(7.0), 1e-5);
}

TEST_P(NtXentContractTest, PropagatesNan) {
  const NtXentShape shape{.samples = 8, .anchors = 8, .width = 4};
  TestBuffer z(shape.samples * shape.width, random_);
  z[9] = std::numeric_limits<float>::quiet_NaN();
  const GroupLoss actual(kernels(), shape, z, 1);
  EXPECT_TRUE(std::isnan(actual.result.loss_sum));
  for (size_t i = 0; i < actual.dz.size(); ++i) EXPECT_TRUE(std::isnan(actual.dz[i])) << i;
}

INSTANTIATE_TEST_SUITE_P(KernelSets, NtXentContractTest, EveryKernelSet(), KernelSetName);

TEST(NtXentReferenceTest, LossMatchesTheFormula) {
  std::mt19937 random(3);
  for (const NtXentShape& shape : Shapes()) {
    if (shape.first > 0 || shape.anchors != shape.samples) continue;
    SCOPED_TRACE(Name(shape));
    const TestBuffer z(shape.samples * shape.width, random);
    const Embeddings exact(z.data(), z.data() + z.size());
    const GroupLoss group(ReferenceKernels(), shape, z, 1);
    EXPECT_NEAR(group.result.loss_sum,
                TextbookLoss(exact, shape.samples, shape.width, double{shape.temperature}),
                1e-5 * std::max<int64_t>(1, shape.samples));
  }
}

// The gradient of the loss of all anchors, including those of other processes, through the
// normalisation.
TEST(NtXentReferenceTest, GradientMatchesFiniteDifferences) {
  std::mt19937 random(5);
  constexpr double kStep = 1e-5;
  constexpr float kScale = 0.125f;
  const NtXentShape shape{.samples = 14, .first = 4, .anchors = 6, .width = 5, .temperature = 0.3f};
  const TestBuffer z(shape.samples * shape.width, random);
  const GroupLoss group(ReferenceKernels(), shape, z, kScale);
  Embeddings moved(z.data(), z.data() + z.size());
  for (int64_t i = 0; i < shape.anchors * shape.width; ++i) {
    double& value = moved[shape.first * shape.width + i];
    const double before = value;
    value = before + kStep;
    const double above = TextbookLoss(moved, shape.samples, shape.width, shape.temperature);
    value = before - kStep;
    const double below = TextbookLoss(moved, shape.samples, shape.width, shape.temperature);
    value = before;
    EXPECT_NEAR(group.dz[i], kScale * (above - below) / (2 * kStep), 1e-6) << i;
  }
}

}  // namespace
}  // namespace muster::kernels
