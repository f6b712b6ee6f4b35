// Compares the convolutions of CPUs and GPUs with reference::MakeConvolution, and the reference
// with its definition and finite differences.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/contract/convolution_set.h"
#include "kernels/contract/kernel_contract.h"
#include "kernels/contract/test_buffer.h"
#include "kernels/convolution.h"
#include "kernels/cpu/convolution/amx/engine.h"
#include "kernels/cpu/convolution/amx/support.h"
#include "kernels/cpu/convolution/convolution.h"
#include "kernels/half.h"

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
      {"first_not_direct", {9, 9, 3, 20, 3, 1, 1}, false},
      {"middle", {14, 14, 32, 64, 3, 1, 1}},
      {"odd_channels", {7, 5, 13, 19, 3, 1, 1}},
      {"strided", {15, 14, 16, 24, 3, 2, 1}},
      {"pointwise", {6, 6, 24, 40, 1, 1, 0}},
      {"five", {12, 12, 6, 16, 5, 1, 2}},
      {"no_padding", {9, 8, 17, 16, 3, 1, 0}},
      {"much_padding", {4, 5, 3, 17, 2, 1, 2}},
      {"stem", {33, 31, 3, 64, 7, 2, 3}, false},
      {"stem_even", {32, 32, 3, 16, 7, 2, 3}, false},
      {"stem_grey", {29, 28, 1, 64, 7, 2, 3}, false},
      {"stem_grey_with_data_gradient", {13, 15, 1, 32, 7, 2, 3}},
      {"stem_three", {17, 16, 3, 32, 3, 2, 1}, false},
      {"shortcut", {7, 7, 64, 128, 1, 2, 0}},
      {"shortcut_odd", {9, 6, 17, 100, 1, 2, 0}},
      {"one_pixel", {1, 1, 32, 48, 3, 1, 1}},
      {"one_channel", {6, 5, 1, 1, 3, 1, 1}},
      {"two_groups", {7, 6, 32, 48, 3, 1, 1, 2}},
      {"two_groups_odd", {5, 9, 6, 10, 3, 2, 1, 2}},
      {"two_groups_pointwise", {5, 5, 34, 18, 1, 1, 0, 2}},
      {"thirty_two_groups", {6, 7, 128, 128, 3, 1, 1, 32}},
      {"two_outputs_per_channel", {7, 5, 16, 32, 3, 1, 1, 16}},
      {"linear_groups", {1, 1, 32, 64, 1, 1, 0, 4}},
      {"depthwise", {14, 14, 32, 32, 3, 1, 1, 32}},
      {"depthwise_strided", {15, 14, 96, 96, 3, 2, 1, 96}},
      {"depthwise_odd", {9, 7, 17, 17, 3, 1, 1, 17}},
      {"depthwise_odd_strided", {7, 9, 100, 100, 3, 2, 1, 100}},
      {"depthwise_colour", {8, 5, 3, 3, 3, 1, 1, 3}},
      {"depthwise_first", {8, 6, 3, 3, 3, 2, 1, 3}, false},
      {"depthwise_five", {8, 9, 24, 24, 5, 1, 2, 24}},
      {"depthwise_two_pixels", {2, 2, 384, 384, 3, 1, 1, 384}},
      {"depthwise_two_pixels_strided", {2, 1, 37, 37, 3, 2, 1, 37}},
      {"depthwise_one_pixel", {1, 1, 160, 160, 3, 1, 1, 160}},
      {"depthwise_scale", {1, 1, 40, 40, 1, 1, 0, 40}},
      {"linear", {1, 1, 3136, 40, 1, 1, 0}},
      {"linear_odd", {1, 1, 37, 10, 1, 1, 0}},
  };
}

std::string Name(const ConvolutionShape& shape) {
  return testing::PrintToString(std::vector<int64_t>{shape.height, shape.width, shape.in_channels,
                                                     shape.out_channels, shape.kernel, shape.stride,
                                                     shape.padding, shape.groups});
}

// Components of an epilogue in addition to a bias.
struct Ends {
  bool scale = false;
  bool addend = false;
  Activation activation = Activation::kNone;
};

struct Precision {
  DataType x = DataType::kFloat32;
  DataType y = DataType::kFloat32;
  DataType compute = DataType::kFloat32;
};
constexpr DataType kF32 = DataType::kFloat32;
constexpr DataType kBf16 = DataType::kBfloat16;
constexpr DataType kF16 = DataType::kFloat16;
constexpr Precision kLowPrecisions[] = {
    // A network's first layer, its last one, and those between.
    {kF32, kBf16, kBf16},
    {kBf16, kF32, kBf16},
    {kBf16, kBf16, kBf16},
    {kF16, kF16, kF16},
    // Float32 activations.
    {kF32, kF32, kBf16},
    {kF32, kF32, kF16},
};

// A sum that is close to a tie may be rounded to an adjacent value.
double Tolerance(DataType stored) {
  switch (stored) {
    case DataType::kBfloat16:
      return 0x1p-7;
    case DataType::kFloat16:
      return 0x1p-10;
    default:  // kFloat32
      return 1e-5;
  }
}

// `values` as elements of `type`. Unused memory is NaN.
TestBuffer Stored(DataType type, const TestBuffer& values) {
  TestBuffer stored((values.size() * SizeOf(type) + sizeof(float) - 1) / sizeof(float));
  for (size_t i = 0; i < values.size(); ++i) {
    StoreElement(type, double{values[i]}, stored.data(), static_cast<int64_t>(i));
  }
  return stored;
}

TestBuffer Loaded(DataType type, const TestBuffer& stored, size_t count) {
  TestBuffer values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = LoadElement(type, stored.data(), static_cast<int64_t>(i));
  }
  return values;
}

// Creates a convolution with the best engine for kSet, if the CPU supports it.
template <InstructionSet kSet>
absl::StatusOr<std::unique_ptr<Convolution>> MakeOnCpu(const ConvolutionShape& shape,
                                                       const ConvolutionOptions& options) {
  return cpu::MakeConvolution(shape, options, std::min(kSet, DetectInstructionSet()));
}
constexpr ConvolutionSetUse kCpuUse = {MakeOnCpu<InstructionSet::kAvx512Bf16>, false};

// A layer implemented by the code under test and by the reference, with the same weights.
class Pair {
 public:
  Pair(const ConvolutionShape& shape, const ConvolutionOptions& options, std::mt19937& random,
       const Ends& ends = {}, const ConvolutionSetUse& use = kCpuUse)
      : shape_(shape),
        options_(options),
        ends_(ends),
        rounds_outputs_(use.rounds_outputs && options.compute_type != DataType::kFloat32),
        random_(random),
        reference_(reference::MakeConvolution(shape, options)),
        canonical_(shape.weights(), random),
        bias_(shape.out_channels, random) {
    auto made = use.make(shape, options);
    EXPECT_TRUE(made.ok()) << made.status();
    if (made.ok()) convolution_ = *std::move(made);
  }

  // Compares all directions, or only Forward: the others have no epilogue.
  void ExpectTheSame(const std::vector<int64_t>& batch_sizes, bool backward = true) {
    ASSERT_NE(convolution_, nullptr);
    SCOPED_TRACE(Name(shape_) + " " + convolution_->description());
    // Aligned to exactly 64 bytes.
    constexpr int64_t kFloats = 64 / sizeof(float);
    TestBuffer whole_workspace(convolution_->workspace_bytes() / sizeof(float) + 1 + kFloats);
    const bool aligned_to_more = reinterpret_cast<uintptr_t>(whole_workspace.data()) % 128 == 0;
    float* const workspace = whole_workspace.data() + (aligned_to_more ? kFloats : 0);
    TestBuffer weights(convolution_->weights_elements());
    convolution_->ImportWeights(canonical_.data(), weights.data());
    for (const int64_t samples : batch_sizes) {
      const TestBuffer x = Random(options_.x_type, samples * shape_.input_elements());
      const TestBuffer dy = Random(options_.y_type, samples * shape_.output_elements());
      ExpectTheSameForward(samples, x, weights, workspace);
      if (!backward) continue;
      if (options_.data_gradient) ExpectTheSameDataGradient(samples, dy, weights, workspace);
      ExpectTheSameParameterGradients(samples, x, dy, workspace);
    }
  }

 private:
  double ToleranceOf(DataType stored) const {
    if (!rounds_outputs_) return Tolerance(stored);
    return std::max(Tolerance(stored), Tolerance(options_.compute_type));
  }

  TestBuffer Random(DataType type, int64_t count) {
    return Stored(type, TestBuffer(count, random_));
  }

  void ExpectTheSameForward(int64_t samples, const TestBuffer& x, const TestBuffer& weights,
                            void* workspace) {
    const int64_t count = samples * shape_.output_elements();
    const TestBuffer addend = Random(options_.y_type, count), scale(shape_.out_channels, random_);
    const Epilogue epilogue = {.scale = ends_.scale ? scale.data() : nullptr,
                               .shift = options_.bias ? bias_.data() : nullptr,
                               .addend = ends_.addend ? addend.data() : nullptr,
                               .activation = ends_.activation};
    TestBuffer y(addend.size()), expected(addend.size());
    convolution_->Forward(samples, x.data(), weights.data(), epilogue, y.data(), workspace);
    reference_->Forward(samples, x.data(), canonical_.data(), epilogue, expected.data(), nullptr);
    ExpectClose(Loaded(options_.y_type, y, count), Loaded(options_.y_type, expected, count), "y",
                ToleranceOf(options_.y_type));
  }

  void ExpectTheSameDataGradient(int64_t samples, const TestBuffer& dy, const TestBuffer& weights,
                                 void* workspace) {
    const ConvolutionShape written = options_.compact_data_gradient ? shape_.Compact() : shape_;
    const int64_t count = samples * written.input_elements();
    TestBuffer dx = Stored(options_.x_type, TestBuffer(count)), expected(dx.size());
    convolution_->BackwardData(samples, dy.data(), weights.data(), dx.data(), workspace);
    reference_->BackwardData(samples, dy.data(), canonical_.data(), expected.data(), nullptr);
    ExpectClose(Loaded(options_.x_type, dx, count), Loaded(options_.x_type, expected, count), "dx",
                ToleranceOf(options_.x_type));
  }

  void ExpectTheSameParameterGradients(int64_t samples, const TestBuffer& x, const TestBuffer& dy,
                                       void* workspace) {
    TestBuffer dweights(convolution_->weights_elements()), canonical(canonical_.size());
    TestBuffer expected(canonical_.size());
    TestBuffer dbias(bias_.size()), expected_dbias(bias_.size());
    const auto if_bias = [&](const TestBuffer& buffer) {
      return options_.bias ? buffer.data() : nullptr;
    };
    convolution_->BackwardWeights(samples, x.data(), dy.data(), dweights.data(), if_bias(dbias),
                                  workspace);
    convolution_->ExportWeights(dweights.data(), canonical.data());
    reference_->BackwardWeights(samples, x.data(), dy.data(), expected.data(),
                                if_bias(expected_dbias), nullptr);
    ExpectClose(canonical, expected, "dweights", ToleranceOf(DataType::kFloat32));
    if (options_.bias) ExpectClose(dbias, expected_dbias, "dbias");
  }

  const ConvolutionShape shape_;
  const ConvolutionOptions options_;
  const Ends ends_;
  const bool rounds_outputs_;
  std::mt19937& random_;
  std::unique_ptr<Convolution> reference_;
  std::unique_ptr<Convolution> convolution_;
  TestBuffer canonical_;
  TestBuffer bias_;
};

class ConvolutionContractTest : public testing::TestWithParam<std::tuple<ConvolutionSet, Case>> {
 protected:
  static constexpr int64_t kMaxSamples = 5;
  void SetUp() override {
    const absl::StatusOr<ConvolutionSetUse> use = UseConvolutionSet(std::get<0>(GetParam()));
    if (!use.ok()) GTEST_SKIP() << use.status().message();
    use_ = *use;
  }
  const ConvolutionShape& shape() const { return std::get<1>(GetParam()).shape; }
  std::unique_ptr<Convolution> Make(bool bias = true) const {
    auto made = use_.make(shape(), Options(bias));
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? *std::move(made) : nullptr;
  }
  ConvolutionOptions Options(bool bias = true) const {
    return {.max_samples = kMaxSamples,
            .bias = bias,
            .data_gradient = std::get<1>(GetParam()).data_gradient};
  }
  Pair MakePair(const ConvolutionOptions& options, const Ends& ends = {}) {
    return Pair(shape(), options, random_, ends, use_);
  }
  std::mt19937 random_{7};

 private:
  ConvolutionSetUse use_ = kCpuUse;
};

// Only for the CPU and the reference.
class ConvolutionReferenceTest : public ConvolutionContractTest {
 protected:
  void ExpectBfloat16ToAgree(ConvolutionMaker* make) {
    if (shape().groups > 1) GTEST_SKIP() << "not for groups";
    const ConvolutionSetUse use = {make, false};
    for (const Precision& precision : kLowPrecisions) {
      if (precision.compute != kBf16) continue;
      ConvolutionOptions options = Options();
      options.x_type = precision.x;
      options.y_type = precision.y;
      options.compute_type = precision.compute;
      SCOPED_TRACE(testing::Message() << NameOf(precision.x) << " to " << NameOf(precision.y));
      Pair(shape(), options, random_, {.activation = Activation::kRelu}, use).ExpectTheSame({2, 1});
      const Ends ends = {.scale = true, .addend = true, .activation = Activation::kRelu6};
      Pair(shape(), options, random_, ends, use).ExpectTheSame({2}, /*backward=*/false);
      options.bias = false;
      Pair(shape(), options, random_, {}, use).ExpectTheSame({1});
    }
  }
};

TEST_P(ConvolutionContractTest, MatchesTheReferenceForAnyNumberOfSamples) {
  // The largest number of samples, then fewer, then the largest again: state of one number must not
  // affect another.
  MakePair(Options()).ExpectTheSame({kMaxSamples, 1, 3, kMaxSamples});
  for (const Ends& ends : {Ends{.activation = Activation::kRelu},
                           Ends{.scale = true, .activation = Activation::kRelu6},
                           Ends{.scale = true, .addend = true, .activation = Activation::kRelu}}) {
    MakePair(Options(), ends).ExpectTheSame({2}, /*backward=*/false);
  }
  MakePair(Options(/*bias=*/false)).ExpectTheSame({2});
}

// The gradient of only those pixels that the convolution reads. CPUs do not compute it.
TEST_P(ConvolutionContractTest, CompactDataGradient) {
  const ConvolutionShape layer = shape();
  const bool skips = layer.kernel == 1 && layer.padding == 0 && layer.stride > 1;
  if (!skips || layer.groups > 1 || std::get<0>(GetParam()) == ConvolutionSet::kCpu) return;
  ConvolutionOptions options = Options();
  options.compact_data_gradient = true;
  MakePair(options).ExpectTheSame({kMaxSamples, 2});
  for (const Precision& precision : kLowPrecisions) {
    options.x_type = precision.x;
    options.y_type = precision.y;
    options.compute_type = precision.compute;
    MakePair(options).ExpectTheSame({kMaxSamples});
  }
}

// All other pixels of the whole gradient are zero.
TEST(ReferenceConvolutionTest, CompactDataGradientIsThatOfThePixelsRead) {
  std::mt19937 random(5);
  const ConvolutionShape shape{9, 6, 5, 7, 1, 2, 0};
  const ConvolutionShape compact = shape.Compact();
  const TestBuffer dy(2 * shape.output_elements(), random), weights(shape.weights(), random);
  TestBuffer whole_dx(2 * shape.input_elements()), dx(2 * compact.input_elements());
  const ConvolutionOptions options{.max_samples = 2};
  ConvolutionOptions compact_options = options;
  compact_options.compact_data_gradient = true;
  reference::MakeConvolution(shape, options)
      ->BackwardData(2, dy.data(), weights.data(), whole_dx.data(), nullptr);
  reference::MakeConvolution(shape, compact_options)
      ->BackwardData(2, dy.data(), weights.data(), dx.data(), nullptr);
  size_t next = 0;
  for (size_t i = 0; i < whole_dx.size(); ++i) {
    const auto pixel = static_cast<int64_t>(i) / shape.in_channels;
    const bool read = pixel % shape.width % 2 == 0 && pixel / shape.width % shape.height % 2 == 0;
    EXPECT_EQ(whole_dx[i], read ? dx[next++] : 0.0f);
  }
  EXPECT_EQ(next, dx.size());
}

TEST_P(ConvolutionContractTest, ZeroSamplesGiveZeroGradients) {
  const auto convolution = Make();
  ASSERT_NE(convolution, nullptr);
  TestBuffer workspace(convolution->workspace_bytes() / sizeof(float) + 1);
  TestBuffer weights(convolution->weights_elements());
  TestBuffer dweights(weights.size());
  TestBuffer dbias(shape().out_channels);
  convolution->Forward(0, nullptr, weights.data(), {.shift = dbias.data()}, nullptr,
                       workspace.data());
  convolution->BackwardWeights(0, nullptr, nullptr, dweights.data(), dbias.data(),
                               workspace.data());
  for (size_t i = 0; i < dweights.size(); ++i) ASSERT_EQ(dweights[i], 0.0f);
  for (size_t i = 0; i < dbias.size(); ++i) ASSERT_EQ(dbias[i], 0.0f);
  const auto without_bias = Make(/*bias=*/false);
  ASSERT_NE(without_bias, nullptr);
  TestBuffer other(without_bias->weights_elements());
  TestBuffer other_workspace(without_bias->workspace_bytes() / sizeof(float) + 1);
  without_bias->BackwardWeights(0, nullptr, nullptr, other.data(), nullptr, other_workspace.data());
  for (size_t i = 0; i < other.size(); ++i) ASSERT_EQ(other[i], 0.0f);
}

TEST_P(ConvolutionContractTest, MatchesTheReferenceInEveryPrecision) {
  for (const Precision& precision : kLowPrecisions) {
    SCOPED_TRACE(testing::Message() << NameOf(precision.x) << " to " << NameOf(precision.compute)
                                    << " to " << NameOf(precision.y));
    ConvolutionOptions options = Options();
    options.x_type = precision.x;
    options.y_type = precision.y;
    options.compute_type = precision.compute;
    MakePair(options).ExpectTheSame({2});
    for (const Ends& ends :
         {Ends{.activation = Activation::kRelu},
          Ends{.scale = true, .activation = Activation::kRelu6},
          Ends{.scale = true, .addend = true, .activation = Activation::kRelu}}) {
      MakePair(options, ends).ExpectTheSame({1}, /*backward=*/false);
    }
    options.bias = false;
    MakePair(options, {.addend = true}).ExpectTheSame({1});
  }
}

// Even if MakeConvolution would select another engine.
TEST_P(ConvolutionReferenceTest, AmxMatchesTheReferenceInBfloat16) {
  if (!cpu::HasAmx()) GTEST_SKIP() << "this CPU has no AMX";
  ExpectBfloat16ToAgree([](const ConvolutionShape& shape, const ConvolutionOptions& options)
                            -> absl::StatusOr<std::unique_ptr<Convolution>> {
    return cpu::LowerConvolution(shape, options, CpuKernels(), cpu::MakeAmxEngine(shape, options));
  });
}

// With smaller instruction sets than the CPU's, other engines are selected.
TEST_P(ConvolutionReferenceTest, EveryInstructionSetMatchesTheReference) {
  for (ConvolutionMaker* const make :
       {MakeOnCpu<InstructionSet::kPlain>, MakeOnCpu<InstructionSet::kAvx2>,
        MakeOnCpu<InstructionSet::kAvx512>}) {
    const ConvolutionSetUse use = {make, false};
    Pair(shape(), Options(), random_, {.activation = Activation::kRelu}, use).ExpectTheSame({2, 1});
    const Ends ends = {.scale = true, .addend = true, .activation = Activation::kRelu};
    Pair(shape(), Options(), random_, ends, use).ExpectTheSame({2}, /*backward=*/false);
    if (shape().groups == 1) ExpectBfloat16ToAgree(make);
  }
}

// Through the ReLU, too, but not to other samples.
TEST_P(ConvolutionContractTest, PropagatesNan) {
  const auto convolution = Make();
  ASSERT_NE(convolution, nullptr);
  TestBuffer workspace(convolution->workspace_bytes() / sizeof(float) + 1);
  TestBuffer canonical(shape().weights(), random_), bias(shape().out_channels, random_);
  TestBuffer weights(convolution->weights_elements());
  convolution->ImportWeights(canonical.data(), weights.data());
  TestBuffer x(2 * shape().input_elements(), random_), y(2 * shape().output_elements());
  std::fill_n(x.data(), shape().input_elements(), std::numeric_limits<float>::quiet_NaN());
  convolution->Forward(2, x.data(), weights.data(),
                       {.shift = bias.data(), .activation = Activation::kRelu}, y.data(),
                       workspace.data());
  for (int64_t i = 0; i < shape().output_elements(); ++i) {
    // Windows that lie entirely in the padding do not depend on the image.
    if (shape().padding < shape().kernel) ASSERT_TRUE(std::isnan(y[i])) << i;
    ASSERT_FALSE(std::isnan(y[shape().output_elements() + i])) << i;
  }
}

TEST_P(ConvolutionContractTest, ExportReturnsImportedWeightsAndPaddingIsZero) {
  const auto convolution = Make();
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

// By definition: each output sums over its group's input channels and the kernel.
Doubles InDouble(const ConvolutionShape& shape, const Doubles& x, const Doubles& weights,
                 const Doubles& bias) {
  const int64_t ins = shape.in_channels / shape.groups;
  const int64_t outs = shape.out_channels / shape.groups;
  const int64_t samples = static_cast<int64_t>(x.size()) / shape.input_elements();
  Doubles y;
  for (int64_t sample = 0; sample < samples; ++sample) {
    for (int64_t oh = 0; oh < shape.out_height(); ++oh) {
      for (int64_t ow = 0; ow < shape.out_width(); ++ow) {
        for (int64_t o = 0; o < shape.out_channels; ++o) {
          double sum = bias[o];
          for (int64_t i = 0; i < ins; ++i) {
            for (int64_t r = 0; r < shape.kernel; ++r) {
              for (int64_t s = 0; s < shape.kernel; ++s) {
                const int64_t h = oh * shape.stride + r - shape.padding;
                const int64_t w = ow * shape.stride + s - shape.padding;
                if (h < 0 || w < 0 || h >= shape.height || w >= shape.width) continue;
                const int64_t channel = o / outs * ins + i;
                sum += x[((sample * shape.height + h) * shape.width + w) * shape.in_channels +
                         channel] *
                       weights[((o * ins + i) * shape.kernel + r) * shape.kernel + s];
              }
            }
          }
          y.push_back(sum);
        }
      }
    }
  }
  return y;
}

TEST_P(ConvolutionReferenceTest, ReferenceGradientsMatchFiniteDifferences) {
  const auto reference = reference::MakeConvolution(shape(), Options());
  constexpr int64_t kSamples = 2;
  TestBuffer x(kSamples * shape().input_elements(), random_), weights(shape().weights(), random_);
  TestBuffer bias(shape().out_channels, random_);
  TestBuffer y(kSamples * shape().output_elements()), dy(y.size(), random_);
  TestBuffer dx(x.size()), dweights(weights.size()), dbias(bias.size());
  reference->Forward(kSamples, x.data(), weights.data(), {.shift = bias.data()}, y.data(), nullptr);
  reference->BackwardData(kSamples, dy.data(), weights.data(), dx.data(), nullptr);
  reference->BackwardWeights(kSamples, x.data(), dy.data(), dweights.data(), dbias.data(), nullptr);

  const Doubles at_x = ToDoubles(x), at_weights = ToDoubles(weights), at_bias = ToDoubles(bias);
  const Doubles expected = InDouble(shape(), at_x, at_weights, at_bias);
  ASSERT_EQ(expected.size(), y.size());
  for (size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(y[i], expected[i], 1e-4);
  const auto of_x = [&](const Doubles& moved) {
    return InDouble(shape(), moved, at_weights, at_bias);
  };
  const auto of_weights = [&](const Doubles& moved) {
    return InDouble(shape(), at_x, moved, at_bias);
  };
  const auto of_bias = [&](const Doubles& moved) {
    return InDouble(shape(), at_x, at_weights, moved);
  };
  ExpectGradient(of_x, x, dy, dx, random_, "dx");
  ExpectGradient(of_weights, weights, dy, dweights, random_, "dweights");
  ExpectGradient(of_bias, bias, dy, dbias, random_, "dbias");
}

TEST_P(ConvolutionContractTest, IsDeterministic) {
  const auto convolution = Make();
  ASSERT_NE(convolution, nullptr);
  TestBuffer workspace(convolution->workspace_bytes() / sizeof(float) + 1);
  TestBuffer x(kMaxSamples * shape().input_elements());
  TestBuffer dy(kMaxSamples * shape().output_elements());
  x.Randomise(random_);
  dy.Randomise(random_);
  TestBuffer first(convolution->weights_elements());
  TestBuffer second(first.size());
  TestBuffer dbias(shape().out_channels);
  convolution->BackwardWeights(kMaxSamples, x.data(), dy.data(), first.data(), dbias.data(),
                               workspace.data());
  convolution->BackwardWeights(kMaxSamples, x.data(), dy.data(), second.data(), dbias.data(),
                               workspace.data());
  for (size_t i = 0; i < first.size(); ++i) ASSERT_EQ(first[i], second[i]);
}

const auto kEverySet = testing::ValuesIn(EveryConvolutionSet());
constexpr auto kCaseName = [](const auto& info) {
  return std::get<1>(info.param).name + ("_on_" + NameOf(std::get<0>(info.param)));
};
INSTANTIATE_TEST_SUITE_P(Shapes, ConvolutionContractTest,
                         testing::Combine(kEverySet, testing::ValuesIn(Cases())), kCaseName);
INSTANTIATE_TEST_SUITE_P(Shapes, ConvolutionReferenceTest,
                         testing::Combine(testing::Values(ConvolutionSet::kCpu),
                                          testing::ValuesIn(Cases())),
                         kCaseName);

class ConvolutionTest : public testing::TestWithParam<ConvolutionSet> {
 protected:
  void SetUp() override {
    const absl::StatusOr<ConvolutionSetUse> use = UseConvolutionSet(GetParam());
    if (!use.ok()) GTEST_SKIP() << use.status().message();
    use_ = *use;
  }
  ConvolutionSetUse use_ = kCpuUse;
};

TEST_P(ConvolutionTest, RejectsInvalidShapes) {
  const ConvolutionShape shape{2, 2, 8, 8, 5, 1, 0};
  EXPECT_EQ(use_.make(shape, {}).status().code(), absl::StatusCode::kInvalidArgument);
  const ConvolutionShape uneven_groups{.in_channels = 6, .out_channels = 8, .groups = 4};
  EXPECT_EQ(use_.make(uneven_groups, {}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(ConvolutionTest, RejectsUnsupportedTypes) {
  const ConvolutionShape dense{.in_channels = 8, .out_channels = 8};
  const ConvolutionShape depthwise{4, 4, 8, 8, 3, 1, 1, 8};
  const DataType type = DataType::kInt32;
  for (const ConvolutionOptions& options :
       {ConvolutionOptions{.x_type = type}, ConvolutionOptions{.y_type = type},
        ConvolutionOptions{.compute_type = type}}) {
    for (const ConvolutionShape& shape : {dense, depthwise}) {
      EXPECT_EQ(use_.make(shape, options).status().code(), absl::StatusCode::kInvalidArgument);
    }
  }
}

TEST_P(ConvolutionTest, RandomShapesMatchTheReference) {
  std::mt19937 random(17);
  const auto draw = [&](int64_t first, int64_t last) {
    return std::uniform_int_distribution<int64_t>(first, last)(random);
  };
  // Float32 as often as the other types together.
  const DataType types[] = {kF32, kF32, kBf16, kF16};
  const auto any_type = [&] { return types[draw(0, 3)]; };
  for (int i = 0; i < 80; ++i) {
    ConvolutionShape shape{.kernel = draw(1, 5), .stride = draw(1, 3)};
    shape.padding = draw(0, shape.kernel / 2);
    const int64_t smallest = std::max<int64_t>(1, shape.kernel - 2 * shape.padding);
    shape.height = draw(smallest, smallest + 9);
    shape.width = draw(smallest, smallest + 9);
    shape.in_channels = draw(1, 40);
    shape.out_channels = draw(1, 40);
    switch (draw(0, 2)) {
      case 0:
        break;
      case 1:
        shape.groups = draw(2, 4);
        shape.in_channels *= shape.groups;
        shape.out_channels *= shape.groups;
        break;
      default:
        shape.groups = shape.in_channels;
        shape.out_channels = shape.in_channels * draw(1, 2);
    }
    const ConvolutionOptions options{.max_samples = draw(1, 4),
                                     .bias = draw(0, 1) == 1,
                                     .data_gradient = draw(0, 3) > 0,
                                     .threads = i % 10 == 0 ? 2 : 1,
                                     .x_type = any_type(),
                                     .y_type = any_type(),
                                     .compute_type = any_type()};
    const Ends ends{.scale = draw(0, 1) == 1,
                    .addend = draw(0, 1) == 1,
                    .activation = static_cast<Activation>(draw(0, 2))};
    Pair pair(shape, options, random, ends, use_);
    pair.ExpectTheSame({options.max_samples, 1});
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, ConvolutionTest, kEverySet,
                         [](const auto& info) { return NameOf(info.param); });

}  // namespace
}  // namespace muster::kernels
