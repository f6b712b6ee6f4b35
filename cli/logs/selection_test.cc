#include "cli/logs/selection.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::cli {
namespace {

using ::testing::ElementsAre;

TEST(RankSetTest, ParsesRanksAndRanges) {
  EXPECT_THAT(*ParseRankSet("0"), ElementsAre(0u));
  EXPECT_THAT(*ParseRankSet("0,3-5"), ElementsAre(0u, 3u, 4u, 5u));
  EXPECT_THAT(*ParseRankSet("5,1-2,2,1"), ElementsAre(1u, 2u, 5u));
  EXPECT_THAT(*ParseRankSet("7-7"), ElementsAre(7u));
}

TEST(RankSetTest, RejectsAndNamesInvalidParts) {
  for (const char* text : {"", ",", "a", "1,,2", "-1", "3-", "5-3", "1-2-3", "1.5", "0,x",
                           "0-4294967295", "4294967296", "0-999999999"}) {
    EXPECT_EQ(ParseRankSet(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_EQ(ParseRankSet("0,x").status().message(),
            "'x' is not a rank or a range of ranks such as 3-5");
}

TEST(ParseSinceTest, DurationsAndTimes) {
  const absl::Time now = absl::FromUnixSeconds(1'795'000'000);
  EXPECT_EQ(*ParseSince("10m", now), now - absl::Minutes(10));
  EXPECT_EQ(*ParseSince("1h30m", now), now - absl::Minutes(90));
  EXPECT_EQ(*ParseSince("2026-11-18T11:06:40Z", now), absl::FromUnixSeconds(1'795'000'000));
  EXPECT_EQ(*ParseSince("2026-11-18T12:06:40.5+01:00", now),
            absl::FromUnixMillis(1'795'000'000'500));
  for (const char* text : {"", "10", "yesterday", "2026-11-18", "-10m", "infinite-future"}) {
    EXPECT_EQ(ParseSince(text, now).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace

}  // namespace muster::cli
