#include "worker/agent/generation/rank_launch.h"

#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::agent {
namespace {

TEST(PlaceholdersTest, ReplacesPlaceholders) {
  const Placeholders values = {.rank = 5, .local_rank = 1, .node_rank = 2, .node = "node-c"};
  const std::pair<const char*, const char*> cases[] = {
      {"--local_rank={local_rank}", "--local_rank=1"},
      {"{rank}", "5"},
      {"/data/{node}/{node_rank}-{rank}.bin", "/data/node-c/2-5.bin"},
      {"{{rank}}", "{5}"},
      {"{ranks}{rank", "{ranks}{rank"},
      {"${rank}", "${rank}"},
      {"print(f'{rank} of {world}')", "print(f'{rank} of {world}')"},
      {"", ""},
  };
  for (const auto& [argument, expected] : cases) {
    EXPECT_EQ(ReplacePlaceholders(argument, values), expected) << argument;
  }
}

TEST(PlaceholdersTest, ReplacesTheIndexOfATask) {
  EXPECT_EQ(ReplacePlaceholders("--seed={array_index}", {.rank = 5, .array_index = 11}),
            "--seed=11");
  EXPECT_EQ(ReplacePlaceholders("--seed={array_index}", {.rank = 5}), "--seed={array_index}");
}

TEST(PlaceholdersTest, DoesNotReplaceInValues) {
  EXPECT_EQ(ReplacePlaceholders("{node}", {.rank = 5, .node = "{rank}"}), "{rank}");
}

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

TEST(CheckTrackedTest, NeedsMarkOrControlGroup) {
  GenerationContext context;
  context.environment.node_name = "node-1";
  shim::Instructions instructions;
  const absl::Status refused = CheckTracked(context, instructions);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_THAT(std::string(refused.message()), testing::HasSubstr("of a rank on node-1"));
  instructions.mark = 1;
  EXPECT_TRUE(CheckTracked(context, instructions).ok());
  instructions.mark = 0;
  instructions.cgroup = "/sys/fs/cgroup/muster-1";
  EXPECT_TRUE(CheckTracked(context, instructions).ok());
}

}  // namespace

}  // namespace muster::agent
