// Tests which products linear layers use, and their errors, with a fake cuBLASLt.
// convolution_contract_test tests their results.
#include "kernels/cuda/convolution/cublaslt/linear.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/contract/test_buffer.h"
#include "kernels/cuda/testing/on_host_device.h"
#include "kernels/out_of_memory.h"

namespace muster::kernels {
namespace {

using testing::HasSubstr;

constexpr size_t kCublasLtAlignment = 256;
constexpr ConvolutionShape kShape{.in_channels = 6, .out_channels = 4};

class CublasLtLinearTest : public testing::Test {
 protected:
  explicit CublasLtLinearTest(const cuda::Numerics& numerics = {})
      : device_(MakeCudaOnHostDevice({.numerics = numerics})) {
    GetFakeCublasLt() = {};
  }

  void Make(const ConvolutionOptions& options) {
    auto made = device_->MakeConvolution(kShape, options);
    ASSERT_TRUE(made.ok()) << made.status();
    layer_ = *std::move(made);
    auto workspace = device_->Allocate(layer_->workspace_bytes() + kCublasLtAlignment);
    ASSERT_TRUE(workspace.ok());
    workspace_ = *std::move(workspace);
    const auto address = reinterpret_cast<uintptr_t>(workspace_.data());
    workspace_at_ = workspace_.as<char>() + (0 - address) % kCublasLtAlignment;
    for (TestBuffer* buffer : {&x_, &y_, &addend_, &weights_, &shift_}) {
      std::fill_n(buffer->data(), buffer->size(), 1.0f);
    }
  }
  // Return the number of products with an epilogue, and of all products.
  std::pair<int64_t, int64_t> Forward(int64_t samples, const Epilogue& epilogue) {
    GetFakeCublasLt().runs = GetFakeCublasLt().runs_with_epilogue = 0;
    layer_->Forward(samples, x_.data(), weights_.data(), epilogue, y_.data(), workspace_at_);
    return {GetFakeCublasLt().runs_with_epilogue, GetFakeCublasLt().runs};
  }
  std::pair<int64_t, int64_t> BackwardWeights() {
    GetFakeCublasLt().runs = GetFakeCublasLt().runs_with_epilogue = 0;
    layer_->BackwardWeights(2, x_.data(), y_.data(), weights_.data(), shift_.data(), workspace_at_);
    return {GetFakeCublasLt().runs_with_epilogue, GetFakeCublasLt().runs};
  }

  const std::unique_ptr<Device> device_;
  std::unique_ptr<Convolution> layer_;
  DeviceMemory workspace_;
  char* workspace_at_ = nullptr;  // 256-byte aligned
  TestBuffer x_{2 * 6}, y_{2 * 4}, addend_{2 * 4}, weights_{6 * 4}, shift_{4};
};

using Runs = std::pair<int64_t, int64_t>;

TEST_F(CublasLtLinearTest, FusesBiasAddendReluAndBiasGradient) {
  Make({.max_samples = 2});
  EXPECT_EQ(layer_->description(), "cublaslt (float32)");
  const float* const shift = shift_.data();
  EXPECT_EQ(Forward(2, {}), Runs(0, 1));
  EXPECT_EQ(Forward(2, {.shift = shift}), Runs(1, 1));
  EXPECT_EQ(Forward(2, {.addend = addend_.data()}), Runs(0, 1));
  EXPECT_EQ(y_[5], 7);
  EXPECT_EQ(Forward(2, {.shift = shift, .addend = addend_.data(), .activation = Activation::kRelu}),
            Runs(1, 1));
  EXPECT_EQ(y_[5], 8);
  EXPECT_EQ(BackwardWeights(), Runs(1, 1));
  EXPECT_TRUE(device_->Synchronize().ok()) << device_->Synchronize();
}

TEST_F(CublasLtLinearTest, AppliesOtherEpiloguesInASeparateKernel) {
  Make({.max_samples = 2});
  std::fill_n(shift_.data(), 4, 2.0f);
  EXPECT_EQ(Forward(2, {.scale = shift_.data()}), Runs(0, 1));
  EXPECT_EQ(y_[7], 12);
  EXPECT_EQ(Forward(2, {.shift = shift_.data(), .activation = Activation::kRelu6}), Runs(0, 1));
  EXPECT_EQ(y_[7], 6);
}

TEST_F(CublasLtLinearTest, AppliesEpiloguesSeparatelyIfTheLibraryHasNone) {
  GetFakeCublasLt().no_epilogue = 1;
  Make({.max_samples = 2});
  EXPECT_EQ(Forward(2, {.shift = shift_.data()}), Runs(0, 1));
  EXPECT_EQ(y_[3], 7);
  EXPECT_EQ(BackwardWeights(), Runs(0, 1));
  EXPECT_EQ(weights_[0], 14);  // 2 samples of x * y = 1 * 7
  EXPECT_EQ(shift_[3], 14);
  EXPECT_TRUE(device_->Synchronize().ok()) << device_->Synchronize();
}

TEST_F(CublasLtLinearTest, ChoosesAnAlgorithmOnce) {
  Make({.max_samples = 2});
  GetFakeCublasLt().heuristic_calls = 0;
  Forward(2, {});
  EXPECT_EQ(GetFakeCublasLt().heuristic_calls, 0);
  Forward(1, {});
  Forward(1, {});
  EXPECT_EQ(GetFakeCublasLt().heuristic_calls, 1);
}

// In a plan, the activations of several micro-batches precede the workspace.
TEST_F(CublasLtLinearTest, NeedsOnlyTheAlignmentOfLayers) {
  Make({.max_samples = 2});
  for (const size_t offset : {0, 64, 128, 192}) {
    workspace_at_ = workspace_.as<char>() + offset;
    EXPECT_EQ(Forward(2, {}), Runs(0, 1)) << offset;
    EXPECT_EQ(BackwardWeights(), Runs(1, 1)) << offset;
  }
  EXPECT_TRUE(device_->Synchronize().ok()) << device_->Synchronize();
}

// Algorithms that need more than cuBLASLt's default promise are not offered, and those that rely on
// more than arrays have would fail.
TEST_F(CublasLtLinearTest, PromisesTheAlignmentOfArrays) {
  Make({.max_samples = 2});
  for (const bool forward : {true, false}) {
    EXPECT_EQ(forward ? Forward(2, {}) : BackwardWeights(), Runs(forward ? 0 : 1, 1));
    EXPECT_THAT(GetFakeCublasLt().operand_alignments, testing::Each(32u));
  }
}

TEST_F(CublasLtLinearTest, MultipliesFloat32ExactlyInAFixedOrder) {
  Make({.max_samples = 2});
  Forward(2, {});
  EXPECT_EQ(GetFakeCublasLt().compute_type, kCublasCompute32F);
  EXPECT_EQ(GetFakeCublasLt().reductions, kCublasLtReductionInComputeType);
}

class CublasLtFastLinearTest : public CublasLtLinearTest {
 protected:
  CublasLtFastLinearTest() : CublasLtLinearTest({.deterministic = false, .tf32 = true}) {}
};

TEST_F(CublasLtFastLinearTest, MultipliesTf32InAnyOrder) {
  Make({.max_samples = 2});
  Forward(2, {});
  EXPECT_EQ(GetFakeCublasLt().compute_type, kCublasCompute32FFastTf32);
  EXPECT_EQ(GetFakeCublasLt().reductions,
            kCublasLtReductionInComputeType | kCublasLtReductionInPlace);
}

// Sums in place would be rounded to D's type.
TEST_F(CublasLtFastLinearTest, DoesNotAffect16BitProducts) {
  Make({.max_samples = 2,
        .x_type = DataType::kBfloat16,
        .y_type = DataType::kBfloat16,
        .compute_type = DataType::kBfloat16});
  Forward(2, {});
  EXPECT_EQ(GetFakeCublasLt().compute_type, kCublasCompute32F);
  EXPECT_EQ(GetFakeCublasLt().reductions, kCublasLtReductionInComputeType);
}

TEST_F(CublasLtLinearTest, ReturnsUnimplementedWithoutAnAlgorithm) {
  GetFakeCublasLt().nothing = 1;
  const absl::Status status = device_->MakeConvolution(kShape, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(status.message(), "cuBLASLt: heuristics: not supported");
}

TEST_F(CublasLtLinearTest, ReportsErrorsOfCallsToTheDevice) {
  Make({.max_samples = 2});
  GetFakeCublasLt().failing_run = 1;
  Forward(2, {});
  const absl::Status status = device_->Synchronize();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(status.message(), "cuBLASLt: product: the fake's error");
}

TEST_F(CublasLtLinearTest, ReportsExhaustedMemory) {
  Make({.max_samples = 2});
  GetFakeCublasLt().failing_run = 2;
  Forward(2, {});
  EXPECT_TRUE(IsOutOfMemory(device_->error()));
  EXPECT_EQ(device_->error().message(),
            "cuBLASLt: out of memory: cannot allocate memory for product: the fake's error");
}

TEST(IsLinearTest, AcceptsOnlyMatrixProducts) {
  using cuda::IsLinear;
  EXPECT_TRUE(IsLinear(kShape));
  EXPECT_FALSE(IsLinear({.height = 2, .in_channels = 6, .out_channels = 4}));
  EXPECT_FALSE(IsLinear({.in_channels = 6, .out_channels = 4, .kernel = 3, .padding = 1}));
  EXPECT_FALSE(IsLinear({.in_channels = 6, .out_channels = 4, .groups = 2}));
}

}  // namespace
}  // namespace muster::kernels
