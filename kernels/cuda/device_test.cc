// Tests the errors of opening CUDA libraries, and what a device copies and computes, with a fake
// GPU on the CPU and, if there is one, on a GPU.
#include "kernels/cuda/device.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/contract/test_buffer.h"
#include "kernels/out_of_memory.h"
#include "kernels/testing/staged_convolution.h"

namespace muster::kernels {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

constexpr char kLibrary[] = "kernels/cuda/libmuster-cuda.so";

std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

TEST(OpenCudaDeviceTest, ReportsTheMissingFile) {
  const absl::Status status = OpenCudaDevice(0, "no/such/library.so").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(MessageOf(status), "CUDA: no no/such/library.so");
}

TEST(OpenCudaDeviceTest, SearchesTheProgramsFolderAndLib) {
  EXPECT_THAT(
      CudaLibraryPaths("/opt/muster/bin"),
      ElementsAre("/opt/muster/bin/libmuster-cuda.so", "/opt/muster/lib/libmuster-cuda.so"));
  // This program is built beside the library, if the library is built.
  EXPECT_EQ(OpenCudaLibrary().ok(), std::filesystem::exists(kLibrary));
}

TEST(OpenCudaDeviceTest, ReportsAMissingDependency) {
  const absl::Status status =
      OpenCudaDevice(0, "kernels/cuda/testing/libneeds-another.so").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(MessageOf(status), HasSubstr("libanother.so"));
}

TEST(OpenCudaDeviceTest, RejectsAnotherVersion) {
  const absl::Status status =
      OpenCudaDevice(0, "kernels/cuda/testing/libother-version.so").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(MessageOf(status),
              HasSubstr("kernels/cuda/testing/libother-version.so is of another version"));
  EXPECT_THAT(MessageOf(status), HasSubstr("interface 4711"));
}

TEST(OpenCudaDeviceTest, RejectsAnotherLibrary) {
  const absl::Status status = OpenCudaDevice(0, "kernels/cuda/testing/libanother.so").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(MessageOf(status),
              HasSubstr("kernels/cuda/testing/libanother.so is not a Muster plugin"));
}

TEST(OpenCudaDeviceTest, ReportsWhyThereIsNoGpu) {
  const auto library = OpenCudaLibrary(kLibrary);
  if (absl::IsNotFound(library.status())) GTEST_SKIP() << library.status().message();
  ASSERT_TRUE(library.ok()) << library.status();
  const char* error = "";
  const int devices = (*library)->device_count(&error);
  const absl::Status status = OpenCudaDevice(devices, kLibrary).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(MessageOf(status),
              HasSubstr(devices == 0 ? std::string("CUDA: no GPU: ") + error
                                     : "CUDA: no GPU " + std::to_string(devices)));
  if (devices == 0) EXPECT_STRNE(error, "");
}

TEST(OpenCudaDeviceTest, PassesNumericsToLayersAndLosses) {
  setenv("MUSTER_CUDA_LIBRARY_PATH", "kernels/cuda/testing/fakes", 1);
  setenv("XDG_CACHE_HOME", testing::TempDir().c_str(), 1);
  const auto device = OpenCudaDevice(0, "kernels/cuda/testing/libmuster-cuda-on-host.so",
                                     {.deterministic = false, .tf32 = true});
  unsetenv("MUSTER_CUDA_LIBRARY_PATH");
  ASSERT_TRUE(device.ok()) << device.status();
  // The first engine that the fake cuDNN proposes is neither deterministic nor exact.
  const auto layer = (*device)->MakeConvolution({4, 4, 8, 16, 3, 1, 1}, {.training = false});
  ASSERT_TRUE(layer.ok()) << layer.status();
  EXPECT_EQ((*layer)->description(), "cudnn (forward engine 10)");
  const auto loss = (*device)->MakeNtXentLoss({.samples = 2, .anchors = 2, .width = 4});
  ASSERT_TRUE(loss.ok()) << loss.status();
  EXPECT_EQ((*loss)->description(), "cublaslt");
}

TEST(EnablePeerAccessTest, CountsPairsThatCan) {
  const std::string library = "kernels/cuda/testing/libmuster-cuda-on-host.so";
  const auto two = EnablePeerAccess(2, library), three = EnablePeerAccess(3, library);
  ASSERT_TRUE(two.ok() && three.ok()) << two.status() << three.status();
  EXPECT_EQ(*two, 2);
  EXPECT_EQ(*three, 2);
  EXPECT_EQ(EnablePeerAccess(2, "no/such/library.so").status().code(), absl::StatusCode::kNotFound);
}

class CudaDeviceTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const bool on_host = std::string(GetParam()) != kLibrary;
    if (on_host) setenv("MUSTER_CUDA_LIBRARY_PATH", "kernels/cuda/testing/fakes", 1);
    setenv("XDG_CACHE_HOME", testing::TempDir().c_str(), 1);
    auto device = OpenCudaDevice(0, GetParam());
    unsetenv("MUSTER_CUDA_LIBRARY_PATH");
    if (absl::IsNotFound(device.status()) || absl::IsUnavailable(device.status())) {
      GTEST_SKIP() << device.status().message();
    }
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
  }
  Device& device() { return *device_; }

 private:
  std::unique_ptr<Device> device_;
};

TEST_P(CudaDeviceTest, CopiesAndComputesInOrder) {
  constexpr size_t kCount = 100003;
  auto memory = device().Allocate(kCount * sizeof(float));
  auto copy = device().Allocate(memory->bytes());
  auto host = device().AllocateHost(memory->bytes());
  ASSERT_TRUE(memory.ok() && copy.ok() && host.ok());
  std::vector<float> values(kCount);
  device().CopyToHost(values.data(), copy->data(), copy->bytes());
  for (const float value : values) ASSERT_EQ(value, 0);
  const auto event = device().MakeEvent();
  EXPECT_TRUE(event->Done());
  for (size_t i = 0; i < kCount; ++i) host->as<float>()[i] = static_cast<float>(i);
  device().CopyToDevice(memory->data(), host->as<float>(), memory->bytes());
  event->Record();
  std::thread([&event, &host] {
    EXPECT_TRUE(event->Wait().ok());
    host->as<float>()[0] = -1;
  }).join();
  EXPECT_TRUE(event->Done());
  device().kernels().accumulate(DataType::kFloat32, kCount, memory->data(), memory->data());
  device().Copy(copy->data(), memory->data(), memory->bytes());
  device().Zero(memory->data(), memory->bytes());
  device().CopyToHost(values.data(), copy->data(), copy->bytes());
  for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(values[i], 2 * static_cast<float>(i));
  device().CopyToHost(values.data(), memory->data(), memory->bytes());
  for (const float value : values) ASSERT_EQ(value, 0);
  EXPECT_TRUE(device().Synchronize().ok()) << device().Synchronize();
}

TEST_P(CudaDeviceTest, CapturesAndLaunchesGraphs) {
  Device& device = this->device();
  if (!device.supports_graph_capture()) {
    GTEST_SKIP() << device.name() << " does not support graph capture";
  }
  constexpr size_t kCount = 1000;
  auto sum = device.Allocate(kCount * sizeof(float)), one = device.Allocate(kCount * sizeof(float));
  auto scale = device.Allocate(sizeof(float));
  auto host = device.AllocateHost(kCount * sizeof(float));
  auto event = device.MakeEvent();
  ASSERT_TRUE(sum.ok() && one.ok() && scale.ok() && host.ok());
  const std::vector<float> ones(kCount, 1);
  device.CopyToDevice(one->data(), ones.data(), one->bytes());
  const auto step = [&] {
    device.kernels().accumulate(DataType::kFloat32, kCount, one->data(), sum->data());
    device.kernels().scaled_copy(DataType::kFloat32, kCount, scale->as<float>(), sum->data(),
                                 sum->data());
    device.Copy(host->data(), sum->data(), sum->bytes());
  };
  float expected = 0;
  std::unique_ptr<DeviceGraph> graph;
  for (const float factor : {2.0f, 3.0f, 5.0f}) {
    // `factor` is on the stack and goes out of scope before the kernel runs.
    device.CopyToDevice(scale->data(), &factor, sizeof(factor));
    if (graph != nullptr) {
      graph->Launch();
    } else {
      ASSERT_TRUE(device.StartCapture().ok());
      step();
      auto captured = device.FinishCapture();
      ASSERT_TRUE(captured.ok()) << captured.status();
      graph = *std::move(captured);
      graph->Launch();
    }
    event->Record();
    ASSERT_TRUE(event->Wait().ok());
    EXPECT_TRUE(event->Done());
    expected = factor * (expected + 1);
    for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(host->as<float>()[i], expected);
  }
  // Calls that cannot be captured are rejected, and leave no error behind.
  ASSERT_TRUE(device.StartCapture().ok());
  device.CopyToHost(&expected, sum->data(), sizeof(expected));
  EXPECT_EQ(device.FinishCapture().status().code(), absl::StatusCode::kFailedPrecondition);
  graph.reset();
  EXPECT_TRUE(device.Synchronize().ok()) << device.Synchronize();
}

TEST_P(CudaDeviceTest, RejectsAllocationsThatExceedTheMemory) {
  EXPECT_GT(device().free_bytes(), 0);
  for (const absl::Status& status : {device().Allocate(size_t{1} << 50).status(),
                                     device().AllocateHost(size_t{1} << 50).status()}) {
    EXPECT_TRUE(IsOutOfMemory(status)) << status;
    EXPECT_THAT(MessageOf(status),
                StartsWith(device().name() + ": out of memory: cannot allocate " +
                           std::to_string(size_t{1} << 50) + " bytes for "));
  }
  const absl::Status named = device().Allocate(size_t{1} << 50, "the weights").status();
  EXPECT_THAT(MessageOf(named), HasSubstr(" bytes for the weights, "));
  EXPECT_THAT(MessageOf(named), HasSubstr(" bytes are free: "));
  EXPECT_TRUE(device().Synchronize().ok());
}

// The errors of calls that return nothing.
class CudaDeviceErrorTest : public CudaDeviceTest {
 protected:
  // Sets the fake GPU's first error.
  static void Fail(const char* error, size_t refused_bytes = 0) {
    void* const plugin = dlopen(GetParam(), RTLD_NOW | RTLD_NOLOAD);
    reinterpret_cast<void (*)(const char*, size_t)>(dlsym(plugin, "MusterHostPluginFail"))(
        error, refused_bytes);
  }
  void TearDown() override { Fail(nullptr); }
};

TEST_P(CudaDeviceErrorTest, ReturnsTheGpusErrorWithoutWaiting) {
  EXPECT_TRUE(device().error().ok());
  Fail("an illegal memory access was encountered");
  EXPECT_EQ(device().error(),
            absl::InternalError("cuda:0 host: an illegal memory access was encountered"));
  EXPECT_EQ(device().Synchronize(), device().error());
}

TEST_P(CudaDeviceErrorTest, ReturnsExhaustedScratchMemory) {
  Fail("out of memory", 1 << 26);
  EXPECT_TRUE(IsOutOfMemory(device().error()));
  EXPECT_EQ(MessageOf(device().error()),
            "cuda:0 host: out of memory: cannot allocate 67108864 bytes for a kernel's scratch "
            "memory, 1073741824 bytes are free: out of memory");
}

TEST_P(CudaDeviceErrorTest, ReturnsTheErrorsOfLibraries) {
  const ConvolutionShape linear = {1, 1, 8, 16};
  auto layer = device().MakeConvolution(linear, {.max_samples = 1});
  ASSERT_TRUE(layer.ok()) << layer.status();
  const TestBuffer x(8), weights(8 * 16), y(16);
  // The product's workspace is missing.
  (*layer)->Forward(1, x.data(), weights.data(), {}, y.data(), nullptr);
  EXPECT_EQ(device().error().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(MessageOf(device().error()), StartsWith("cuda:0 host: cuBLASLt: product: "));
}

INSTANTIATE_TEST_SUITE_P(Libraries, CudaDeviceErrorTest,
                         testing::Values("kernels/cuda/testing/libmuster-cuda-on-host.so"));

// Depthwise, linear and other convolutions; on the fake GPU, with the fake cuDNN and cuBLASLt.
TEST_P(CudaDeviceTest, ComputesConvolutionsOfEachKind) {
  const ConvolutionOptions options = {.max_samples = 2};
  const std::pair<ConvolutionShape, const char*> layers[] = {
      {{4, 4, 8, 16, 3, 1, 1}, "cudnn (forward engine "},
      {{1, 1, 8, 16}, "cublaslt (float32)"},
      {{4, 4, 16, 16, 3, 1, 1, 16}, "depthwise:cuda"},
  };
  for (const auto& [shape, description] : layers) {
    const auto layer = MakeStagedConvolution(device(), shape, options);
    ASSERT_TRUE(layer.ok()) << layer.status();
    EXPECT_THAT((*layer)->description(), StartsWith(description));
    TestBuffer x(2 * shape.input_elements()), y(2 * shape.output_elements());
    TestBuffer weights((*layer)->weights_elements()), shift(shape.out_channels);
    std::fill_n(x.data(), x.size(), 1.0f);
    std::fill_n(weights.data(), weights.size(), 1.0f);
    std::fill_n(shift.data(), shift.size(), -1.0f);
    (*layer)->Forward(2, x.data(), weights.data(), {.shift = shift.data()}, y.data(), nullptr);
    // At a corner, four of the nine kernel positions are in the image.
    const int64_t taps = shape.kernel == 3 ? 4 : 1;
    EXPECT_EQ(y[0], static_cast<float>(taps * shape.in_channels / shape.groups - 1));
  }
}

INSTANTIATE_TEST_SUITE_P(Libraries, CudaDeviceTest,
                         testing::Values(kLibrary,
                                         "kernels/cuda/testing/libmuster-cuda-on-host.so"),
                         [](const auto& info) { return info.index == 0 ? "Gpu" : "OnHost"; });

}  // namespace
}  // namespace muster::kernels
