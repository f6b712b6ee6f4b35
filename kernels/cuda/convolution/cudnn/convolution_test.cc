// Tests which engines convolutions use, and their errors, with a fake cuDNN.
// convolution_contract_test tests their results.
#include "kernels/cuda/convolution/cudnn/convolution.h"

#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/contract/test_buffer.h"
#include "kernels/cuda/testing/on_host_device.h"
#include "kernels/half.h"

namespace muster::kernels {
namespace {

using testing::HasSubstr;

constexpr DataType kF32 = DataType::kFloat32;
constexpr DataType kBf16 = DataType::kBfloat16;
constexpr ConvolutionShape kShape{6, 5, 8, 16, 3, 1, 1};

class CudnnConvolutionTest : public testing::Test {
 protected:
  CudnnConvolutionTest() { GetFakeCudnn() = {.workspace_bytes = 192}; }

  static ConvolutionOptions Options(DataType compute, DataType x = kBf16, DataType y = kBf16) {
    return {.max_samples = 3, .x_type = x, .y_type = y, .compute_type = compute};
  }
  static std::string DescriptionOf(Device& device, const ConvolutionOptions& options) {
    const auto made = device.MakeConvolution(kShape, options);
    return made.ok() ? (*made)->description() : made.status().ToString();
  }

  // A convolution whose inputs are zeros.
  struct Layer {
    Layer(Device& device, const ConvolutionOptions& options)
        : x(options.max_samples * kShape.input_elements()),
          y(options.max_samples * kShape.output_elements()),
          addend(y.size()),
          weights(kShape.weights()),
          shift(kShape.out_channels) {
      auto made = device.MakeConvolution(kShape, options);
      EXPECT_TRUE(made.ok()) << made.status();
      if (!made.ok()) return;
      convolution = *std::move(made);
      workspace = std::make_unique<TestBuffer>(convolution->workspace_bytes() / sizeof(float) + 1);
      for (TestBuffer* buffer : {&x, &addend, &weights, &shift}) {
        std::fill_n(buffer->data(), buffer->size(), 0.0f);
      }
    }
    void Forward(int64_t samples, const Epilogue& epilogue) {
      convolution->Forward(samples, x.data(), weights.data(), epilogue, y.data(),
                           workspace->data());
    }
    std::unique_ptr<Convolution> convolution;
    TestBuffer x, y, addend, weights, shift;
    std::unique_ptr<TestBuffer> workspace;
  };
};

TEST_F(CudnnConvolutionTest, UsesNoEngineOfReducedPrecisionForFloat32) {
  const auto device = MakeCudaOnHostDevice();
  // Of the proposed engines, the first is not deterministic, the second is compiled at run time,
  // and the third is for tensor cores.
  EXPECT_EQ(DescriptionOf(*device, Options(kF32, kF32, kF32)),
            "cudnn (forward engine 30, data 30, weights 30)");
  EXPECT_EQ(DescriptionOf(*device, Options(kBf16)),
            "cudnn (forward engine 20, data 20, weights 20)");
}

TEST_F(CudnnConvolutionTest, UsesTf32AndNondeterministicEnginesOnlyWhereAllowed) {
  const auto forward = [](DataType type, const cuda::Numerics& numerics) {
    ConvolutionOptions options = Options(type, type, type);
    options.training = false;
    return DescriptionOf(*MakeCudaOnHostDevice({.numerics = numerics}), options);
  };
  EXPECT_EQ(forward(kF32, {.tf32 = true}), "cudnn (forward engine 20)");
  EXPECT_EQ(forward(kF32, {.deterministic = false}), "cudnn (forward engine 30)");
  EXPECT_EQ(forward(kF32, {.deterministic = false, .tf32 = true}), "cudnn (forward engine 10)");
  EXPECT_EQ(forward(kBf16, {.tf32 = true}), "cudnn (forward engine 20)");
  EXPECT_EQ(forward(kBf16, {.deterministic = false}), "cudnn (forward engine 10)");
}

TEST_F(CudnnConvolutionTest, StoresPlansOfOtherNumericsApart) {
  const std::string folder = std::filesystem::path(testing::TempDir()) / "numerics";
  std::filesystem::remove_all(folder);
  const auto engine = [&](const cuda::Numerics& numerics) {
    return DescriptionOf(*MakeCudaOnHostDevice({.plan_folder = folder, .numerics = numerics}),
                         Options(kF32, kF32, kF32));
  };
  EXPECT_THAT(engine({.deterministic = false, .tf32 = true}), HasSubstr("forward engine 10"));
  EXPECT_THAT(engine({.tf32 = true}), HasSubstr("forward engine 20"));
  EXPECT_THAT(engine({}), HasSubstr("forward engine 30"));
}

TEST_F(CudnnConvolutionTest, DescribesTheDirectionsThatAreNeeded) {
  const auto device = MakeCudaOnHostDevice();
  ConvolutionOptions options = Options(kBf16);
  options.data_gradient = false;
  EXPECT_EQ(DescriptionOf(*device, options), "cudnn (forward engine 20, weights 20)");
  options.training = false;
  EXPECT_EQ(DescriptionOf(*device, options), "cudnn (forward engine 20)");
}

TEST_F(CudnnConvolutionTest, MeasuresOnceAndUsesTheFastestEngine) {
  std::map<int, int> measured;
  const auto device = MakeCudaOnHostDevice({.time = [&](int engine) {
    ++measured[engine];
    return engine == kFakeOrdinary ? 60.0f : 70.0f;
  }});
  EXPECT_THAT(DescriptionOf(*device, Options(kBf16)), HasSubstr("forward engine 30"));
  // All eligible engines, in each of three directions: a first run and five timed ones. One run of
  // the first engine warms up the GPU.
  EXPECT_EQ(measured,
            (std::map<int, int>{{kFakeTensorCores, 21}, {kFakeOrdinary, 18}, {kFakePlain, 18}}));
  EXPECT_THAT(DescriptionOf(*device, Options(kBf16)), HasSubstr("forward engine 30"));
  EXPECT_EQ(measured[kFakePlain], 18);
}

TEST_F(CudnnConvolutionTest, UsesPlansStoredByAnEarlierProcess) {
  const std::string folder = std::filesystem::path(testing::TempDir()) / "kept";
  std::filesystem::remove_all(folder);
  const auto prefers = [](FakeCudnnEngine preferred) {
    return [preferred](int engine) { return engine == preferred ? 1.0f : 2.0f; };
  };
  EXPECT_THAT(DescriptionOf(*MakeCudaOnHostDevice({folder, prefers(kFakePlain)}), Options(kBf16)),
              HasSubstr("forward engine 50"));
  GetFakeCudnn().heuristics = 0;
  EXPECT_THAT(
      DescriptionOf(*MakeCudaOnHostDevice({folder, prefers(kFakeTensorCores)}), Options(kBf16)),
      HasSubstr("forward engine 50"));
  EXPECT_EQ(GetFakeCudnn().heuristics, 0);
  // If a stored plan can no longer be built, the engines are measured again and the result is
  // stored.
  GetFakeCudnn().retired_engine = kFakePlain;
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(
        DescriptionOf(*MakeCudaOnHostDevice({folder, prefers(kFakeOrdinary)}), Options(kBf16)),
        HasSubstr("forward engine 30"));
  }
  // Two modes for each of three directions.
  EXPECT_EQ(GetFakeCudnn().heuristics, 2 * 3);
}

TEST_F(CudnnConvolutionTest, SkipsEnginesThatFail) {
  const auto device = MakeCudaOnHostDevice();
  GetFakeCudnn().failing_engine = kFakeTensorCores;
  EXPECT_THAT(DescriptionOf(*device, Options(kBf16)), HasSubstr("forward engine 30"));
  GetFakeCudnn().retired_engine = kFakeOrdinary;
  EXPECT_THAT(DescriptionOf(*MakeCudaOnHostDevice(), Options(kBf16)),
              HasSubstr("forward engine 50"));
}

TEST_F(CudnnConvolutionTest, UsesEnginesCompiledAtRunTimeIfThereIsNoOther) {
  GetFakeCudnn().only_compiled = 1;
  EXPECT_EQ(DescriptionOf(*MakeCudaOnHostDevice(), Options(kBf16)),
            "cudnn (forward engine 40, data 40, weights 40)");
}

TEST_F(CudnnConvolutionTest, LimitsTheWorkspaceOfEngines) {
  const auto bytes = [](const ConvolutionOptions& options) {
    const auto device = MakeCudaOnHostDevice();
    const auto made = device->MakeConvolution(kShape, options);
    return made.ok() ? (*made)->workspace_bytes() : 0;
  };
  const size_t with_some = bytes(Options(kF32, kF32, kF32));
  EXPECT_EQ(with_some, 2 * 256);  // 192 bytes, rounded up, and padding for alignment
  GetFakeCudnn().workspace_bytes = int64_t{1} << 40;
  EXPECT_EQ(bytes(Options(kF32, kF32, kF32)), 0);
  EXPECT_THAT(DescriptionOf(*MakeCudaOnHostDevice(), Options(kBf16)),
              HasSubstr("forward engine 50"));
}

TEST_F(CudnnConvolutionTest, ReportsTheOperationThatHasNoEngine) {
  GetFakeCudnn().retired_engine = kFakePlain;
  GetFakeCudnn().workspace_bytes = int64_t{1} << 40;
  const absl::Status status =
      MakeCudaOnHostDevice()->MakeConvolution(kShape, Options(kBf16)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("forward samples 3 of 6x5x8 to 16 kernel 3 stride 1 padding 1 groups 1 "
                        "bfloat16 to bfloat16"));
}

TEST_F(CudnnConvolutionTest, FusesEpiloguesWithPrecompiledKernels) {
  const auto device = MakeCudaOnHostDevice();
  Layer layer(*device, Options(kBf16));
  const auto fused = [&](const Epilogue& epilogue) {
    GetFakeCudnn().fused_runs = 0;
    layer.Forward(2, epilogue);
    return GetFakeCudnn().fused_runs > 0;
  };
  const float* const shift = layer.shift.data();
  const void* const addend = layer.addend.data();
  EXPECT_TRUE(fused({.shift = shift}));
  EXPECT_TRUE(fused({.shift = shift, .activation = Activation::kRelu}));
  EXPECT_TRUE(fused({.shift = shift, .addend = addend, .activation = Activation::kRelu}));
  EXPECT_FALSE(fused({}));
  EXPECT_FALSE(fused({.addend = addend, .activation = Activation::kRelu}));
  EXPECT_FALSE(fused({.scale = shift, .shift = shift}));
  EXPECT_FALSE(fused({.shift = shift, .activation = Activation::kRelu6}));
  EXPECT_TRUE(device->Synchronize().ok()) << device->Synchronize();
}

TEST_F(CudnnConvolutionTest, AppliesEpiloguesSeparatelyIfNoEngineFusesThem) {
  GetFakeCudnn().no_fusion = 1;
  const auto device = MakeCudaOnHostDevice();
  Layer layer(*device, Options(kF32, kF32, kF32));
  layer.shift[3] = -7;
  layer.shift[4] = 7;
  layer.Forward(1, {.shift = layer.shift.data(), .activation = Activation::kRelu});
  EXPECT_EQ(GetFakeCudnn().fused_runs, 0);
  EXPECT_EQ(layer.y[3], 0);
  EXPECT_EQ(layer.y[4], 7);
  EXPECT_TRUE(device->Synchronize().ok()) << device->Synchronize();
}

TEST_F(CudnnConvolutionTest, BuildsPlanInFirstCallForNumberOfSamples) {
  const auto device = MakeCudaOnHostDevice();
  Layer layer(*device, Options(kBf16));
  GetFakeCudnn().plans = 0;
  layer.Forward(3, {});
  EXPECT_EQ(GetFakeCudnn().plans, 0);
  layer.Forward(2, {});
  const int64_t plans = GetFakeCudnn().plans;
  EXPECT_GT(plans, 0);
  layer.Forward(2, {});
  EXPECT_EQ(GetFakeCudnn().plans, plans);
}

TEST_F(CudnnConvolutionTest, UsesEngineOfMaxSamplesForFewerSamples) {
  int measured = 0;
  const auto device = MakeCudaOnHostDevice({.time = [&](int engine) {
    ++measured;
    return engine == kFakeOrdinary ? 1.0f : 2.0f;
  }});
  Layer layer(*device, Options(kBf16));
  measured = 0;
  layer.Forward(2, {});
  EXPECT_EQ(GetFakeCudnn().last_engine, kFakeOrdinary);
  EXPECT_EQ(measured, 0);
}

// Plans for fewer samples fit into the workspace of max_samples.
TEST_F(CudnnConvolutionTest, LimitsTheWorkspaceOfLaterPlans) {
  const auto device = MakeCudaOnHostDevice();
  Layer layer(*device, Options(kBf16));
  GetFakeCudnn().workspace_bytes = 1 << 20;
  layer.Forward(2, {});
  EXPECT_EQ(GetFakeCudnn().last_engine, kFakePlain);
  EXPECT_TRUE(device->Synchronize().ok()) << device->Synchronize();
}

TEST_F(CudnnConvolutionTest, ReportsErrorsOfCallsToTheDevice) {
  const auto device = MakeCudaOnHostDevice();
  Layer layer(*device, Options(kBf16));
  GetFakeCudnn().failing_engine = kFakeTensorCores;
  layer.Forward(3, {});
  const absl::Status status = device->Synchronize();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("cuDNN: execution: error 5000"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("the engine fails"));
}

// If cuDNN can write float32 outputs from 16-bit operands, outputs are not rounded to 16 bits.
TEST_F(CudnnConvolutionTest, WritesOutputsInTheirOwnTypeIfPossible) {
  std::mt19937 random(5);
  const auto rounded = [&](const Layer& layer) {
    int count = 0;
    for (int64_t i = 0; i < 3 * kShape.output_elements(); ++i) {
      count += RoundTo(kBf16, layer.y[i]) == layer.y[i];
    }
    return count;
  };
  const auto forward = [&] {
    const auto device = MakeCudaOnHostDevice();
    Layer layer(*device, Options(kBf16, kF32, kF32));
    layer.x.Randomise(random);
    const TestBuffer weights(kShape.weights(), random);
    for (int64_t i = 0; i < kShape.weights(); ++i) {
      StoreElement(kBf16, weights[i], layer.weights.data(), i);
    }
    layer.Forward(3, {});
    EXPECT_TRUE(device->Synchronize().ok()) << device->Synchronize();
    return rounded(layer);
  };
  const auto all = static_cast<int>(3 * kShape.output_elements());
  EXPECT_EQ(forward(), all);
  GetFakeCudnn().mixed_outputs = 1;
  EXPECT_LT(forward(), all / 10);
  EXPECT_EQ(GetFakeCudnn().last_engine, kFakeTensorCores);
}

TEST_F(CudnnConvolutionTest, ReportsALibraryThatFailsToStartForLayersThatNeedIt) {
  const auto make = [&](const ConvolutionShape& shape) {
    return MakeCudaOnHostDevice()->MakeConvolution(shape, {}).status();
  };
  GetFakeCudnn().failing_create = 1;
  EXPECT_EQ(make(kShape), absl::UnavailableError("cuDNN: start: error 1001: no such GPU"));
  GetFakeCublasLt().failing_create = 1;
  EXPECT_EQ(make({.in_channels = 8, .out_channels = 4}),
            absl::UnavailableError("cuBLASLt: start: the fake's error"));
  GetFakeCublasLt() = {};
  EXPECT_TRUE(make({4, 4, 8, 8, 3, 1, 1, 8}).ok());  // depthwise, which needs neither library
}

}  // namespace
}  // namespace muster::kernels
