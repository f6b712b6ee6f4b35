#include "worker/agent/generation/placeholders.h"

#include <string>
#include <utility>

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

}  // namespace
}  // namespace muster::agent
