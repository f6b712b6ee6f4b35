#include "coordinator/service/http/node_index.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::service {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

v1::Node MakeNode(const std::string& name) {
  v1::Node node;
  node.set_name(name);
  node.set_state(v1::READY);
  node.add_slots()->set_job_id("job");
  node.add_slots();
  node.add_slots()->set_unavailable("gone");
  v1::Slot& returning = *node.add_slots();
  returning.set_unavailable("memory is being freed");
  returning.set_returning(true);
  return node;
}

std::shared_ptr<const Snapshot> SnapshotOf(std::vector<v1::Node> nodes) {
  auto snapshot = std::make_shared<Snapshot>();
  snapshot->nodes = std::move(nodes);
  return snapshot;
}

TEST(NodeTile, ShowsStateAndSlots) {
  v1::Node node = MakeNode("a");
  EXPECT_EQ(NodeTileJson(node), R"({"n":"a","s":"ready","d":"#.!~"})");
  node.set_cordoned(true);
  node.set_leaving(true);
  node.set_conflict("another cluster");
  node.set_failed_launches(2);
  EXPECT_EQ(NodeTileJson(node),
            R"({"n":"a","s":"ready","d":"#.!~","c":true,"l":true,"x":true,"f":2})");
}

TEST(NodeIndex, ReturnsOnlyWhatHasChanged) {
  NodeIndex index;
  v1::Node a = MakeNode("a");
  const v1::Node b = MakeNode("b");
  index.Update(SnapshotOf({a, b}));
  const NodeIndex::Changes all = index.Since(0);
  EXPECT_EQ(all.rows.size(), 2u);
  a.mutable_heartbeat_age()->set_seconds(3);
  index.Update(SnapshotOf({a, b}));
  EXPECT_TRUE(index.Since(all.version).empty()) << "the age of a heartbeat is not shown";
  a.set_state(v1::LOST);
  index.Update(SnapshotOf({a, b}));
  const NodeIndex::Changes lost = index.Since(all.version);
  EXPECT_THAT(lost.rows, ElementsAre(NodeTileJson(a)));
  EXPECT_TRUE(index.Since(lost.version).empty());
}

TEST(NodeIndex, ReportsRemovedNodesToPagesThatHaveThem) {
  NodeIndex index;
  index.Update(SnapshotOf({MakeNode("a"), MakeNode("b")}));
  const uint64_t version = index.Since(0).version;
  index.Update(SnapshotOf({MakeNode("b")}));
  EXPECT_THAT(index.Since(version).gone, ElementsAre("a"));
  EXPECT_THAT(index.Since(0).gone, IsEmpty());
  EXPECT_EQ(index.Since(0).rows.size(), 1u);
  index.Update(SnapshotOf({MakeNode("a"), MakeNode("b")}));
  EXPECT_THAT(index.Since(version + 1).rows, ElementsAre(NodeTileJson(MakeNode("a"))));
}

}  // namespace
}  // namespace muster::service
