#include "coordinator/core/recovery/rebuild.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Adds a part of job "j": `ranks` on this node.
void AddPart(NodeRecords& node, uint64_t generation, uint32_t node_rank, uint32_t node_count,
             uint32_t world_size, const std::vector<uint32_t>& ranks) {
  v1::Launch& launch = *node.records.add_launches();
  launch.set_job_id("j");
  launch.set_generation(generation);
  launch.set_node_rank(node_rank);
  launch.set_node_count(node_count);
  launch.set_world_size(world_size);
  launch.set_checkpoint_dir("/shared/j");
  v1::GenerationReport& report = *node.records.add_reports();
  for (const uint32_t rank : ranks) {
    launch.add_ranks()->set_rank(rank);
    launch.mutable_ranks(launch.ranks_size() - 1)->add_slots(rank);
    report.add_ranks()->set_rank(rank);
  }
}

NodeRecords NodeOf(const std::string& name) {
  NodeRecords node;
  node.node = name;
  node.address = "10.0.0.1";
  node.incarnation = 7;
  return node;
}

TEST(RebuildJobs, JoinsThePartsOfAllNodes) {
  NodeRecords a = NodeOf("a");
  NodeRecords b = NodeOf("b");
  AddPart(a, 3, 1, 2, 3, {2});
  AddPart(b, 3, 0, 2, 3, {1, 0});
  v1::RankReport& ended = *b.records.mutable_reports(0)->mutable_ranks(0);
  ended.set_phase(v1::EXITED);
  ended.mutable_exit()->set_exit_code(4);
  for (NodeRecords* node : {&a, &b}) {
    v1::GenerationReport& report = *node->records.mutable_reports(0);
    report.add_passed_barriers()->set_group("world");
    report.mutable_passed_barriers(0)->set_sequence(5);
  }
  const std::vector<RebuiltJob> jobs = RebuildJobs({a, b});
  ASSERT_THAT(jobs, SizeIs(1));
  ASSERT_TRUE(jobs[0].record.has_value());
  const v1::GenerationRecord& record = *jobs[0].record;
  EXPECT_EQ(record.generation(), 3u);
  EXPECT_EQ(record.world_size(), 3u);
  ASSERT_EQ(record.nodes_size(), 2);
  EXPECT_EQ(record.nodes(0).node(), "b");
  EXPECT_EQ(record.nodes(0).incarnation(), 7u);
  EXPECT_EQ(record.nodes(0).ranks(1).rank(), 1u) << "sorted";
  EXPECT_EQ(record.nodes(0).ranks(1).exit().exit_code(), 4);
  ASSERT_EQ(record.nodes(0).passed_barriers().barriers_size(), 1);
  EXPECT_EQ(record.nodes(0).passed_barriers().barriers(0).sequence(), 5u);
  EXPECT_FALSE(record.nodes(1).ranks(0).exited());
  EXPECT_FALSE(record.nodes(1).has_passed_barriers()) << "no rank of it has ended";
  EXPECT_EQ(record.nodes(1).ranks(0).slots(0), 2u);
  EXPECT_TRUE(jobs[0].job.status.checkpoint().shared());
  EXPECT_THAT(jobs[0].summary, HasSubstr("was reported by b, a; its ranks continue"));
}

TEST(RebuildJobs, NewestGenerationCounts) {
  NodeRecords a = NodeOf("a");
  AddPart(a, 3, 0, 1, 1, {0});
  AddPart(a, 4, 0, 2, 2, {0});
  const std::vector<RebuiltJob> jobs = RebuildJobs({a});
  ASSERT_THAT(jobs, SizeIs(1));
  EXPECT_EQ(jobs[0].generation, 4u);
  EXPECT_FALSE(jobs[0].record.has_value()) << "a node is missing";
  EXPECT_EQ(jobs[0].job.highest_generation, 4u);
  EXPECT_THAT(jobs[0].summary, HasSubstr("has ranks on 2 nodes"));
}

TEST(RebuildJobs, PartsMustMatch) {
  const auto is_whole = [](std::vector<uint32_t> first, std::vector<uint32_t> second,
                           uint32_t world_size) {
    NodeRecords a = NodeOf("a");
    NodeRecords b = NodeOf("b");
    AddPart(a, 1, 0, 2, world_size, first);
    AddPart(b, 1, 1, 2, world_size, second);
    return RebuildJobs({a, b})[0].record.has_value();
  };
  EXPECT_TRUE(is_whole({0}, {1}, 2));
  EXPECT_FALSE(is_whole({0}, {0}, 2)) << "rank 0 twice";
  EXPECT_FALSE(is_whole({1}, {0}, 2)) << "not numbered node by node";
  EXPECT_FALSE(is_whole({0}, {1}, 3)) << "rank 2 is missing";
  EXPECT_FALSE(is_whole({0}, {}, 1)) << "a node without ranks";
}

TEST(RebuildJobs, NothingWithoutRecords) { EXPECT_THAT(RebuildJobs({NodeOf("a")}), IsEmpty()); }

}  // namespace
}  // namespace muster::core
