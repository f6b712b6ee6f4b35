#include "collectives/nccl/nccl_config.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace muster::collectives {
namespace {

TEST(NcclConfigTest, EnvironmentOverridesMaxCtas) {
  unsetenv("NCCL_MAX_CTAS");
  unsetenv("NCCL_MIN_CTAS");
  EXPECT_EQ(MakeNcclConfig().max_ctas, kNcclMaxCtas);
  EXPECT_EQ(MakeNcclConfig(4).max_ctas, 4);
  setenv("NCCL_MAX_CTAS", "32", 1);
  EXPECT_EQ(MakeNcclConfig().max_ctas, kNcclUndefined);
  unsetenv("NCCL_MAX_CTAS");
  setenv("NCCL_MIN_CTAS", "32", 1);
  EXPECT_EQ(MakeNcclConfig().max_ctas, kNcclUndefined);
  unsetenv("NCCL_MIN_CTAS");
}

TEST(NcclConfigTest, IsNonBlockingAndKeepsDefaults) {
  const NcclConfig config = MakeNcclConfig();
  EXPECT_EQ(config.blocking, 0);
  EXPECT_EQ(config.min_ctas, kNcclUndefined);
  EXPECT_EQ(config.cga_cluster_size, kNcclUndefined);
  EXPECT_EQ(config.split_share, kNcclUndefined);
  EXPECT_EQ(config.net_name, nullptr);
}

}  // namespace
}  // namespace muster::collectives
