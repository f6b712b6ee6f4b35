#include "kernels/testing/capturing_device.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/testing/host_stream_abi.h"

namespace muster::kernels {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class CapturingDeviceTest : public testing::Test {
 protected:
  DeviceMemory Make(const std::vector<float>& values) {
    auto memory = device_.Allocate(values.size() * sizeof(float));
    EXPECT_TRUE(memory.ok()) << memory.status();
    Set(*memory, values);
    return *std::move(memory);
  }
  void Set(const DeviceMemory& memory, const std::vector<float>& values) {
    device_.CopyToDevice(memory.data(), values.data(), memory.bytes());
  }
  std::vector<float> Get(const DeviceMemory& memory) {
    std::vector<float> values(memory.bytes() / sizeof(float));
    device_.CopyToHost(values.data(), memory.data(), memory.bytes());
    return values;
  }
  template <typename Calls>
  std::unique_ptr<DeviceGraph> Capture(const Calls& calls) {
    EXPECT_TRUE(device_.StartCapture().ok());
    calls();
    auto graph = device_.FinishCapture();
    EXPECT_TRUE(graph.ok()) << graph.status();
    return *std::move(graph);
  }
  // Returns the error of capturing the calls.
  template <typename Calls>
  std::string CaptureError(const Calls& calls) {
    EXPECT_TRUE(device_.StartCapture().ok());
    calls();
    const absl::Status status = device_.FinishCapture().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    return std::string(status.message());
  }

  Device& device_ = CapturingDevice();
  const KernelTable& kernels_ = device_.kernels();
};

TEST_F(CapturingDeviceTest, LaunchRepeatsCapturedCallsOnCurrentMemory) {
  const DeviceMemory x = Make({1, 2}), y = Make({10, 20}), copy = Make({0, 0});
  const auto graph = Capture([&] {
    kernels_.accumulate(DataType::kFloat32, 2, x.data(), y.data());
    device_.Copy(copy.data(), y.data(), y.bytes());
    device_.Zero(y.data(), sizeof(float));
  });
  EXPECT_THAT(Get(y), ElementsAre(10, 20)) << "not before the launch";
  graph->Launch();
  EXPECT_THAT(Get(copy), ElementsAre(11, 22));
  EXPECT_THAT(Get(y), ElementsAre(0, 22));
  Set(x, {5, 6});
  graph->Launch();
  EXPECT_THAT(Get(copy), ElementsAre(5, 28));
}

TEST_F(CapturingDeviceTest, CapturesOptionsByValueAndScalarsByAddress) {
  const DeviceMemory parameters = Make({1}), gradients = Make({2});
  auto scalars = device_.Allocate(sizeof(UpdateScalars));
  ASSERT_TRUE(scalars.ok());
  SgdOptions options{.weight_decay = 0.5};
  const auto graph = Capture([&] {
    kernels_.sgd_step(options, scalars->as<UpdateScalars>(), parameters.as<float>(), nullptr,
                      gradients.as<float>(), 1);
  });
  options.weight_decay = 1e9;
  float expected = 1;
  for (const double rate : {0.5, 0.25}) {
    const UpdateScalars values{.learning_rate = rate};
    device_.CopyToDevice(scalars->data(), &values, sizeof(values));
    graph->Launch();
    expected -= static_cast<float>(rate) * (2 + 0.5f * expected);
    EXPECT_THAT(Get(parameters), ElementsAre(expected));
  }
}

TEST_F(CapturingDeviceTest, CapturesConvolutions) {
  auto convolution = device_.MakeConvolution({.in_channels = 1, .out_channels = 1}, {});
  ASSERT_TRUE(convolution.ok()) << convolution.status();
  auto workspace = device_.Allocate((*convolution)->workspace_bytes());
  const float one = 3;
  std::vector<float> canonical((*convolution)->weights_elements());
  (*convolution)->ImportWeights(&one, canonical.data());
  const DeviceMemory x = Make({2}), y = Make({0}), dx = Make({0}), dbias = Make({0});
  const DeviceMemory weights = Make(canonical), dweights = Make(canonical);
  const auto graph = Capture([&] {
    (*convolution)->Forward(1, x.data(), weights.as<float>(), {}, y.data(), workspace->data());
    (*convolution)->BackwardData(1, y.data(), weights.as<float>(), dx.data(), workspace->data());
    (*convolution)
        ->BackwardWeights(1, x.data(), y.data(), dweights.as<float>(), dbias.as<float>(),
                          workspace->data());
  });
  EXPECT_THAT(Get(y), ElementsAre(0));
  graph->Launch();
  EXPECT_THAT(Get(y), ElementsAre(6));
  EXPECT_THAT(Get(dx), ElementsAre(18));
  EXPECT_THAT(Get(dbias), ElementsAre(6));
}

TEST_F(CapturingDeviceTest, RejectsCallsThatCannotBeCaptured) {
  const DeviceMemory x = Make({1, 2});
  float own[2] = {};
  EXPECT_THAT(CaptureError([&] { device_.CopyToDevice(x.data(), own, 8); }),
              HasSubstr("from the host"));
  EXPECT_THAT(CaptureError([&] { device_.CopyToHost(own, x.data(), 8); }),
              HasSubstr("to the host"));
  EXPECT_THAT(CaptureError([&] { (void)device_.Synchronize(); }), HasSubstr("waiting"));
  EXPECT_THAT(CaptureError([&] { (void)device_.Allocate(8); }), HasSubstr("an allocation"));
  EXPECT_THAT(
      CaptureError([&] { kernels_.scaled_copy(DataType::kFloat32, 2, own, x.data(), x.data()); }),
      HasSubstr("address in host memory"));
  EXPECT_THAT(CaptureError([&] {
                kernels_.batch_norm_backward_data({}, {.scale = own}, nullptr, nullptr, nullptr);
              }),
              HasSubstr("address in host memory"));
  EXPECT_THAT(Get(x), ElementsAre(1, 2));
}

TEST_F(CapturingDeviceTest, DeviceCallsAcceptAllocatedHostMemory) {
  const DeviceMemory x = Make({7, 8});
  auto host = device_.AllocateHost(2 * sizeof(float));
  ASSERT_TRUE(host.ok()) << host.status();
  const auto graph = Capture([&] { device_.Copy(host->data(), x.data(), x.bytes()); });
  graph->Launch();
  EXPECT_THAT(absl::MakeConstSpan(host->as<float>(), 2), ElementsAre(7, 8));
}

TEST_F(CapturingDeviceTest, EventsCompleteLate) {
  auto event = device_.MakeEvent(), other = device_.MakeEvent();
  EXPECT_TRUE(event->Done()) << "no calls precede it";
  event->Record();
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(event->Done()) << i;
    other->Record();
  }
  EXPECT_TRUE(event->Done());
  EXPECT_FALSE(other->Done());
  EXPECT_TRUE(other->Wait().ok());
  EXPECT_TRUE(other->Done());
}

// A task for a second stream that doubles the numbers at `data` when the stream is queried twice.
struct Doubling {
  float* data;
  size_t count;
  int asked = 0;
};
void GiveDoubling(DeviceStream& stream, float* data, size_t count) {
  auto* const queue = static_cast<HostStreamAbi*>(stream.native());
  const auto step = [](void* task) {
    auto& doubling = *static_cast<Doubling*>(task);
    if (++doubling.asked % 2 != 0) return 0;
    for (size_t i = 0; i < doubling.count; ++i) doubling.data[i] *= 2;
    return 1;
  };
  queue->enqueue(queue, {.step = step,
                         .release = [](void* task) { delete static_cast<Doubling*>(task); },
                         .data = new Doubling{data, count},
                         .accesses = nullptr,
                         .access_count = 0});
}

TEST_F(CapturingDeviceTest, SecondStreamIsOrderedWithCalls) {
  auto stream = device_.MakeStream();
  ASSERT_TRUE(stream.ok()) << stream.status();
  ASSERT_TRUE((*stream)->Enter().ok());
  const DeviceMemory x = Make({1, 2}), y = Make({10, 20});
  const auto call = [&] {
    kernels_.accumulate(DataType::kFloat32, 2, x.data(), y.data());
    const auto computed = (*stream)->RecordComputeEvent();
    EXPECT_TRUE((*stream)->AwaitCompute(*computed).ok());
    GiveDoubling(**stream, y.as<float>(), 2);
    const auto end = (*stream)->Record();
    if (!(*stream)->IsCapturing()) {
      EXPECT_FALSE(*(*stream)->Reached(*end));
    }
    EXPECT_TRUE((*stream)->MakeComputeWait(*end).ok());
    kernels_.accumulate(DataType::kFloat32, 2, x.data(), y.data());
  };
  call();
  EXPECT_THAT(Get(y), ElementsAre(2 * 11 + 1, 2 * 22 + 2));
  const auto graph = Capture(call);
  EXPECT_THAT(Get(y), ElementsAre(23, 46)) << "not before the launch";
  graph->Launch();
  EXPECT_THAT(Get(y), ElementsAre(2 * 24 + 1, 2 * 48 + 2));
  graph->Launch();
  EXPECT_THAT(Get(y), ElementsAre(2 * 50 + 1, 2 * 100 + 2));
  EXPECT_EQ((*stream)->flag(), 0u);
}

}  // namespace
}  // namespace muster::kernels
