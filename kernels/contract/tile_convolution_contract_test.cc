// Compares the tile convolution with reference::MakeConvolution for all instruction sets and types.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/contract/kernel_contract.h"
#include "kernels/contract/test_buffer.h"
#include "kernels/convolution.h"
#include "kernels/cpu/convolution/tile/engine.h"
#include "kernels/half.h"

namespace muster::kernels {
namespace {

// An array of `type`, initially NaN.
class Stored {
 public:
  Stored(DataType type, int64_t count) : type_(type), count_(count), floats_(count) {
    std::memset(floats_.data(), 0xff, count * SizeOf(type));
  }
  Stored(DataType type, int64_t count, std::mt19937& random) : Stored(type, count) {
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < count; ++i) Set(i, normal(random));
  }

  void* data() const { return floats_.data(); }
  int64_t size() const { return count_; }
  DataType type() const { return type_; }
  float operator[](int64_t i) const { return LoadElement(type_, data(), i); }
  void Set(int64_t i, float value) { StoreElement(type_, value, data(), i); }
  bool operator==(const Stored& other) const {
    return count_ == other.count_ && std::memcmp(data(), other.data(), count_ * SizeOf(type_)) == 0;
  }

 private:
  DataType type_;
  int64_t count_;
  TestBuffer floats_;
};

// Relative difference of sums that differ in their last bits before rounding to the storage type.
double Tolerance(DataType type) {
  return type == DataType::kFloat32 ? 1e-5 : type == DataType::kBfloat16 ? 0x1p-7 : 0x1p-10;
}

void ExpectClose(const Stored& actual, const Stored& expected, const char* what, double tolerance) {
  double largest = 1;
  for (int64_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::abs(double{expected[i]}));
  }
  for (int64_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], tolerance * largest) << what << " at " << i;
  }
}

struct Case {
  ConvolutionShape shape;
  int64_t samples;
};

std::string Name(const Case& layer, const ConvolutionOptions& options) {
  const ConvolutionShape& s = layer.shape;
  return testing::PrintToString(std::vector<int64_t>{layer.samples, s.height, s.width,
                                                     s.in_channels, s.out_channels, s.kernel,
                                                     s.stride, s.padding}) +
         " x " + NameOf(options.x_type) + " y " + NameOf(options.y_type) + " in " +
         NameOf(options.compute_type);
}

// Whole and partial tiles of every class; panels that are full, narrow and partly padding.
std::vector<Case> Cases() {
  return {
      {{8, 8, 32, 64, 3, 1, 1}, 5},   {{4, 4, 64, 64, 3, 1, 1}, 9},
      {{2, 2, 48, 96, 3, 1, 1}, 13},  {{1, 1, 64, 80, 3, 1, 1}, 30},
      {{7, 7, 34, 40, 3, 1, 1}, 3},   {{8, 8, 32, 48, 3, 2, 1}, 5},
      {{7, 9, 16, 24, 3, 2, 1}, 4},   {{7, 7, 64, 32, 1, 2, 0}, 5},
      {{5, 6, 17, 33, 3, 1, 1}, 4},   {{4, 5, 19, 20, 1, 1, 0}, 3},
      {{9, 8, 5, 7, 5, 3, 2}, 3},     {{4, 5, 3, 17, 2, 1, 2}, 3},
      {{3, 3, 6, 9, 2, 4, 0}, 4},     {{33, 17, 3, 64, 7, 2, 3}, 2},
      {{12, 28, 1, 32, 3, 1, 1}, 3},  {{14, 9, 4, 16, 3, 1, 1}, 2},
      {{1, 1, 520, 72, 1, 1, 0}, 25}, {{1, 1, 96, 1040, 1, 1, 0}, 7},
      {{2, 2, 160, 160, 3, 1, 1}, 4},
  };
}

class TileConvolutionTest : public KernelContractTest {
 protected:
  const cpu::DenseKernels& dense() const {
    return cpu::DenseKernelsOf(static_cast<InstructionSet>(GetParam()));
  }
  std::vector<DataType> ComputeTypes() const {
    if (!dense().bfloat16_dot) return {DataType::kFloat32};
    return {DataType::kFloat32, DataType::kBfloat16};
  }

  std::unique_ptr<Convolution> Make(const ConvolutionShape& shape,
                                    const ConvolutionOptions& options) const {
    return cpu::LowerConvolution(shape, options, kernels(),
                                 cpu::MakeTileEngine(shape, options, dense()));
  }

  void ExpectTheReference(const Case& layer, const ConvolutionOptions& options) {
    SCOPED_TRACE(Name(layer, options));
    const auto convolution = Make(layer.shape, options);
    const auto reference = reference::MakeConvolution(layer.shape, options);
    const TestBuffer canonical(layer.shape.weights(), random_);
    const TestBuffer weights(convolution->weights_elements());
    const TestBuffer workspace(convolution->workspace_bytes() / sizeof(float) + 1);
    convolution->ImportWeights(canonical.data(), weights.data());
    for (const int64_t samples : {options.max_samples, int64_t{1}}) {
      const Stored x(options.x_type, samples * layer.shape.input_elements(), random_);
      const Stored dy(options.y_type, samples * layer.shape.output_elements(), random_);
      const Stored addend(options.y_type, dy.size(), random_);
      const TestBuffer scale(layer.shape.out_channels, random_);
      const TestBuffer shift(layer.shape.out_channels, random_);
      const Epilogue epilogues[] = {
          {},
          {.shift = shift.data(), .activation = Activation::kRelu},
          {.scale = scale.data(), .activation = Activation::kRelu6},
          {.scale = scale.data(), .shift = shift.data(), .addend = addend.data()}};
      for (const Epilogue& epilogue : epilogues) {
        const Stored y(options.y_type, dy.size()), expected(options.y_type, dy.size());
        convolution->Forward(samples, x.data(), weights.data(), epilogue, y.data(),
                             workspace.data());
        reference->Forward(samples, x.data(), canonical.data(), epilogue, expected.data(), nullptr);
        ExpectClose(y, expected, "y", Tolerance(options.y_type));
      }
      const Stored dx(options.x_type, x.size()), expected_dx(options.x_type, x.size());
      convolution->BackwardData(samples, dy.data(), weights.data(), dx.data(), workspace.data());
      reference->BackwardData(samples, dy.data(), canonical.data(), expected_dx.data(), nullptr);
      ExpectClose(dx, expected_dx, "dx", Tolerance(options.x_type));
      ExpectTheReferencesWeights(layer, options, samples, x, dy, *convolution, *reference,
                                 workspace);
    }
  }

  void ExpectTheReferencesWeights(const Case& layer, const ConvolutionOptions& options,
                                  int64_t samples, const Stored& x, const Stored& dy,
                                  Convolution& convolution, Convolution& reference,
                                  const TestBuffer& workspace) {
    const TestBuffer dweights(convolution.weights_elements());
    const TestBuffer actual(layer.shape.weights()), expected(layer.shape.weights());
    const TestBuffer dbias(layer.shape.out_channels), expected_dbias(layer.shape.out_channels);
    convolution.BackwardWeights(samples, x.data(), dy.data(), dweights.data(), dbias.data(),
                                workspace.data());
    convolution.ExportWeights(dweights.data(), actual.data());
    reference.BackwardWeights(samples, x.data(), dy.data(), expected.data(), expected_dbias.data(),
                              nullptr);
    kernels::ExpectClose(actual, expected, "dweights");
    // The bias's gradient sums dy rounded like an operand.
    kernels::ExpectClose(dbias, expected_dbias, "dbias", Tolerance(options.compute_type));
  }
};

TEST_P(TileConvolutionTest, MatchesTheReference) {
  for (const Case& layer : Cases()) {
    for (const DataType compute_type : ComputeTypes()) {
      ExpectTheReference(layer, {.max_samples = layer.samples, .compute_type = compute_type});
      ExpectTheReference(layer, {.max_samples = layer.samples,
                                 .x_type = DataType::kBfloat16,
                                 .y_type = DataType::kBfloat16,
                                 .compute_type = compute_type});
    }
  }
}

TEST_P(TileConvolutionTest, MatchesTheReferenceForAllStorageTypes) {
  const DataType types[] = {DataType::kFloat32, DataType::kBfloat16, DataType::kFloat16};
  for (const DataType x_type : types) {
    for (const DataType y_type : types) {
      for (const DataType compute_type : ComputeTypes()) {
        ExpectTheReference({{6, 5, 18, 40, 3, 1, 1}, 3}, {.max_samples = 3,
                                                          .threads = 2,
                                                          .x_type = x_type,
                                                          .y_type = y_type,
                                                          .compute_type = compute_type});
      }
    }
  }
}

// Large enough for non-temporal stores.
TEST_P(TileConvolutionTest, MatchesTheReferenceForALargeOutput) {
  const ConvolutionShape shape = {64, 64, 1, 64, 1, 1, 0};
  constexpr int64_t kSamples = 17;
  const ConvolutionOptions options = {.max_samples = kSamples};
  const auto convolution = Make(shape, options);
  const TestBuffer canonical(shape.weights(), random_), weights(convolution->weights_elements());
  convolution->ImportWeights(canonical.data(), weights.data());
  const TestBuffer x(kSamples * shape.input_elements(), random_);
  const TestBuffer y(kSamples * shape.output_elements()), expected(y.size());
  const TestBuffer workspace(convolution->workspace_bytes() / sizeof(float) + 1);
  convolution->Forward(kSamples, x.data(), weights.data(), {}, y.data(), workspace.data());
  reference::MakeConvolution(shape, options)
      ->Forward(kSamples, x.data(), canonical.data(), {}, expected.data(), nullptr);
  kernels::ExpectClose(y, expected, "y");
}

TEST_P(TileConvolutionTest, ResultDoesNotDependOnTheNumberOfThreads) {
  for (const Case& layer : Cases()) {
    for (const DataType type : ComputeTypes()) {
      ConvolutionOptions options = {
          .max_samples = layer.samples, .x_type = type, .y_type = type, .compute_type = type};
      const auto one = Make(layer.shape, options);
      options.threads = 3;
      const auto three = Make(layer.shape, options);
      const Stored x(type, layer.samples * layer.shape.input_elements(), random_);
      const Stored dy(type, layer.samples * layer.shape.output_elements(), random_);
      const TestBuffer weights(one->weights_elements(), random_);
      std::vector<Stored> results;
      for (Convolution* convolution : {one.get(), three.get()}) {
        const TestBuffer workspace(convolution->workspace_bytes() / sizeof(float) + 1);
        const Stored& y = results.emplace_back(type, dy.size());
        convolution->Forward(layer.samples, x.data(), weights.data(), {}, y.data(),
                             workspace.data());
        const Stored& dx = results.emplace_back(type, x.size());
        convolution->BackwardData(layer.samples, dy.data(), weights.data(), dx.data(),
                                  workspace.data());
      }
      EXPECT_TRUE(results[0] == results[2]) << Name(layer, options);
      EXPECT_TRUE(results[1] == results[3]) << Name(layer, options);
    }
  }
}

// With an odd number of channels, the last pair could include the next pixel's first channel.
TEST_P(TileConvolutionTest, PixelsDoNotAffectEachOther) {
  for (const DataType type : ComputeTypes()) {
    const Case layer = {{4, 4, 17, 32, 1, 1, 0}, 2};
    const auto convolution =
        Make(layer.shape,
             {.max_samples = layer.samples, .x_type = type, .y_type = type, .compute_type = type});
    const TestBuffer workspace(convolution->workspace_bytes() / sizeof(float) + 1);
    const TestBuffer weights(convolution->weights_elements(), random_);
    Stored x(type, layer.samples * layer.shape.input_elements(), random_);
    constexpr int64_t kPixel = 5;
    for (int64_t c = 0; c < 17; ++c) {
      x.Set(kPixel * 17 + c, std::numeric_limits<float>::quiet_NaN());
    }
    const Stored y(type, layer.samples * layer.shape.output_elements());
    convolution->Forward(layer.samples, x.data(), weights.data(), {}, y.data(), workspace.data());
    for (int64_t i = 0; i < y.size(); ++i) ASSERT_EQ(std::isnan(y[i]), i / 32 == kPixel) << i;
  }
}

// Padding zeros times infinity would be NaN.
TEST_P(TileConvolutionTest, PaddingIsNotMultiplied) {
  for (const DataType type : ComputeTypes()) {
    const ConvolutionShape shape = {1, 1, 16, 32, 3, 1, 1};
    const auto convolution = Make(shape, {.compute_type = type});
    const TestBuffer workspace(convolution->workspace_bytes() / sizeof(float) + 1);
    const TestBuffer canonical(shape.weights()), weights(convolution->weights_elements());
    for (size_t i = 0; i < canonical.size(); ++i) {
      canonical[i] = i % 9 == 4 ? 1 : std::numeric_limits<float>::infinity();
    }
    convolution->ImportWeights(canonical.data(), weights.data());
    const Stored x(DataType::kFloat32, 16, random_), dy(DataType::kFloat32, 32, random_);
    const Stored y(DataType::kFloat32, 32), dx(DataType::kFloat32, 16);
    convolution->Forward(1, x.data(), weights.data(), {}, y.data(), workspace.data());
    convolution->BackwardData(1, dy.data(), weights.data(), dx.data(), workspace.data());
    for (int64_t i = 0; i < 32; ++i) ASSERT_TRUE(std::isfinite(y[i])) << i;
    for (int64_t i = 0; i < 16; ++i) ASSERT_TRUE(std::isfinite(dx[i])) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, TileConvolutionTest, EveryInstructionSet(),
                         KernelSetName);

}  // namespace
}  // namespace muster::kernels
