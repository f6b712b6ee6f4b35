#include "common/random_id.h"

#include <map>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

using ::testing::MatchesRegex;

TEST(RandomIdTest, NumbersDifferAndAreNotZero) {
  std::set<uint64_t> seen;
  uint64_t ones = 0;
  uint64_t zeros = 0;
  for (int i = 0; i < 1000; ++i) {
    const uint64_t id = RandomId();
    EXPECT_NE(id, 0u);
    EXPECT_TRUE(seen.insert(id).second) << id;
    ones |= id;
    zeros |= ~id;
  }
  EXPECT_EQ(ones, UINT64_MAX);  // every bit is drawn
  EXPECT_EQ(zeros, UINT64_MAX);
}

TEST(RandomIdTest, HexIdsHaveTheRequestedLength) {
  EXPECT_THAT(RandomHexId(128), MatchesRegex("[0-9a-f]{32}"));
  EXPECT_THAT(RandomHexId(256), MatchesRegex("[0-9a-f]{64}"));
  EXPECT_NE(RandomHexId(128), RandomHexId(128));
}

TEST(RandomIdTest, WordsUseTheWholeAlphabetUniformly) {
  constexpr int kLength = 30000;
  std::map<char, int> counts;
  for (const char c : RandomId(kLength, "xyz")) ++counts[c];
  ASSERT_EQ(counts.size(), 3u);
  // The standard deviation is 82.
  for (const auto& [c, count] : counts) EXPECT_NEAR(count, kLength / 3, 700) << c;
  EXPECT_EQ(RandomId(3, "a"), "aaa");
  EXPECT_EQ(RandomId(0, "ab"), "");
}

}  // namespace
}  // namespace muster
