// The launches that a counting device states, compared with those of the real kernels and layers on
// the host, with fake NVIDIA libraries that count their runs.
#include "trainer/graph/launch_counter.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "kernels/cuda/counting/counting_device.h"
#include "kernels/cuda/testing/on_host_device.h"
#include "trainer/graph/testing/graphs.h"

namespace muster::nn {
namespace {

constexpr uint32_t kSamples = 3;

struct Arrays {
  kernels::DeviceMemory parameters, gradients, buffers, loss;
};

class CountedPlan {
 public:
  CountedPlan(const Graph& graph, kernels::Device& device, const Precision& precision) {
    auto made = CompiledPlan::Make(
        graph, {.max_batch = kSamples, .device = &device, .precision = precision});
    EXPECT_TRUE(made.ok()) << made.status();
    plan_ = *std::move(made);
    const auto allocate = [&](size_t bytes) { return *device.Allocate(bytes); };
    arrays_ = {allocate(plan_->parameter_elements() * sizeof(float)),
               allocate(plan_->parameter_elements() * sizeof(float)),
               allocate(plan_->buffer_elements() * sizeof(float)), allocate(sizeof(LossResult))};
    plan_->Bind(arrays_.parameters.as<float>(), arrays_.gradients.as<float>(),
                arrays_.buffers.as<float>());
  }

  void Step(LaunchCounter& counter) {
    plan_->Forward(kSamples, /*training=*/true, {});
    counter.Objective([&] {
      plan_->QueueLoss(kSamples, {.scale = 1.0 / kSamples}, arrays_.loss.as<LossResult>());
    });
    plan_->Backward(kSamples, nullptr);
  }
  CompiledPlan* plan() { return plan_.get(); }

 private:
  std::unique_ptr<CompiledPlan> plan_;
  Arrays arrays_;
};

using kernels::GetFakeCublasLt;
using kernels::GetFakeCudnn;
using kernels::HasFakeLibraries;

int64_t LibraryRuns() { return GetFakeCudnn().runs + GetFakeCublasLt().runs; }

// Names of the kernels, copies and memsets that NVIDIA's libraries do not launch.
std::vector<std::string> OwnKernels(const LaunchCounter::Launches& launches) {
  std::vector<std::string> names;
  for (const kernels::Launch& launch : launches) {
    const bool library =
        absl::StartsWith(launch.kernel, "cudnn ") || absl::StartsWith(launch.kernel, "cublaslt ");
    if (!library) names.push_back(launch.kernel);
  }
  return names;
}

class LaunchCounterTest : public ::testing::TestWithParam<TestGraph> {};

INSTANTIATE_TEST_SUITE_P(Graphs, LaunchCounterTest, ::testing::ValuesIn(TestGraphs()),
                         [](const auto& info) { return info.param.name; });

TEST_P(LaunchCounterTest, CountingDeviceStatesWhatKernelsLaunch) {
  if (!HasFakeLibraries()) GTEST_SKIP() << "the fake cuDNN and cuBLASLt are not built";
  const auto counting = kernels::MakeCountingDevice(*kernels::FindGpuModel("h200"));
  const auto on_host = kernels::MakeCudaOnHostDevice({.captures = true});
  for (const int level : {0, 1, 2}) {
    SCOPED_TRACE(level);
    const Precision precision = PrecisionOf(level, kernels::DataType::kBfloat16);
    CountedPlan real(GetParam().graph, *on_host, precision);
    CountedPlan stated(GetParam().graph, *counting, precision);
    {
      // Layers choose their engines in the first step.
      LaunchCounter first(real.plan());
      real.Step(first);
    }
    LaunchCounter counter(real.plan());
    const int64_t before = LibraryRuns();
    real.Step(counter);
    const size_t runs = static_cast<size_t>(LibraryRuns() - before);
    EXPECT_TRUE(on_host->Synchronize().ok()) << on_host->Synchronize();
    LaunchCounter stated_counter(stated.plan());
    stated.Step(stated_counter);
    EXPECT_EQ(stated_counter.total(), counter.total() + runs);
    EXPECT_EQ(stated_counter.objective().size(), counter.objective().size());
    for (size_t i = 0; i < counter.forward().size(); ++i) {
      const Operation& operation = *real.plan()->operations()[i];
      EXPECT_EQ(OwnKernels(stated_counter.forward()[i]), OwnKernels(counter.forward()[i]))
          << operation.name();
      EXPECT_EQ(OwnKernels(stated_counter.backward()[i]), OwnKernels(counter.backward()[i]))
          << operation.name();
    }
  }
}

}  // namespace
}  // namespace muster::nn
