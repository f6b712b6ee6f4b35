// Plans with several slots of activations: memory use, addresses and limits.
#include <cstdint>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/testing/allocations.h"
#include "gtest/gtest.h"
#include "trainer/graph/cut.h"
#include "trainer/graph/plan.h"
#include "trainer/graph/testing/graphs.h"
#include "trainer/graph/testing/trainer.h"
#include "trainer/models/model.h"

namespace muster::nn {
namespace {

constexpr uint32_t kSamples = 4;

std::unique_ptr<Plan> Compiled(const Graph& graph, CompileOptions options) {
  options.max_batch = kSamples;
  auto plan = Compile(graph, options);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

Graph Model(const std::string& name) {
  v1::ModelSpec spec;
  spec.set_name(name);
  return *BuildModel(spec, {32, 32, 3}, kTestClasses);
}

// The second of three stages: values come in, go out and pass through.
Graph MiddleOf(const Graph& graph, absl::string_view begin, absl::string_view end) {
  return *CutGraph(graph, *FindCutPoint(graph, begin), *FindCutPoint(graph, end));
}

std::vector<TestGraph> Cases() {
  std::vector<TestGraph> cases = TestGraphs();
  for (const std::string name : {"small_cnn", "resnet18", "mobilenet_v2"}) {
    cases.push_back({name, Model(name)});
  }
  cases.push_back({"middle", MiddleOf(SmallResNet(), "layer1.0.bn1", "layer1.0.bn2")});
  return cases;
}

class SlotsTest : public testing::TestWithParam<TestGraph> {
 protected:
  std::unique_ptr<Plan> WithSlots(uint32_t slots, bool recompute = false) const {
    return Compiled(GetParam().graph,
                    {.recompute_activations = recompute, .in_flight_micro_batches = slots});
  }
};

TEST_P(SlotsTest, MemoryGrowsByWhatIsKeptForBackward) {
  for (const bool recompute : {false, true}) {
    const auto one = WithSlots(1, recompute);
    const auto three = WithSlots(3, recompute);
    const auto four = WithSlots(4, recompute);
    EXPECT_EQ(three->slot_bytes(), one->slot_bytes());
    EXPECT_EQ(four->arena_bytes() - three->arena_bytes(), three->slot_bytes());
    EXPECT_LT(one->slot_bytes(), one->arena_bytes());
    EXPECT_LE(three->arena_bytes() - 3 * three->slot_bytes(), one->arena_bytes());
    EXPECT_LT(three->arena_bytes(), 3 * one->arena_bytes());
  }
  EXPECT_LE(WithSlots(3, true)->slot_bytes(), WithSlots(3)->slot_bytes());
}

INSTANTIATE_TEST_SUITE_P(Graphs, SlotsTest, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

TEST(SlotTest, RecomputingReducesSlotBytes) {
  const Graph graph = Model("resnet18");
  EXPECT_LT(Compiled(graph, {.recompute_activations = true})->slot_bytes(),
            Compiled(graph, {})->slot_bytes());
}

TEST(SlotTest, BoundariesDoNotOverlap) {
  const auto plan = Compiled(MiddleOf(SmallResNet(), "layer1.0.bn1", "layer1.0.bn2"),
                             {.in_flight_micro_batches = 3});
  std::set<std::pair<const char*, const char*>> ranges;
  const auto add = [&](const BoundaryTensor& tensor) {
    for (void* const at : {tensor.data, tensor.gradient}) {
      const char* const begin = static_cast<const char*>(at);
      ASSERT_NE(begin, nullptr);
      ranges.insert({begin, begin + kSamples * tensor.sample_bytes});
    }
  };
  for (uint32_t slot = 0; slot < 3; ++slot) {
    plan->SelectSlot(slot);
    ASSERT_EQ(plan->boundary_inputs().size(), 2u);
    ASSERT_EQ(plan->boundary_outputs().size(), 2u);
    for (const BoundaryTensor& tensor : plan->boundary_inputs()) add(tensor);
    for (const BoundaryTensor& tensor : plan->boundary_outputs()) add(tensor);
    const BoundaryTensor& passed = plan->boundary_outputs()[0];
    EXPECT_EQ(passed.name, "maxpool");
    EXPECT_EQ(passed.data, plan->boundary_inputs()[0].data);
    EXPECT_EQ(passed.gradient, plan->boundary_inputs()[0].gradient);
  }
  ASSERT_EQ(ranges.size(), 3u * 3 * 2) << "one input is also an output";
  for (auto it = ranges.begin(); std::next(it) != ranges.end(); ++it) {
    EXPECT_LE(it->second, std::next(it)->first);
  }
  const void* const last = plan->boundary_inputs()[0].data;
  plan->SelectSlot(0);
  EXPECT_NE(plan->boundary_inputs()[0].data, last);
  plan->SelectSlot(2);
  EXPECT_EQ(plan->boundary_inputs()[0].data, last);
}

TEST(SlotTest, ValuesWithoutEarlierParametersHaveNoGradient) {
  Graph graph{{8, 8, 3}, {}};
  const NodeId pool = graph.Add("pool", MaxPool2d{}, {kInput});
  const NodeId conv = graph.Add("conv", Conv2d{3}, {pool});
  const NodeId sum = graph.Add("add", Add{}, {conv, pool});
  const NodeId flat = graph.Add("flatten", Flatten{}, {sum});
  graph.Add("fc", Linear{kTestClasses}, {flat});
  const auto plan = Compiled(*CutGraph(graph, sum, 5), {});
  ASSERT_EQ(plan->boundary_inputs().size(), 2u);
  EXPECT_EQ(plan->boundary_inputs()[0].gradient, nullptr);
  EXPECT_NE(plan->boundary_inputs()[1].gradient, nullptr);
}

TEST(SlotTest, SelectingASlotDoesNotAllocate) {
  TestTrainer trainer(SmallResNet(0.4), {.max_batch = kSamples, .in_flight_micro_batches = 3});
  Plan& plan = trainer.plan();
  for (const bool counted : {false, true}) {
    for (uint32_t slot = 0; slot < 3; ++slot) {
      plan.SelectSlot(slot);
      trainer.Fill(slot, 0, kSamples);
    }
    const int64_t before = Allocations();
    for (const bool forward : {true, false}) {
      for (uint32_t slot = 0; slot < 3; ++slot) {
        plan.SelectSlot(slot);
        if (forward) {
          plan.Forward(kSamples, true, {.seed = 1, .step = slot});
          plan.Loss(kSamples, 0, 1);
        } else {
          plan.Backward(kSamples, nullptr);
        }
      }
    }
    if (counted) EXPECT_EQ(Allocations(), before);
  }
}

TEST(SlotTest, RejectsExcessiveMemory) {
  const auto status = [](uint32_t max_batch, uint32_t slots) {
    return Compile(SmallResNet(), {.max_batch = max_batch, .in_flight_micro_batches = slots})
        .status();
  };
  EXPECT_EQ(status(kSamples, 0).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status(1 << 24, UINT32_MAX).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status(kSamples, UINT32_MAX).code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace muster::nn
