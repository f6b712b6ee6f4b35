// Builds plans for an H100 and an H200 with NVIDIA's cuDNN, if this machine has it. Heuristics and
// plans need no GPU, only its properties. Tests that cuDNN accepts the graphs that CudnnPlanner
// builds; the results of plans are tested on a machine with a GPU.
#include <filesystem>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/cuda/convolution/cudnn/graph.h"
#include "kernels/cuda/convolution/cudnn/plan_cache.h"
#include "kernels/cuda/convolution/cudnn/planner.h"
#include "kernels/cuda/library/cudnn.h"
#include "kernels/cuda/library/open_library.h"
#include "kernels/cuda/testing/gpu_properties.h"

// For AddressSanitizer: cuDNN and cuBLASLt keep memory until the process ends.
extern "C" const char* __asan_default_options() { return "detect_leaks=0"; }

namespace muster::kernels::cuda {
namespace {

struct Layer {
  const char* name;
  ConvolutionShape shape;
  bool data_gradient = true;
};

// The kinds of layers in Muster's models, and some others.
constexpr Layer kLayers[] = {
    {"resnet stem", {224, 224, 3, 64, 7, 2, 3}, false},
    {"resnet 3x3", {56, 56, 64, 64, 3, 1, 1}},
    {"resnet 3x3 strided", {56, 56, 128, 128, 3, 2, 1}},
    {"resnet 3x3 last", {7, 7, 512, 512, 3, 1, 1}},
    {"resnet 1x1 wide", {56, 56, 64, 256, 1, 1, 0}},
    {"resnet 1x1 narrow", {56, 56, 256, 64, 1, 1, 0}},
    {"resnet 1x1 last", {7, 7, 2048, 512, 1, 1, 0}},
    {"resnet shortcut", {56, 56, 256, 512, 1, 2, 0}},
    {"resnet stem for small images", {32, 32, 3, 64, 3, 1, 1}, false},
    {"resnet stem in grey", {28, 28, 1, 64, 7, 2, 3}, false},
    {"mobilenet stem", {112, 112, 3, 32, 3, 2, 1}, false},
    {"mobilenet expansion", {56, 56, 24, 144, 1, 1, 0}},
    {"mobilenet projection", {56, 56, 144, 24, 1, 1, 0}},
    {"mobilenet last", {4, 4, 320, 1280, 1, 1, 0}},
    {"small_cnn first", {28, 28, 1, 32, 3, 1, 1}, false},
    {"small_cnn second", {14, 14, 32, 64, 3, 1, 1}},
    {"odd channels", {7, 5, 13, 19, 3, 1, 1}},
    {"32 groups", {56, 56, 128, 128, 3, 1, 1, 32}},
    {"two odd groups", {5, 9, 6, 10, 3, 2, 1, 2}},
    {"five", {12, 12, 6, 16, 5, 1, 2}},
};
constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kBfloat16, DataType::kFloat16};

class CudnnHopperTest : public testing::TestWithParam<std::tuple<Gpu, DataType>> {
 protected:
  void SetUp() override {
    const absl::StatusOr<Cudnn> cudnn = OpenCudnn(CudaLibrarySearchPath());
    if (!cudnn.ok()) GTEST_SKIP() << cudnn.status().message();
    cudnn_ = *cudnn;
    if (cudnn_.version() < 90800) GTEST_SKIP() << "describing a GPU requires cuDNN 9.8 or later";
    absl::StatusOr<CudnnDescriptor> properties =
        MakeDeviceProperties(cudnn_, PropertiesOf(std::get<Gpu>(GetParam())));
    ASSERT_TRUE(properties.ok()) << properties.status();
    properties_.emplace(*std::move(properties));
  }

  DataType type() const { return std::get<DataType>(GetParam()); }

  // Chooses the first plan, all plans being equally fast.
  absl::StatusOr<CudnnChoice> Choose(const ConvolutionShape& shape, const CudnnOperation& operation,
                                     PlanCache& plans, const Numerics& numerics = {}) {
    const ConvolutionOptions options = {.max_samples = operation.samples,
                                        .x_type = type(),
                                        .y_type = type(),
                                        .compute_type = type()};
    const CudnnTarget target = {.cudnn = &cudnn_, .device_properties = properties_->get()};
    return CudnnPlanner(shape, options, target, plans, numerics)
        .Choose(operation, nullptr, int64_t{256} << 20,
                [](const CudnnChoice&, int) { return 100.0f; });
  }
  absl::StatusOr<CudnnChoice> Choose(const ConvolutionShape& shape,
                                     const CudnnOperation& operation) {
    PlanCache plans("", "");
    return Choose(shape, operation, plans);
  }

  static constexpr int64_t kSamples = 32;
  Cudnn cudnn_;
  std::optional<CudnnDescriptor> properties_;
};

TEST_P(CudnnHopperTest, FindsAPlanForEachDirectionOfEachLayer) {
  for (const Layer& layer : kLayers) {
    SCOPED_TRACE(layer.name);
    const auto forward = Choose(layer.shape, {.samples = kSamples});
    ASSERT_TRUE(forward.ok()) << forward.status();
    EXPECT_EQ(forward->output, CudnnOutput::kDirect);
    const auto weights = Choose(
        layer.shape, {.direction = ConvolutionDirection::kBackwardWeights, .samples = kSamples});
    ASSERT_TRUE(weights.ok()) << weights.status();
    EXPECT_EQ(weights->output, CudnnOutput::kDirect);
    if (!layer.data_gradient) continue;
    const auto data = Choose(
        layer.shape, {.direction = ConvolutionDirection::kBackwardData, .samples = kSamples});
    ASSERT_TRUE(data.ok()) << data.status();
    EXPECT_EQ(data->output, CudnnOutput::kDirect);
  }
}

TEST_P(CudnnHopperTest, FusesEpiloguesWithAShift) {
  for (const Layer& layer : kLayers) {
    for (const bool addend : {false, true}) {
      for (const bool relu : {false, true}) {
        SCOPED_TRACE(testing::Message() << layer.name << " addend " << addend << " relu " << relu);
        const auto fused = Choose(
            layer.shape, {.samples = kSamples, .shift = true, .addend = addend, .relu = relu});
        EXPECT_TRUE(fused.ok()) << fused.status();
      }
    }
  }
}

// The engine is that of the text in the PlanCache.
TEST_P(CudnnHopperTest, RebuildsAPlanFromItsText) {
  const ConvolutionShape shape = {56, 56, 64, 64, 3, 1, 1};
  const CudnnOperation operation = {.samples = kSamples};
  const std::string folder = std::filesystem::path(testing::TempDir()) / "hopper";
  std::filesystem::remove_all(folder);
  PlanCache plans(folder, NameOf(type()));
  const auto first = Choose(shape, operation, plans);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_FALSE(first->engine.knobs.empty() && type() != DataType::kFloat32);
  PlanCache read(folder, NameOf(type()));
  const auto again = Choose(shape, operation, read);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->engine, first->engine);
  EXPECT_EQ(again->plan.workspace_bytes(), first->plan.workspace_bytes());
}

TEST_P(CudnnHopperTest, ChoosesOtherEnginesInFloat32IfTf32IsAllowed) {
  const ConvolutionShape shape = {56, 56, 64, 64, 3, 1, 1};
  for (const ConvolutionDirection direction :
       {ConvolutionDirection::kForward, ConvolutionDirection::kBackwardData,
        ConvolutionDirection::kBackwardWeights}) {
    const CudnnOperation operation = {.direction = direction, .samples = kSamples};
    PlanCache plans("", "");
    const auto exact = Choose(shape, operation, plans);
    ASSERT_TRUE(exact.ok()) << exact.status();
    const auto rounded = Choose(shape, operation, plans, {.tf32 = true});
    ASSERT_TRUE(rounded.ok()) << rounded.status();
    EXPECT_EQ(rounded->engine == exact->engine, type() != DataType::kFloat32);
  }
}

std::string ParameterName(const testing::TestParamInfo<std::tuple<Gpu, DataType>>& info) {
  const auto& [gpu, type] = info.param;
  return absl::StrCat(gpu.name, "_", NameOf(type));
}

INSTANTIATE_TEST_SUITE_P(GpusAndTypes, CudnnHopperTest,
                         testing::Combine(testing::Values(kH100, kH200), testing::ValuesIn(kTypes)),
                         ParameterName);

}  // namespace
}  // namespace muster::kernels::cuda
