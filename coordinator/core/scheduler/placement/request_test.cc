#include "coordinator/core/scheduler/placement/request.h"

#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A node with labels and GPUs of the given models and sizes.
Node MakeNode(const std::map<std::string, std::string>& labels,
              const std::vector<std::pair<std::string, uint64_t>>& gpus = {}) {
  Node node;
  node.record.set_name("n-1");
  node.state = v1::READY;
  node.hello.mutable_labels()->insert(labels.begin(), labels.end());
  for (size_t i = 0; i < gpus.size(); ++i) {
    v1::Slot& slot = *node.hello.add_slots();
    slot.set_index(static_cast<uint32_t>(i));
    slot.set_kind("gpu");
    slot.mutable_device()->set_name(gpus[i].first);
    slot.mutable_device()->set_memory_bytes(gpus[i].second);
  }
  return node;
}

FreeNode OfferFor(const v1::Resources& resources, const Node& node) {
  FreeNode offer = *node.Offer("gpu");
  Restrict(RequestOf(resources), node, /*vacant=*/false, offer);
  return offer;
}

TEST(Shapes, AreDerivedFromSpec) {
  v1::Resources resources;
  EXPECT_EQ(ShapeOf(resources).min_nodes, 1u);
  EXPECT_EQ(ShapeOf(resources).devices_per_rank, 1u);
  resources.mutable_nodes()->set_min(2);
  resources.set_devices_per_rank("4");
  EXPECT_EQ(ShapeOf(resources).max_nodes, 2u);
  EXPECT_EQ(ShapeOf(resources).devices_per_rank, 4u);
  resources.set_devices_per_rank("all");
  EXPECT_EQ(ShapeOf(resources).devices_per_rank, std::nullopt);
}

TEST(Requests, SelectByLabel) {
  v1::Resources resources;
  (*resources.mutable_select())["gpu"] = "h100";
  const Request request = RequestOf(resources);
  EXPECT_EQ(WhyUnsuitable(request, MakeNode({{"gpu", "h100"}, {"rack", "a"}})), "");
  EXPECT_EQ(WhyUnsuitable(request, MakeNode({{"gpu", "a100"}})), "label gpu is a100, not h100");
  EXPECT_EQ(WhyUnsuitable(request, MakeNode({})), "has no label gpu (h100 needed)");
}

TEST(Requests, ExcludeAndPreferNodes) {
  v1::Resources resources;
  resources.add_exclude_nodes("n-1");
  EXPECT_EQ(WhyUnsuitable(RequestOf(resources), MakeNode({})), "excluded by the job");
  resources.clear_exclude_nodes();
  EXPECT_FALSE(OfferFor(resources, MakeNode({}, {{"NVIDIA H100", 1}})).preferred);
  resources.add_prefer_nodes("n-1");
  EXPECT_TRUE(OfferFor(resources, MakeNode({}, {{"NVIDIA H100", 1}})).preferred);
}

TEST(Requests, SelectGpusByModelAndMemory) {
  const uint64_t gib = uint64_t{1} << 30;
  const Node node = MakeNode(
      {}, {{"NVIDIA H100 80GB HBM3", 80 * gib}, {"NVIDIA A100", 40 * gib}, {"NVIDIA H100", gib}});
  v1::Resources resources;
  resources.set_gpu_model("h100");
  EXPECT_THAT(RequestOf(resources).kinds, ElementsAre("gpu"));
  EXPECT_THAT(OfferFor(resources, node).free_slots, ElementsAre(0, 2));
  EXPECT_EQ(OfferFor(resources, node).slot_count, 2u);
  resources.set_gpu_memory(64 * gib);
  EXPECT_THAT(OfferFor(resources, node).free_slots, ElementsAre(0));
}

TEST(Requests, CountUnacceptableBusySlotsOnce) {
  Node node = MakeNode({}, {{"NVIDIA H100", 1}, {"NVIDIA A100", 1}});
  node.ranks.Occupy({JobId("other"), Generation(1), 0}, {1});
  v1::Resources resources;
  resources.set_gpu_model("H100");
  EXPECT_EQ(OfferFor(resources, node).slot_count, 1u);
  EXPECT_THAT(OfferFor(resources, node).free_slots, ElementsAre(0));
}

TEST(Requests, ExclusiveJobsNeedIdleNodes) {
  Node node = MakeNode({}, {{"NVIDIA H100", 1}, {"NVIDIA H100", 1}});
  v1::Resources resources;
  resources.set_exclusive(true);
  EXPECT_THAT(OfferFor(resources, node).free_slots, ElementsAre(0, 1));
  const RankRef other{JobId("other"), Generation(1), 0};
  node.ranks.Occupy(other, {1});
  EXPECT_THAT(OfferFor(resources, node).free_slots, IsEmpty());
  EXPECT_THAT(OfferFor({}, node).free_slots, ElementsAre(0));
  node.ranks.Vacate(other);

  // No other job gets a slot beside an exclusive job.
  const RankRef exclusive{JobId("alone"), Generation(1), 0};
  node.ranks.Occupy(exclusive, {0}, /*exclusive=*/true);
  EXPECT_THAT(OfferFor({}, node).free_slots, IsEmpty());
  node.ranks.Vacate(exclusive);
  EXPECT_THAT(OfferFor({}, node).free_slots, ElementsAre(0, 1));
}

TEST(Shares, OfFixedRanksPerNode) {
  const Shape shape{1, 2, 2, 2};
  EXPECT_EQ(ShareOf(shape, 8, 3), std::nullopt);
  ASSERT_TRUE(ShareOf(shape, 8, 5).has_value());
  EXPECT_EQ(ShareOf(shape, 8, 5)->slots(), 4u);
  EXPECT_TRUE(Suffices(shape, 1, 2));
  EXPECT_FALSE(IsComplete(shape, 1, 2));
  EXPECT_TRUE(IsComplete(shape, 2, 4));
}

TEST(Shares, OfTotalNumberOfRanks) {
  Shape shape;
  shape.devices_per_rank = 2;
  shape.total_ranks = 5;
  EXPECT_EQ(ShareOf(shape, 8, 1), std::nullopt);
  EXPECT_EQ(ShareOf(shape, 8, 7)->ranks, 3u);
  EXPECT_EQ(ShareOf(shape, 16, 16)->ranks, 5u);
  EXPECT_FALSE(Suffices(shape, 4, 4));
  EXPECT_TRUE(Suffices(shape, 2, 5));
}

}  // namespace
}  // namespace muster::core
