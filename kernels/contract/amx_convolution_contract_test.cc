// Compares the AMX convolution with reference::MakeConvolution for shapes larger than those of
// convolution_contract_test.cc, which it passes, too: several groups of panels and several blocks
// of pixels.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/contract/test_buffer.h"
#include "kernels/convolution.h"
#include "kernels/cpu/convolution/amx/engine.h"
#include "kernels/cpu/convolution/amx/support.h"
#include "kernels/half.h"

namespace muster::kernels {
namespace {

constexpr DataType kBf16 = DataType::kBfloat16;

struct Case {
  ConvolutionShape shape;
  int64_t samples;
  bool data_gradient = true;
};

std::string Name(const Case& layer) {
  const ConvolutionShape& s = layer.shape;
  return testing::PrintToString(std::vector<int64_t>{layer.samples, s.height, s.width,
                                                     s.in_channels, s.out_channels, s.kernel,
                                                     s.stride, s.padding});
}

// Whole and partial blocks, of positions and of channels.
std::vector<Case> Cases() {
  return {
      {{4, 4, 600, 72, 3, 1, 1}, 3},    // a group of panels per panel
      {{4, 4, 72, 600, 3, 1, 1}, 3},    // the same in backward
      {{20, 20, 64, 600, 1, 1, 0}, 3},  // pairs of pixels in blocks, an odd number of images
      {{9, 9, 300, 200, 3, 1, 1}, 13},  // pairs of images in blocks
      {{8, 8, 256, 512, 1, 2, 0}, 4},   // every other pixel's gradient is zero
      {{8, 8, 128, 128, 3, 2, 1}, 9},   // planes
      {{7, 9, 96, 64, 5, 3, 2}, 4},     // of different sizes
      {{1, 1, 512, 512, 3, 1, 1}, 5},   // one tap of nine
      {{2, 1, 128, 32, 3, 1, 1}, 32},   // six of nine taps
      {{4, 4, 64, 96, 3, 1, 1}, 64},    // a plane per pixel
      {{2, 30, 40, 64, 3, 1, 1}, 10},   // a plane per row
      {{30, 2, 64, 40, 3, 1, 1}, 10},   // a plane per column
      {{1, 1, 2048, 1000, 1, 1, 0}, 64},    {{1, 1, 512, 10, 1, 1, 0}, 1},  // fewer than a block
      {{33, 31, 3, 64, 7, 2, 3}, 5, false},                                 // windows
      {{12, 9, 4, 40, 3, 1, 1}, 30, false},
  };
}

// An array of bfloat16, initially NaN.
class Halves {
 public:
  explicit Halves(int64_t count) : count_(count), floats_(count / 2 + 1) {
    std::memset(floats_.data(), 0xff, count * SizeOf(kBf16));
  }
  Halves(int64_t count, std::mt19937& random) : Halves(count) {
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < count; ++i) Set(i, normal(random));
  }
  void* data() const { return floats_.data(); }
  int64_t size() const { return count_; }
  float operator[](int64_t i) const { return LoadElement(kBf16, data(), i); }
  void Set(int64_t i, float value) { StoreElement(kBf16, value, data(), i); }
  bool operator==(const Halves& other) const {
    return std::memcmp(data(), other.data(), count_ * SizeOf(kBf16)) == 0;
  }

 private:
  int64_t count_;
  TestBuffer floats_;
};

void ExpectClose(const Halves& actual, const Halves& expected, const char* what) {
  double largest = 1;
  for (int64_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::abs(double{expected[i]}));
  }
  for (int64_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], 0x1p-7 * largest) << what << " at " << i;
  }
}

class AmxConvolutionTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!cpu::HasAmx()) GTEST_SKIP() << "this CPU has no AMX";
  }

  static ConvolutionOptions Options(const Case& layer, int threads = 1) {
    return {.max_samples = layer.samples,
            .data_gradient = layer.data_gradient,
            .threads = threads,
            .x_type = kBf16,
            .y_type = kBf16,
            .compute_type = kBf16};
  }
  static std::unique_ptr<Convolution> Make(const ConvolutionShape& shape,
                                           const ConvolutionOptions& options) {
    return cpu::LowerConvolution(shape, options, CpuKernels(), cpu::MakeAmxEngine(shape, options));
  }

  std::mt19937 random_{5};
};

TEST_F(AmxConvolutionTest, MatchesTheReference) {
  for (const Case& layer : Cases()) {
    SCOPED_TRACE(Name(layer));
    const auto convolution = Make(layer.shape, Options(layer));
    const auto reference = reference::MakeConvolution(layer.shape, Options(layer));
    const TestBuffer canonical(layer.shape.weights(), random_);
    const TestBuffer weights(convolution->weights_elements());
    const TestBuffer workspace(convolution->workspace_bytes() / sizeof(float) + 1);
    convolution->ImportWeights(canonical.data(), weights.data());
    const Halves x(layer.samples * layer.shape.input_elements(), random_);
    const Halves dy(layer.samples * layer.shape.output_elements(), random_);
    const Halves y(dy.size()), expected_y(dy.size()), dx(x.size()), expected_dx(x.size());
    convolution->Forward(layer.samples, x.data(), weights.data(), {}, y.data(), workspace.data());
    reference->Forward(layer.samples, x.data(), canonical.data(), {}, expected_y.data(), nullptr);
    ExpectClose(y, expected_y, "y");
    if (layer.data_gradient) {
      convolution->BackwardData(layer.samples, dy.data(), weights.data(), dx.data(),
                                workspace.data());
      reference->BackwardData(layer.samples, dy.data(), canonical.data(), expected_dx.data(),
                              nullptr);
      ExpectClose(dx, expected_dx, "dx");
    }
    const TestBuffer dweights(weights.size()), actual(canonical.size()), expected(canonical.size());
    const TestBuffer dbias(layer.shape.out_channels), expected_dbias(dbias.size());
    convolution->BackwardWeights(layer.samples, x.data(), dy.data(), dweights.data(), dbias.data(),
                                 workspace.data());
    convolution->ExportWeights(dweights.data(), actual.data());
    reference->BackwardWeights(layer.samples, x.data(), dy.data(), expected.data(),
                               expected_dbias.data(), nullptr);
    kernels::ExpectClose(actual, expected, "dweights");
    kernels::ExpectClose(dbias, expected_dbias, "dbias");
  }
}

TEST_F(AmxConvolutionTest, ResultDoesNotDependOnTheNumberOfThreads) {
  for (const Case& layer : Cases()) {
    SCOPED_TRACE(Name(layer));
    const Halves x(layer.samples * layer.shape.input_elements(), random_);
    const Halves dy(layer.samples * layer.shape.output_elements(), random_);
    std::unique_ptr<Halves> ys, dxs;
    std::unique_ptr<TestBuffer> weights, gradients;
    for (const int threads : {1, 2, 3}) {
      const auto convolution = Make(layer.shape, Options(layer, threads));
      const int64_t elements = convolution->weights_elements();
      if (weights == nullptr) weights = std::make_unique<TestBuffer>(elements, random_);
      const TestBuffer workspace(convolution->workspace_bytes() / sizeof(float) + 1);
      auto y = std::make_unique<Halves>(dy.size());
      auto dx = std::make_unique<Halves>(x.size());
      auto dweights = std::make_unique<TestBuffer>(elements);
      const TestBuffer dbias(layer.shape.out_channels);
      convolution->Forward(layer.samples, x.data(), weights->data(), {}, y->data(),
                           workspace.data());
      if (layer.data_gradient) {
        convolution->BackwardData(layer.samples, dy.data(), weights->data(), dx->data(),
                                  workspace.data());
      }
      convolution->BackwardWeights(layer.samples, x.data(), dy.data(), dweights->data(),
                                   dbias.data(), workspace.data());
      if (threads == 1) {
        ys = std::move(y);
        dxs = std::move(dx);
        gradients = std::move(dweights);
        continue;
      }
      EXPECT_TRUE(*y == *ys) << threads;
      EXPECT_TRUE(*dx == *dxs) << threads;
      EXPECT_EQ(std::memcmp(dweights->data(), gradients->data(), elements * sizeof(float)), 0)
          << threads;
    }
  }
}

// Even if their positions share a block, or zeros between them.
TEST_F(AmxConvolutionTest, ImagesDoNotAffectEachOther) {
  const ConvolutionShape shape = {3, 3, 64, 64, 3, 1, 1};
  constexpr int64_t kSamples = 3;
  const auto convolution = Make(shape, Options({shape, kSamples}));
  const TestBuffer workspace(convolution->workspace_bytes() / sizeof(float) + 1);
  const TestBuffer weights(convolution->weights_elements(), random_);
  Halves images(kSamples * shape.input_elements(), random_);
  for (int64_t i = 0; i < shape.input_elements(); ++i) {
    images.Set(shape.input_elements() + i, std::numeric_limits<float>::quiet_NaN());
  }
  const Halves y(images.size()), dx(images.size());
  convolution->Forward(kSamples, images.data(), weights.data(), {}, y.data(), workspace.data());
  convolution->BackwardData(kSamples, images.data(), weights.data(), dx.data(), workspace.data());
  for (int64_t i = 0; i < y.size(); ++i) {
    ASSERT_EQ(std::isnan(y[i]), i / shape.output_elements() == 1) << i;
    ASSERT_EQ(std::isnan(dx[i]), i / shape.output_elements() == 1) << i;
  }
}

}  // namespace
}  // namespace muster::kernels
