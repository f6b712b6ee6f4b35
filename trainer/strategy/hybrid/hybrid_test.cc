// Expects several nodes, each with one process and several devices, to train as one device does.
#include "trainer/strategy/hybrid/hybrid.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/data/testing.h"
#include "trainer/strategy/testing.h"

namespace muster::train {
namespace {

TEST(HybridTest, TrainsLikeOneDeviceWithSynchronizedBatchNorm) {
  const data::TemporaryDirectory data;
  data::WriteSyntheticDataset(data.path(), 330, 50);
  v1::JobSpec spec = SmallTraining(data.path(), 12);
  spec.mutable_train()->mutable_model()->set_batch_norm(true);
  spec.mutable_train()->set_sync_batch_norm(true);
  const v1::TrainSummary one = TrainRanks(spec, {})[0];

  spec.mutable_train()->mutable_strategy()->set_name("hybrid");
  TestWorld world;
  world.backend = "gloo";
  world.ranks_on_node = {1, 1};
  world.devices.assign(2, &kernels::CpuDevice());
  const std::vector<v1::TrainSummary> nodes = TrainRanks(spec, world);
  EXPECT_EQ(nodes[0].strategy(), "hybrid");
  EXPECT_EQ(nodes[1].weights_digest(), nodes[0].weights_digest());
  ExpectLossesNear(nodes[0], one, 1e-3);
  ASSERT_EQ(nodes[0].devices_size(), 4);
  EXPECT_EQ(nodes[0].devices(1).rank(), 0u);
  EXPECT_EQ(nodes[0].devices(2).rank(), 1u);
  ASSERT_EQ(nodes[0].parts_size(), 10);
  EXPECT_EQ(nodes[0].parts(8).name(), "exchange");
  EXPECT_GT(nodes[0].parts(8).seconds(), 0);
}

}  // namespace
}  // namespace muster::train
