#include "coordinator/scheduler_config.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

core::SchedulerOptions Parse(const std::string& text) {
  const auto options = ParseSchedulerConfig(text, "s.yaml");
  EXPECT_TRUE(options.ok()) << options.status();
  return options.ok() ? *options : core::SchedulerOptions();
}

std::string ErrorOf(const std::string& text) {
  return std::string(ParseSchedulerConfig(text, "s.yaml").status().message());
}

TEST(SchedulerConfig, EmptyFileGivesDefaults) {
  EXPECT_EQ(Parse("").ageing, absl::Hours(24));
  EXPECT_EQ(Parse("# nothing\n").backfill_depth, 256u);
}

TEST(SchedulerConfig, ReadsAllFields) {
  const core::SchedulerOptions options = Parse(R"(
ageing: 90m
overdue_percent: 10
half_life: 14d
lookahead: 10m
shares: {default: 2, alice: 4.5}
limits:
  alice: {running_slots: 64}
  default: {running_slots: 16, queued_jobs: 100}
preemption: false
reservations: 3
backfill_depth: 50
highest_class: {submit: high}
)");
  EXPECT_EQ(options.ageing, absl::Minutes(90));
  EXPECT_EQ(options.overdue_percent, 10u);
  EXPECT_EQ(options.half_life, absl::Hours(14 * 24));
  EXPECT_EQ(options.lookahead, absl::Minutes(10));
  EXPECT_EQ(options.ShareOf("alice"), 4.5);
  EXPECT_EQ(options.ShareOf("bob"), 2);
  EXPECT_EQ(options.LimitsOf("alice").running_slots, 64u);
  EXPECT_EQ(options.LimitsOf("alice").queued_jobs, 100u) << "the default";
  EXPECT_EQ(options.LimitsOf("bob").running_slots, 16u);
  EXPECT_FALSE(options.preemption);
  EXPECT_EQ(options.reservations, 3u);
  EXPECT_EQ(options.backfill_depth, 50u);
  EXPECT_EQ(options.highest_class.at("submit"), "high");
  EXPECT_EQ(options.highest_class.at("admin"), "critical");
}

TEST(SchedulerConfig, ErrorsNameFileAndLine) {
  EXPECT_EQ(ErrorOf("ageing: 24h\nagein: 3h\n"),
            "s.yaml:2: unknown field agein; did you mean 'ageing'?");
  EXPECT_EQ(ErrorOf("limits:\n  bob: {running_slots: many}"),
            "s.yaml:2: limits.bob.running_slots: 'many' is not a whole number from 0 to 1000000");
  EXPECT_EQ(ErrorOf("half_life: -3h"),
            "s.yaml:1: half_life: '-3h' is not a positive duration such as 90m, 24h or 7d");
  EXPECT_EQ(ErrorOf("shares: {bob: 0}"),
            "s.yaml:1: shares.bob: '0' is not a number from 0.001 to 1000000");
  EXPECT_EQ(ErrorOf("preemption: maybe"), "s.yaml:1: preemption: 'maybe' is not true or false");
  EXPECT_EQ(ErrorOf("highest_class: {submit: urgent}"),
            "s.yaml:1: highest_class.submit: 'urgent' is not low, normal, high or critical");
  EXPECT_EQ(ErrorOf("shares: 3"),
            "s.yaml:1: shares: expected names of owners, or 'default', with values");
  EXPECT_THAT(ErrorOf("- a"), HasSubstr("s.yaml:1: the file: expected fields"));
  EXPECT_THAT(ErrorOf("a: [\n"), HasSubstr("s.yaml:"));
}

TEST(SchedulerConfig, MissingFileIsAnError) {
  EXPECT_THAT(ReadSchedulerConfig("/nonexistent/s.yaml").status().message(),
              HasSubstr("cannot read --scheduler-config=/nonexistent/s.yaml"));
}

}  // namespace
}  // namespace muster
