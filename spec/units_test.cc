#include "spec/units.h"

#include "gtest/gtest.h"

namespace muster::spec {
namespace {

TEST(UnitsTest, ParsesDurations) {
  EXPECT_EQ(*ParseDuration("90s"), absl::Seconds(90));
  EXPECT_EQ(*ParseDuration("10m"), absl::Minutes(10));
  EXPECT_EQ(*ParseDuration("1.5h"), absl::Minutes(90));
  EXPECT_EQ(*ParseDuration("500ms"), absl::Milliseconds(500));
  EXPECT_EQ(*ParseDuration("1h30m"), absl::Minutes(90));
  EXPECT_EQ(*ParseDuration("0s"), absl::ZeroDuration());
}

TEST(UnitsTest, RejectsDurationWithoutUnit) {
  EXPECT_EQ(ParseDuration("90").status().message(), "'90' needs a unit: '90s' or '90m'");
}

TEST(UnitsTest, RejectsMalformedDurations) {
  for (const char* text : {"", "s", "soon", "-5s", "inf", "1x", "1 h 2", "99999999999999h"}) {
    EXPECT_EQ(ParseDuration(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(UnitsTest, ParsesSizes) {
  EXPECT_EQ(*ParseSize("25MiB"), 25u << 20);
  EXPECT_EQ(*ParseSize("25 MiB"), 25u << 20);
  EXPECT_EQ(*ParseSize("1.5GiB"), 3u << 29);
  EXPECT_EQ(*ParseSize("8G"), uint64_t{8} << 30) << "as Slurm and Docker read it";
  EXPECT_EQ(*ParseSize("100MB"), 100'000'000u);
  EXPECT_EQ(*ParseSize("4096"), 4096u);
  EXPECT_EQ(*ParseSize("7B"), 7u);
  EXPECT_EQ(*ParseSize("18446744073709551615"), UINT64_MAX);
}

TEST(UnitsTest, RejectsMalformedSizes) {
  for (const char* text : {"", "MiB", "-1", "1.5B", "1.0001KiB", "18446744073709551616", "1e3",
                           "17179869184GiB", "10 apples", "0x10", "1.2.3MiB", "."}) {
    EXPECT_EQ(ParseSize(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(UnitsTest, PrintedValuesParseToTheSameValue) {
  for (const absl::Duration d :
       {absl::ZeroDuration(), absl::Milliseconds(1), absl::Milliseconds(1500), absl::Seconds(90),
        absl::Hours(36), absl::Nanoseconds(123456789)}) {
    EXPECT_EQ(*ParseDuration(DurationText(d)), d) << DurationText(d);
  }
  for (const uint64_t size : {uint64_t{0}, uint64_t{1}, uint64_t{1023}, uint64_t{1024},
                              uint64_t{25} << 20, uint64_t{3} << 40, UINT64_MAX}) {
    EXPECT_EQ(*ParseSize(SizeText(size)), size) << SizeText(size);
  }
  EXPECT_EQ(SizeText(25 << 20), "25MiB");
}

}  // namespace
}  // namespace muster::spec
