#include "trainer/optim/state_snapshot.h"

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/device_floats.h"
#include "kernels/testing/limited_device.h"
#include "trainer/models/model.h"

namespace muster::train {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::unique_ptr<nn::Plan> CompileSmallCnn(kernels::Device& device) {
  v1::ModelSpec spec;
  spec.set_name("small_cnn");
  const auto graph = nn::BuildModel(spec, {8, 8, 1}, 10);
  EXPECT_TRUE(graph.ok()) << graph.status();
  auto plan = nn::Compile(*graph, {.max_batch = 2, .device = &device});
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

// An array in the layout of the plan's parameters or buffers, and the values of its tensors in the
// canonical order.
struct FlatArray {
  FlatArray(nn::Plan& plan, absl::Span<const nn::ParameterInfo> tensors, size_t elements,
            float first)
      : memory(*kernels::DeviceFloats::Create(plan.device(), elements, "snapshot")) {
    plan.Bind(tensors.data() == plan.parameters().data() ? memory.get() : nullptr, nullptr,
              tensors.data() == plan.buffers().data() ? memory.get() : nullptr);
    for (const nn::ParameterInfo& tensor : tensors) {
      const size_t count = std::accumulate(tensor.shape.begin(), tensor.shape.end(), size_t{1},
                                           [](size_t a, int64_t b) { return a * b; });
      std::vector<float>& numbers = values.emplace_back(count);
      std::iota(numbers.begin(), numbers.end(), first);
      first += static_cast<float>(count);
      EXPECT_TRUE(plan.Import(tensor, numbers).ok());
    }
  }
  kernels::DeviceFloats memory;
  std::vector<std::vector<float>> values;  // by tensor
};

std::vector<std::vector<float>> ValuesOf(const std::vector<Tensor>& tensors) {
  std::vector<std::vector<float>> values;
  for (const Tensor& tensor : tensors) {
    if (const auto* view = std::get_if<absl::Span<const float>>(&tensor.values)) {
      values.emplace_back(view->begin(), view->end());
    }
  }
  return values;
}

std::vector<const float*> AddressesOf(const std::vector<Tensor>& tensors) {
  std::vector<const float*> addresses;
  for (const Tensor& tensor : tensors) {
    addresses.push_back(std::get<absl::Span<const float>>(tensor.values).data());
  }
  return addresses;
}

class StateSnapshotTest : public ::testing::Test {
 protected:
  // Its memory is not reported as host memory, as that of a GPU.
  kernels::LimitedDevice device_;
  const std::unique_ptr<nn::Plan> plan_ = CompileSmallCnn(device_);
  FlatArray Parameters(float first) {
    return {*plan_, plan_->parameters(), plan_->parameter_elements(), first};
  }
  FlatArray Buffers(float first) {
    return {*plan_, plan_->buffers(), plan_->buffer_elements(), first};
  }
};

TEST_F(StateSnapshotTest, ConvertsCopiesToNamedTensors) {
  const FlatArray parameters = Parameters(1), buffers = Buffers(2), momentum = Parameters(3);
  StateSnapshot snapshot;
  snapshot.Begin(plan_.get(), {}, /*batches=*/7);
  ASSERT_TRUE(snapshot.CopyParameters(&ModelTensors::model, parameters.memory.get()).ok());
  ASSERT_TRUE(snapshot.CopyBuffers(&ModelTensors::model, buffers.memory.get()).ok());
  ASSERT_TRUE(
      snapshot.CopyParameters(&ModelTensors::optimizer, momentum.memory.get(), "momentum").ok());
  // The training continues.
  device_.Zero(parameters.memory.get(), parameters.memory.bytes());
  device_.Zero(buffers.memory.get(), buffers.memory.bytes());
  const ModelTensors tensors = snapshot.Convert();

  std::vector<std::vector<float>> expected = parameters.values;
  expected.insert(expected.end(), buffers.values.begin(), buffers.values.end());
  EXPECT_EQ(ValuesOf(tensors.model), expected);
  EXPECT_EQ(ValuesOf(tensors.optimizer), momentum.values);
  EXPECT_THAT(tensors.average, IsEmpty());
  EXPECT_EQ(tensors.model[0].name, "0.weight");
  EXPECT_EQ(tensors.model[0].shape, plan_->parameters()[0].shape);
  EXPECT_EQ(tensors.optimizer[0].name, "0.weight.momentum");
  const Tensor& batches = tensors.model.back();
  EXPECT_THAT(batches.name, ::testing::EndsWith(".num_batches_tracked"));
  EXPECT_THAT(batches.shape, IsEmpty());
  EXPECT_THAT(std::get<std::vector<int64_t>>(batches.values), ElementsAre(7));
}

TEST_F(StateSnapshotTest, ReusesMemory) {
  const FlatArray first = Parameters(1), second = Parameters(2);
  StateSnapshot snapshot;
  std::vector<std::vector<const float*>> addresses;
  for (const FlatArray* const parameters : {&first, &second, &first}) {
    snapshot.Begin(plan_.get(), {}, 0);
    ASSERT_TRUE(snapshot.CopyParameters(&ModelTensors::model, parameters->memory.get()).ok());
    const ModelTensors tensors = snapshot.Convert();
    EXPECT_EQ(ValuesOf(tensors.model), parameters->values);
    addresses.push_back(AddressesOf(tensors.model));
  }
  EXPECT_EQ(addresses[1], addresses[0]);
  EXPECT_EQ(addresses[2], addresses[0]);
}

TEST_F(StateSnapshotTest, ContainsOnlyTensorsOfItsRange) {
  const FlatArray parameters = Parameters(1), buffers = Buffers(2);
  const auto infos = plan_->parameters();
  StateSnapshot snapshot;
  for (const bool with_buffers : {false, true}) {
    snapshot.Begin(plan_.get(),
                   {.begin = infos[1].offset, .end = infos[3].offset, .buffers = with_buffers}, 0);
    ASSERT_TRUE(snapshot.CopyParameters(&ModelTensors::average, parameters.memory.get()).ok());
    ASSERT_TRUE(snapshot.CopyBuffers(&ModelTensors::average, buffers.memory.get()).ok());
    std::vector<std::vector<float>> expected = {parameters.values[1], parameters.values[2]};
    if (with_buffers) {
      expected.insert(expected.end(), buffers.values.begin(), buffers.values.end());
    }
    EXPECT_EQ(ValuesOf(snapshot.Convert().average), expected);
  }
  snapshot.Begin(plan_.get(), {.begin = 0, .end = 0, .buffers = false}, 0);
  ASSERT_TRUE(snapshot.CopyParameters(&ModelTensors::model, nullptr).ok());
  ASSERT_TRUE(snapshot.CopyBuffers(&ModelTensors::model, nullptr).ok());
  EXPECT_THAT(snapshot.Convert().model, IsEmpty());
}

TEST_F(StateSnapshotTest, AppendsTensorsOfOtherRanks) {
  const FlatArray parameters = Parameters(1);
  StateSnapshot snapshot;
  snapshot.Begin(plan_.get(), {}, 0);
  ASSERT_TRUE(snapshot.CopyParameters(&ModelTensors::model, parameters.memory.get()).ok());
  snapshot.AddTensors({.model = {{"last", {}, std::vector<float>{1}}}});
  const ModelTensors tensors = snapshot.Convert();
  ASSERT_THAT(tensors.model, SizeIs(plan_->parameters().size() + 1));
  EXPECT_EQ(tensors.model.back().name, "last");
  snapshot.Begin(plan_.get(), {}, 0);
  EXPECT_THAT(snapshot.Convert().model, IsEmpty());
}

}  // namespace
}  // namespace muster::train
