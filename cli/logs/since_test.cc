#include "cli/logs/since.h"

#include "gtest/gtest.h"

namespace muster::cli {
namespace {

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
