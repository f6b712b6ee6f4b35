#include "worker/agent/generation/rank_launch.h"

#include <string>

#include "gtest/gtest.h"

namespace muster::agent {
namespace {

v1::Resources Limited(uint64_t memory, uint32_t pids) {
  v1::Resources resources;
  resources.set_memory(memory);
  resources.set_pids(pids);
  return resources;
}

TEST(UnenforcedLimitsTest, NamesTheLimitsAndTheReason) {
  GenerationContext context;
  context.environment.node_name = "node-1";
  context.limits_unavailable = "cgroup v2 is not delegated to the worker";
  EXPECT_EQ(UnenforcedLimits(context, Limited(0, 0)), "");
  EXPECT_EQ(UnenforcedLimits(context, Limited(1 << 30, 0)),
            "resources.memory is not enforced on node-1: cgroup v2 is not delegated to the worker");
  EXPECT_EQ(UnenforcedLimits(context, Limited(1 << 30, 7)),
            "resources.memory and resources.pids are not enforced on node-1: cgroup v2 is not "
            "delegated to the worker");
}

TEST(UnenforcedLimitsTest, EmptyWhereTheyAreEnforced) {
  EXPECT_EQ(UnenforcedLimits(GenerationContext(), Limited(1 << 30, 7)), "");
}

}  // namespace
}  // namespace muster::agent
