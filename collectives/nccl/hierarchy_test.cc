#include "collectives/nccl/hierarchy.h"

#include <gtest/gtest.h>

#include <vector>

namespace muster::collectives {
namespace {

using Kind = Operation::Kind;

Operation AllReduceOf(std::vector<float>& send, std::vector<float>& recv) {
  Operation operation;
  operation.kind = Kind::kAllReduce;
  operation.send = send.data();
  operation.recv = recv.data();
  operation.count = recv.size();
  operation.type = DataType::kFloat32;
  operation.op = ReduceOp::kMax;
  return operation;
}

TEST(NcclHierarchyTest, SegmentsAreAlignedAndRemainderIsFlat) {
  std::vector<float> send(27), recv(27);
  const auto stages = HierarchicalStages(AllReduceOf(send, recv), {1, 3});
  ASSERT_EQ(stages.size(), 4u);
  EXPECT_EQ(stages[0].level, NcclLevel::kLocal);
  EXPECT_EQ(stages[0].operation.kind, Kind::kReduceScatter);
  EXPECT_EQ(stages[0].operation.send, send.data());
  EXPECT_EQ(stages[0].operation.recv, recv.data() + 8);
  EXPECT_EQ(stages[1].level, NcclLevel::kCross);
  EXPECT_EQ(stages[1].operation.kind, Kind::kAllReduce);
  EXPECT_EQ(stages[1].operation.send, recv.data() + 8);
  EXPECT_EQ(stages[1].operation.recv, recv.data() + 8);
  EXPECT_EQ(stages[2].level, NcclLevel::kLocal);
  EXPECT_EQ(stages[2].operation.kind, Kind::kAllGather);
  EXPECT_EQ(stages[2].operation.send, recv.data() + 8);
  EXPECT_EQ(stages[2].operation.recv, recv.data());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(stages[i].operation.count, 8u);
  EXPECT_EQ(stages[3].level, NcclLevel::kWorld);
  EXPECT_EQ(stages[3].operation.kind, Kind::kAllReduce);
  EXPECT_EQ(stages[3].operation.send, send.data() + 24);
  EXPECT_EQ(stages[3].operation.recv, recv.data() + 24);
  EXPECT_EQ(stages[3].operation.count, 3u);
  for (const NcclStage& stage : stages) EXPECT_EQ(stage.operation.op, ReduceOp::kMax);
}

TEST(NcclHierarchyTest, DivisibleCountHasNoRemainder) {
  std::vector<float> data(32);
  EXPECT_EQ(HierarchicalStages(AllReduceOf(data, data), {0, 4}).size(), 3u);
}

TEST(NcclHierarchyTest, FewElementsAreReducedFlat) {
  std::vector<float> data(15);
  const auto stages = HierarchicalStages(AllReduceOf(data, data), {2, 4});
  ASSERT_EQ(stages.size(), 1u);
  EXPECT_EQ(stages[0].level, NcclLevel::kWorld);
  EXPECT_EQ(stages[0].operation.recv, data.data());
  EXPECT_EQ(stages[0].operation.count, 15u);
}

}  // namespace
}  // namespace muster::collectives
