#include "coordinator/core/rendezvous/barriers.h"

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using ::testing::ElementsAre;

v1::BarrierId Id(uint64_t sequence, std::string group = "world") {
  v1::BarrierId id;
  id.set_group(std::move(group));
  id.set_sequence(sequence);
  return id;
}

TEST(BarrierTable, ReleasesWhenTheLastRankArrives) {
  BarrierTable barriers(3);
  const SteadyTime start;
  EXPECT_TRUE(barriers.Arrive(Id(1), {0, 1}, start)->released.empty());
  EXPECT_TRUE(barriers.Arrive(Id(1), {0, 1}, start)->released.empty());
  ASSERT_EQ(barriers.ListOpen().size(), 1u);
  EXPECT_EQ(barriers.ListOpen()[0].missing, 1u);
  EXPECT_THAT(barriers.Missing(Id(1)), ElementsAre(2));
  const auto last = barriers.Arrive(Id(1), {2}, start + absl::Seconds(2));
  ASSERT_EQ(last->released.size(), 1u);
  EXPECT_EQ(last->released[0].sequence(), 1u);
  EXPECT_EQ(barriers.last_wait(), absl::Seconds(2));
  EXPECT_TRUE(barriers.ListOpen().empty());
  EXPECT_TRUE(barriers.Arrive(Id(1), {0}, start)->already_released);
  EXPECT_FALSE(barriers.Arrive(Id(2), {0}, start)->already_released);
}

TEST(BarrierTable, GroupsAreIndependent) {
  BarrierTable barriers(1);
  EXPECT_EQ(barriers.Arrive(Id(5), {0}, {})->released.size(), 1u);
  EXPECT_EQ(barriers.Arrive(Id(1, "mine"), {0}, {})->released.size(), 1u);
}

TEST(BarrierTable, PassedBarrierReleasesEarlierOnesOfItsGroup) {
  BarrierTable barriers(2);
  ASSERT_TRUE(barriers.Arrive(Id(3), {0}, {}).ok());
  ASSERT_TRUE(barriers.Arrive(Id(9), {0}, {}).ok());
  ASSERT_TRUE(barriers.Arrive(Id(3, "other"), {0}, {}).ok());
  const std::vector<v1::BarrierId> released = barriers.MarkPassed(Id(4));
  ASSERT_EQ(released.size(), 1u);
  EXPECT_EQ(released[0].sequence(), 3u);
  EXPECT_EQ(barriers.ListOpen().size(), 2u);
  EXPECT_TRUE(barriers.MarkPassed(Id(2)).empty());
  EXPECT_TRUE(barriers.Arrive(Id(4), {1}, {})->already_released);
}

TEST(BarrierTable, RejectsInvalidIdsAndLimitsOpenBarriers) {
  BarrierTable barriers(2);
  EXPECT_EQ(barriers.Arrive(Id(0), {0}, {}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      barriers.Arrive(Id(1, std::string(limits::kKeyBytes + 1, 'g')), {0}, {}).status().code(),
      absl::StatusCode::kInvalidArgument);
  for (uint64_t i = 1; i <= limits::kBarriersPerGeneration; ++i) {
    ASSERT_TRUE(barriers.Arrive(Id(i), {0}, {}).ok());
  }
  EXPECT_EQ(barriers.Arrive(Id(limits::kBarriersPerGeneration + 1), {0}, {}).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(BarrierTable, LimitsGroups) {
  BarrierTable barriers(1);
  for (size_t i = 0; i < limits::kBarriersPerGeneration; ++i) {
    ASSERT_TRUE(barriers.Arrive(Id(1, absl::StrCat("g", i)), {0}, {}).ok());
  }
  EXPECT_EQ(barriers.Arrive(Id(1, "more"), {0}, {}).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(barriers.Arrive(Id(2, "g0"), {0}, {}).ok());
}

}  // namespace
}  // namespace muster::core
