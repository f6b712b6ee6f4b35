// Compares every kernel set's depthwise convolution with the reference, and the Convolution based
// on it with reference::MakeConvolution.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/contract/kernel_contract.h"
#include "kernels/convolution.h"
#include "kernels/cpu/convolution/depthwise/engine.h"
#include "kernels/depthwise_convolution.h"
#include "kernels/half.h"

namespace muster::kernels {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr Activation kActivations[] = {Activation::kNone, Activation::kRelu, Activation::kRelu6};

struct Types {
  DataType type;
  DataType compute_type;
};
constexpr Types kTypes[] = {
    {DataType::kFloat32, DataType::kFloat32}, {DataType::kBfloat16, DataType::kBfloat16},
    {DataType::kFloat16, DataType::kFloat16}, {DataType::kFloat32, DataType::kBfloat16},
    {DataType::kFloat32, DataType::kFloat16}, {DataType::kBfloat16, DataType::kFloat32}};

// 64-byte aligned elements of a type, initially NaN.
class Activations {
 public:
  Activations(DataType type, int64_t count)
      : type_(type), count_(count), memory_((count * SizeOf(type) + 3) / 4) {}
  Activations(DataType type, int64_t count, std::mt19937& random) : Activations(type, count) {
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < count; ++i) Set(i, normal(random));
  }

  void* data() const { return memory_.data(); }
  int64_t size() const { return count_; }
  float operator[](int64_t i) const { return LoadElement(type_, data(), i); }
  void Set(int64_t i, float value) { StoreElement(type_, value, data(), i); }
  // Distance of adjacent values between 1 and 2.
  double unit() const {
    if (type_ == DataType::kFloat32) return 0x1p-23;
    return type_ == DataType::kBfloat16 ? 0x1p-7 : 0x1p-10;
  }

 private:
  DataType type_;
  int64_t count_;
  TestBuffer memory_;
};

// As for floats, plus the rounding that may differ because of a sum's error.
void ExpectClose(const Activations& actual, const Activations& expected, const char* what) {
  ASSERT_EQ(actual.size(), expected.size());
  double largest = 1;
  for (int64_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::abs(double{expected[i]}));
  }
  for (int64_t i = 0; i < expected.size(); ++i) {
    const double allowed = 1e-5 * largest + expected.unit() * std::abs(double{expected[i]});
    ASSERT_NEAR(actual[i], expected[i], allowed) << what << "[" << i << "]";
  }
}

std::vector<int64_t> WhereNan(const Activations& values) {
  std::vector<int64_t> places;
  for (int64_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) places.push_back(i);
  }
  return places;
}

void ExpectTheSameBits(const void* a, const void* b, size_t bytes, const char* what) {
  if (bytes > 0) EXPECT_EQ(std::memcmp(a, b, bytes), 0) << what;
}

std::vector<DepthwiseConvolutionShape> Shapes() {
  return {
      // Shapes of three_body.h: samples, height, width, channels, kernel, stride, padding.
      {2, 14, 14, 32, 3, 1, 1},
      {3, 9, 7, 16, 3, 1, 1},
      {2, 7, 9, 100, 3, 2, 1},
      {2, 8, 6, 17, 3, 2, 1},
      {1, 8, 9, 33, 3, 2, 1},
      {5, 1, 1, 64, 3, 1, 1},
      {5, 1, 1, 20, 3, 2, 1},
      {2, 1, 5, 18, 3, 1, 1},
      {2, 6, 1, 31, 3, 1, 1},
      {3, 1, 6, 19, 3, 2, 1},
      {3, 5, 1, 16, 3, 2, 1},
      {9, 2, 2, 48, 3, 1, 1},
      {9, 2, 2, 48, 3, 2, 1},
      {2, 5, 6, 24, 3, 1, 0},
      {2, 5, 6, 24, 3, 1, 2},
      {2, 3, 2, 16, 3, 1, 2},
      {2, 7, 6, 24, 3, 2, 0},
      {2, 3, 3, 40, 3, 2, 0},
      {1, 40, 30, 80, 3, 1, 1},  // several bands of rows
      {1, 41, 31, 80, 3, 2, 1},
      {700, 2, 1, 16, 3, 1, 1},  // several bands of images
      // Shapes of dot_body.h, too: in bands of rows and of images, with and without a remaining row
      // and column, and with channels that two blocks share.
      {2, 9, 7, 40, 3, 1, 1},
      {2, 7, 8, 72, 3, 2, 1},
      {3, 12, 10, 96, 3, 2, 1},
      {700, 1, 2, 32, 3, 1, 1},
      {300, 2, 4, 32, 3, 2, 1},
      {0, 4, 4, 32, 3, 1, 1},
      {0, 4, 4, 32, 3, 2, 1},
      // Other shapes.
      {2, 5, 6, 3, 3, 1, 1},
      {2, 6, 5, 1, 3, 2, 1},
      {2, 7, 6, 24, 3, 2, 2},
      {2, 9, 8, 20, 3, 3, 1},
      {2, 6, 7, 1, 2, 3, 0},
      {2, 6, 7, 37, 2, 1, 0},
      {2, 5, 5, 70, 1, 1, 0},
      {2, 5, 6, 19, 1, 2, 0},
      {2, 9, 8, 24, 5, 1, 2},
      {2, 9, 8, 21, 5, 2, 2},
      {2, 11, 4, 16, 4, 3, 1},
      {2, 1, 4, 33, 7, 2, 3},
      {1, 1, 2, 8, 2, 4, 2},
      {2, 4, 5, 17, 2, 1, 2},  // windows entirely in the padding
      {0, 5, 5, 19, 5, 1, 2},
  };
}

std::string Name(const DepthwiseConvolutionShape& shape) {
  return testing::PrintToString(std::vector<int64_t>{shape.samples, shape.height, shape.width,
                                                     shape.channels, shape.kernel, shape.stride,
                                                     shape.padding}) +
         NameOf(shape.type) + NameOf(shape.compute_type);
}

class DepthwiseConvolutionContractTest : public KernelContractTest {
 protected:
  static int64_t Inputs(const DepthwiseConvolutionShape& shape) {
    return shape.samples * shape.input_elements();
  }
  static int64_t Outputs(const DepthwiseConvolutionShape& shape) {
    return shape.samples * shape.output_elements();
  }
  // The padding, which must not affect any channel, is not zero.
  TestBuffer Weights(const DepthwiseConvolutionShape& shape) {
    return TestBuffer(shape.weights_elements(), random_);
  }

  template <typename Visit>
  void ForEachShape(const Visit& visit) {
    for (DepthwiseConvolutionShape shape : Shapes()) {
      for (const Types& types : kTypes) {
        shape.type = types.type;
        shape.compute_type = types.compute_type;
        SCOPED_TRACE(Name(shape));
        visit(shape);
        if (HasFatalFailure()) return;
      }
    }
  }
};

TEST_P(DepthwiseConvolutionContractTest, Forward) {
  ForEachShape([&](const DepthwiseConvolutionShape& shape) {
    const Activations x(shape.type, Inputs(shape), random_);
    const Activations y(shape.type, Outputs(shape)), expected(shape.type, Outputs(shape));
    const Activations again(shape.type, Outputs(shape));
    const TestBuffer weights = Weights(shape);
    kernels().depthwise_convolution_forward(shape, x.data(), weights.data(), {}, y.data());
    reference().depthwise_convolution_forward(shape, x.data(), weights.data(), {}, expected.data());
    ExpectClose(y, expected, "y");
    kernels().depthwise_convolution_forward(shape, x.data(), weights.data(), {}, again.data());
    ExpectTheSameBits(again.data(), y.data(), y.size() * SizeOf(shape.type), "y again");
  });
}

TEST_P(DepthwiseConvolutionContractTest, Epilogues) {
  for (DepthwiseConvolutionShape shape : {DepthwiseConvolutionShape{2, 6, 5, 35, 3, 1, 1},
                                          {2, 7, 5, 35, 3, 2, 1},
                                          {2, 6, 7, 35, 5, 1, 2}}) {
    for (const Types& types : kTypes) {
      shape.type = types.type;
      shape.compute_type = types.compute_type;
      SCOPED_TRACE(Name(shape));
      const Activations x(shape.type, Inputs(shape), random_);
      const Activations addend(shape.type, Outputs(shape), random_);
      const TestBuffer weights = Weights(shape), scale(shape.channels, random_);
      const TestBuffer shift(shape.channels, random_);
      for (const Activation activation : kActivations) {
        for (int parts = 0; parts < 8; ++parts) {
          const Epilogue epilogue = {.scale = parts & 1 ? scale.data() : nullptr,
                                     .shift = parts & 2 ? shift.data() : nullptr,
                                     .addend = parts & 4 ? addend.data() : nullptr,
                                     .activation = activation};
          const Activations y(shape.type, Outputs(shape)), expected(shape.type, y.size());
          kernels().depthwise_convolution_forward(shape, x.data(), weights.data(), epilogue,
                                                  y.data());
          reference().depthwise_convolution_forward(shape, x.data(), weights.data(), epilogue,
                                                    expected.data());
          ExpectClose(y, expected, "y");
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(DepthwiseConvolutionContractTest, BackwardData) {
  ForEachShape([&](const DepthwiseConvolutionShape& shape) {
    const Activations dy(shape.type, Outputs(shape), random_);
    const Activations dx(shape.type, Inputs(shape)), expected(shape.type, Inputs(shape));
    const Activations again(shape.type, Inputs(shape));
    const TestBuffer weights = Weights(shape);
    kernels().depthwise_convolution_backward_data(shape, dy.data(), weights.data(), dx.data());
    reference().depthwise_convolution_backward_data(shape, dy.data(), weights.data(),
                                                    expected.data());
    ExpectClose(dx, expected, "dx");
    kernels().depthwise_convolution_backward_data(shape, dy.data(), weights.data(), again.data());
    ExpectTheSameBits(again.data(), dx.data(), dx.size() * SizeOf(shape.type), "dx again");
  });
}

TEST_P(DepthwiseConvolutionContractTest, BackwardWeights) {
  ForEachShape([&](const DepthwiseConvolutionShape& shape) {
    const Activations x(shape.type, Inputs(shape), random_);
    const Activations dy(shape.type, Outputs(shape), random_);
    TestBuffer dweights(shape.weights_elements()), expected(dweights.size());
    TestBuffer dbias(shape.channels), expected_dbias(shape.channels);
    kernels().depthwise_convolution_backward_weights(shape, x.data(), dy.data(), dweights.data(),
                                                     dbias.data());
    reference().depthwise_convolution_backward_weights(shape, x.data(), dy.data(), expected.data(),
                                                       expected_dbias.data());
    ExpectClose(dweights, expected, "dweights");
    ExpectClose(dbias, expected_dbias, "dbias");
    for (int64_t i = 0; i < shape.weights_elements(); ++i) {
      if (i % shape.padded_channels() >= shape.channels) ASSERT_EQ(dweights[i], 0) << i;
      if (shape.samples == 0) ASSERT_EQ(dweights[i], 0) << i;
    }
    TestBuffer again(dweights.size());
    kernels().depthwise_convolution_backward_weights(shape, x.data(), dy.data(), again.data(),
                                                     nullptr);
    ExpectTheSameBits(again.data(), dweights.data(), again.size() * sizeof(float),
                      "dweights without bias");
  });
}

// Values of one sign, whose sums grow over tens of thousands of pixels.
TEST_P(DepthwiseConvolutionContractTest, IsAccurateForLongSums) {
  for (const int64_t stride : {1, 2}) {
    const DepthwiseConvolutionShape shape = {12, 56, 56, 16, 3, stride, 1};
    Activations x(shape.type, Inputs(shape), random_), dy(shape.type, Outputs(shape), random_);
    for (int64_t i = 0; i < x.size(); ++i) x.Set(i, std::abs(x[i]));
    for (int64_t i = 0; i < dy.size(); ++i) dy.Set(i, std::abs(dy[i]));
    TestBuffer dweights(shape.weights_elements()), expected(dweights.size());
    TestBuffer dbias(shape.channels), expected_dbias(shape.channels);
    kernels().depthwise_convolution_backward_weights(shape, x.data(), dy.data(), dweights.data(),
                                                     dbias.data());
    reference().depthwise_convolution_backward_weights(shape, x.data(), dy.data(), expected.data(),
                                                       expected_dbias.data());
    ExpectClose(dweights, expected, "dweights", 2e-6);
    ExpectClose(dbias, expected_dbias, "dbias", 2e-6);
  }
}

// A NaN in the input reaches the windows that contain it, through every activation, and no others.
TEST_P(DepthwiseConvolutionContractTest, PropagatesNanOnlyToItsWindows) {
  ForEachShape([&](DepthwiseConvolutionShape shape) {
    if (shape.samples == 0 || Inputs(shape) > 20000) return;
    shape.samples = 3;
    Activations x(shape.type, Inputs(shape), random_);
    // One pixel of the middle sample.
    const int64_t pixel = Draw(0, shape.height * shape.width - 1);
    for (int64_t c = 0; c < shape.channels; ++c) {
      x.Set(shape.input_elements() + pixel * shape.channels + c, kNan);
    }
    const TestBuffer weights = Weights(shape);
    for (const Activation activation : kActivations) {
      const Activations y(shape.type, Outputs(shape)), expected(shape.type, Outputs(shape));
      const Epilogue epilogue = {.activation = activation};
      kernels().depthwise_convolution_forward(shape, x.data(), weights.data(), epilogue, y.data());
      reference().depthwise_convolution_forward(shape, x.data(), weights.data(), epilogue,
                                                expected.data());
      ASSERT_EQ(WhereNan(y), WhereNan(expected));
    }
    // The same for dx.
    Activations dy(shape.type, Outputs(shape), random_);
    const int64_t out_pixel = Draw(0, shape.out_height() * shape.out_width() - 1);
    for (int64_t c = 0; c < shape.channels; ++c) {
      dy.Set(shape.output_elements() + out_pixel * shape.channels + c, kNan);
    }
    const Activations dx(shape.type, Inputs(shape)), expected(shape.type, Inputs(shape));
    kernels().depthwise_convolution_backward_data(shape, dy.data(), weights.data(), dx.data());
    reference().depthwise_convolution_backward_data(shape, dy.data(), weights.data(),
                                                    expected.data());
    ASSERT_EQ(WhereNan(dx), WhereNan(expected));
  });
}

INSTANTIATE_TEST_SUITE_P(KernelSets, DepthwiseConvolutionContractTest, EveryKernelSet(),
                         KernelSetName);

struct LayerCase {
  const char* name;
  ConvolutionShape shape;
};
void PrintTo(const LayerCase& value, std::ostream* os) { *os << value.name; }

// The Convolution, also with the reference's kernels: its own code is the same for all tables.
class DepthwiseLayerTest : public testing::TestWithParam<LayerCase> {
 protected:
  void ExpectTheSame(const ConvolutionOptions& options, const KernelTable& kernels) {
    const ConvolutionShape& shape = GetParam().shape;
    auto made = cpu::MakeDepthwiseConvolution(shape, options, kernels);
    ASSERT_TRUE(made.ok()) << made.status();
    const std::unique_ptr<Convolution> convolution = *std::move(made);
    const auto reference = reference::MakeConvolution(shape, options);
    const TestBuffer workspace(convolution->workspace_bytes() / sizeof(float) + 1);
    const TestBuffer canonical(shape.weights(), random_), shift(shape.out_channels, random_);
    const TestBuffer weights(convolution->weights_elements());
    convolution->ImportWeights(canonical.data(), weights.data());
    for (const int64_t samples : {options.max_samples, int64_t{1}, int64_t{0}}) {
      const int64_t ins = samples * shape.input_elements(),
                    outs = samples * shape.output_elements();
      const Activations x(options.x_type, ins, random_), dy(options.y_type, outs, random_);
      const Activations addend(options.y_type, outs, random_);
      const Activations y(options.y_type, outs), expected_y(options.y_type, outs);
      const Epilogue epilogue = {
          .shift = shift.data(), .addend = addend.data(), .activation = Activation::kRelu6};
      convolution->Forward(samples, x.data(), weights.data(), epilogue, y.data(), workspace.data());
      reference->Forward(samples, x.data(), canonical.data(), epilogue, expected_y.data(), nullptr);
      ExpectClose(y, expected_y, "y");
      const Activations dx(options.x_type, ins), expected_dx(options.x_type, ins);
      convolution->BackwardData(samples, dy.data(), weights.data(), dx.data(), workspace.data());
      reference->BackwardData(samples, dy.data(), canonical.data(), expected_dx.data(), nullptr);
      ExpectClose(dx, expected_dx, "dx");
      const TestBuffer dweights(weights.size()), exported(canonical.size());
      const TestBuffer expected(canonical.size());
      const TestBuffer dbias(shift.size()), expected_dbias(shift.size());
      convolution->BackwardWeights(samples, x.data(), dy.data(), dweights.data(), dbias.data(),
                                   workspace.data());
      convolution->ExportWeights(dweights.data(), exported.data());
      reference->BackwardWeights(samples, x.data(), dy.data(), expected.data(),
                                 expected_dbias.data(), nullptr);
      ExpectClose(exported, expected, "dweights");
      ExpectClose(dbias, expected_dbias, "dbias");
    }
  }

  std::mt19937 random_{5};
};

TEST_P(DepthwiseLayerTest, MatchesTheReferenceForAllTypesAndThreads) {
  const DataType types[] = {DataType::kFloat32, DataType::kBfloat16, DataType::kFloat16};
  for (const KernelTable* kernels : {&ReferenceKernels(), &CpuKernels()}) {
    for (const DataType x_type : types) {
      for (const DataType y_type : types) {
        for (const DataType compute_type : types) {
          for (const int threads : {1, 3}) {
            SCOPED_TRACE(testing::Message()
                         << kernels->name << " x " << NameOf(x_type) << " y " << NameOf(y_type)
                         << " compute " << NameOf(compute_type) << " threads " << threads);
            ExpectTheSame({.max_samples = 4,
                           .threads = threads,
                           .x_type = x_type,
                           .y_type = y_type,
                           .compute_type = compute_type},
                          *kernels);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layers, DepthwiseLayerTest,
                         testing::Values(LayerCase{"same", {7, 6, 20, 20, 3, 1, 1, 20}},
                                         LayerCase{"strided", {7, 6, 32, 32, 3, 2, 1, 32}},
                                         LayerCase{"five", {5, 6, 19, 19, 5, 1, 2, 19}}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(MakeDepthwiseConvolutionTest, RejectsOtherLayers) {
  for (const ConvolutionShape& shape : {ConvolutionShape{4, 4, 8, 8, 3, 1, 1, 1},
                                        {4, 4, 8, 16, 3, 1, 1, 8},
                                        {1, 1, 8, 8, 3, 1, 0, 8}}) {
    EXPECT_EQ(cpu::MakeDepthwiseConvolution(shape, {}, CpuKernels()).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace muster::kernels
