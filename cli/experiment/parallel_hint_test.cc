#include "cli/experiment/parallel_hint.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace muster::cli {
namespace {

v1::Node NodeWithFreeSlots(int slots) {
  v1::Node node;
  node.set_state(v1::READY);
  for (int i = 0; i < slots; ++i) node.add_slots();
  node.add_slots()->set_job_id("other-x7k2q");
  node.add_slots()->set_unavailable("unhealthy");
  return node;
}

std::vector<Cell> CellsOf(int count, uint32_t ranks) {
  std::vector<Cell> cells(count);
  for (Cell& cell : cells) {
    cell.defaulted.mutable_resources()->mutable_nodes()->set_max(1);
    cell.defaulted.mutable_resources()->set_ranks_per_node(ranks);
  }
  return cells;
}

TEST(ParallelHintTest, CountsJobsThatFreeSlotsHold) {
  const std::vector<v1::Node> nodes = {NodeWithFreeSlots(3), NodeWithFreeSlots(2)};
  EXPECT_EQ(ParallelHint(CellsOf(8, 1), nodes),
            "5 slots are free: --parallel 5 runs up to 5 jobs at a time; their times are then not "
            "comparable");
  EXPECT_EQ(ParallelHint(CellsOf(8, 2), nodes).substr(0, 30), "5 slots are free: --parallel 2");
  EXPECT_EQ(ParallelHint(CellsOf(3, 1), nodes).substr(0, 30), "5 slots are free: --parallel 3");
}

TEST(ParallelHintTest, IsEmptyWithoutUse) {
  std::vector<v1::Node> nodes = {NodeWithFreeSlots(3)};
  EXPECT_EQ(ParallelHint(CellsOf(1, 1), nodes), "");
  EXPECT_EQ(ParallelHint(CellsOf(8, 2), nodes), "");
  std::vector<Cell> cells = CellsOf(2, 1);
  cells[1].skip_reason = "measured elsewhere";
  EXPECT_EQ(ParallelHint(cells, nodes), "");
  nodes[0].set_state(v1::LOST);
  EXPECT_EQ(ParallelHint(CellsOf(8, 1), nodes), "");
  EXPECT_EQ(ParallelHint(CellsOf(8, 1), {}), "");
}

}  // namespace
}  // namespace muster::cli
