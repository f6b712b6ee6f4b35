// Plans of NVIDIA's cuDNN for every convolution of four models, in training with 256 samples on an
// H100 and an H200, without a GPU. Skipped without cuDNN. Reports the rank, among the engines that
// cuDNN proposes, of the first that the planner accepts.
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "kernels/cuda/convolution/cudnn/graph.h"
#include "kernels/cuda/convolution/cudnn/plan_cache.h"
#include "kernels/cuda/convolution/cudnn/planner.h"
#include "kernels/cuda/library/cudnn.h"
#include "kernels/cuda/library/open_library.h"
#include "kernels/cuda/testing/gpu_properties.h"
#include "trainer/graph/shapes.h"
#include "trainer/models/model.h"

// For AddressSanitizer: cuDNN keeps memory until the process ends.
extern "C" const char* __asan_default_options() { return "detect_leaks=0"; }

namespace muster {
namespace {

using kernels::ConvolutionShape;
using kernels::DataType;
using kernels::cuda::ConvolutionDirection;
using kernels::cuda::CudnnChoice;

constexpr int64_t kSamples = 256;
constexpr int64_t kMaxWorkspaceBytes = int64_t{256} << 20;

struct Model {
  const char* name;
  int64_t image_size;
};
constexpr Model kModels[] = {
    {"resnet18", 32}, {"resnet50", 224}, {"resnet101", 224}, {"mobilenet_v2", 112}};

struct Layer {
  ConvolutionShape shape;
  bool data_gradient;  // false: the layer reads the batch

  auto Key() const {
    return std::tuple(shape.height, shape.width, shape.in_channels, shape.out_channels,
                      shape.kernel, shape.stride, shape.padding, shape.groups, data_gradient);
  }
  bool operator<(const Layer& other) const { return Key() < other.Key(); }
};

// The different convolutions of all models that cuDNN runs: all but depthwise ones.
std::set<Layer> AllLayers() {
  std::set<Layer> layers;
  for (const Model& model : kModels) {
    v1::ModelSpec spec;
    spec.set_name(model.name);
    const auto graph = nn::BuildModel(spec, {model.image_size, model.image_size, 3}, 1000);
    EXPECT_TRUE(graph.ok()) << graph.status();
    const auto shapes = nn::InferShapes(*graph);
    EXPECT_TRUE(shapes.ok()) << shapes.status();
    for (const nn::Node& node : graph->nodes) {
      const auto* const layer = std::get_if<nn::Conv2d>(&node.layer);
      if (layer == nullptr) continue;
      const nn::NodeId input = node.inputs.front();
      const nn::ImageShape& image = input == nn::kInput ? graph->input : (*shapes)[input].image;
      const ConvolutionShape shape = {.height = image.height,
                                      .width = image.width,
                                      .in_channels = image.channels,
                                      .out_channels = layer->out_channels,
                                      .kernel = layer->kernel,
                                      .stride = layer->stride,
                                      .padding = layer->padding,
                                      .groups = layer->groups};
      if (shape.depthwise()) continue;
      layers.insert({shape, input != nn::kInput});
      // The gradient of a shortcut's input is computed without the pixels that it skips.
      if (shape.kernel == 1 && shape.stride > 1) layers.insert({shape.Compact(), true});
    }
  }
  return layers;
}

std::string TextOf(const ConvolutionShape& shape) {
  return absl::StrCat(shape.height, "x", shape.width, "x", shape.in_channels, " to ",
                      shape.out_channels, " kernel ", shape.kernel, " stride ", shape.stride);
}

const char* NameOf(ConvolutionDirection direction) {
  switch (direction) {
    case ConvolutionDirection::kForward:
      return "forward";
    case ConvolutionDirection::kBackwardData:
      return "data";
    case ConvolutionDirection::kBackwardWeights:
      return "weights";
  }
  return "";
}

class ModelPlansTest : public testing::TestWithParam<std::tuple<kernels::cuda::Gpu, DataType>> {
 protected:
  void SetUp() override {
    const auto cudnn = kernels::cuda::OpenCudnn(kernels::cuda::CudaLibrarySearchPath());
    if (!cudnn.ok()) GTEST_SKIP() << cudnn.status().message();
    cudnn_ = *cudnn;
    if (cudnn_.version() < 90800) GTEST_SKIP() << "describing a GPU requires cuDNN 9.8 or later";
    auto properties = kernels::cuda::MakeDeviceProperties(cudnn_, PropertiesOf(gpu()));
    ASSERT_TRUE(properties.ok()) << properties.status();
    properties_.emplace(*std::move(properties));
  }

  const kernels::cuda::Gpu& gpu() const { return std::get<0>(GetParam()); }
  DataType type() const { return std::get<1>(GetParam()); }

  // The first engine that the planner accepts: all are equally fast.
  absl::StatusOr<CudnnChoice> Choose(const ConvolutionShape& shape,
                                     ConvolutionDirection direction) {
    kernels::cuda::PlanCache plans("", "");
    return kernels::cuda::CudnnPlanner(shape,
                                       {.max_samples = kSamples,
                                        .x_type = type(),
                                        .y_type = type(),
                                        .compute_type = type()},
                                       {.cudnn = &cudnn_, .device_properties = properties_->get()},
                                       plans)
        .Choose({.direction = direction, .samples = kSamples}, nullptr, kMaxWorkspaceBytes,
                [](const CudnnChoice&, int) { return 100.0f; });
  }

  kernels::cuda::Cudnn cudnn_;
  std::optional<kernels::cuda::CudnnDescriptor> properties_;
};

TEST_P(ModelPlansTest, EveryLayerTrainsWithPrecompiledEngines) {
  const std::set<Layer> layers = AllLayers();
  for (const ConvolutionDirection direction :
       {ConvolutionDirection::kForward, ConvolutionDirection::kBackwardData,
        ConvolutionDirection::kBackwardWeights}) {
    std::map<int, int> layers_by_rank;
    for (const Layer& layer : layers) {
      if (direction == ConvolutionDirection::kBackwardData && !layer.data_gradient) continue;
      SCOPED_TRACE(absl::StrCat(NameOf(direction), " ", TextOf(layer.shape)));
      const auto choice = Choose(layer.shape, direction);
      ASSERT_TRUE(choice.ok()) << choice.status();
      EXPECT_FALSE(choice->compiled_at_run_time);
      ++layers_by_rank[choice->rank];
    }
    const std::string ranks =
        absl::StrJoin(layers_by_rank, ", ", [](std::string* text, const auto& entry) {
          absl::StrAppend(text, entry.second, " of rank ", entry.first);
        });
    std::cout << gpu().name << " " << kernels::NameOf(type()) << " " << NameOf(direction) << ": "
              << ranks << "\n";
    RecordProperty(NameOf(direction), ranks);
  }
}

std::string ParameterName(const testing::TestParamInfo<ModelPlansTest::ParamType>& info) {
  const auto& [gpu, type] = info.param;
  return absl::StrCat(gpu.name, "_", kernels::NameOf(type));
}

INSTANTIATE_TEST_SUITE_P(
    GpusAndTypes, ModelPlansTest,
    testing::Combine(testing::Values(kernels::cuda::kH100, kernels::cuda::kH200),
                     testing::Values(DataType::kFloat32, DataType::kBfloat16, DataType::kFloat16)),
    ParameterName);

}  // namespace
}  // namespace muster
