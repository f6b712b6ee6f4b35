#include "coordinator/core/owners/priority_class.h"

#include "gtest/gtest.h"

namespace muster::core {
namespace {

TEST(RankOfClass, OrdersClasses) {
  EXPECT_LT(RankOfClass("low"), RankOfClass("normal"));
  EXPECT_LT(RankOfClass("normal"), RankOfClass("high"));
  EXPECT_LT(RankOfClass("high"), RankOfClass("critical"));
  EXPECT_EQ(RankOfClass(""), RankOfClass("normal"));
  EXPECT_EQ(RankOfClass("urgent"), std::nullopt);
}

TEST(CheckPriorityClass, BoundsClassByRole) {
  const SchedulerOptions limits;
  EXPECT_TRUE(CheckPriorityClass("low", false, limits).ok());
  EXPECT_TRUE(CheckPriorityClass("normal", false, limits).ok());
  const absl::Status refused = CheckPriorityClass("high", false, limits);
  EXPECT_TRUE(absl::IsPermissionDenied(refused));
  EXPECT_EQ(refused.message(),
            "priority_class: high is above normal, the highest class of role submit; use normal, "
            "or have an admin submit the job");
  EXPECT_TRUE(CheckPriorityClass("critical", true, limits).ok());
}

TEST(CheckPriorityClass, FollowsTheConfiguration) {
  SchedulerOptions limits;
  limits.highest_class = {{"submit", "high"}, {"admin", "high"}};
  EXPECT_TRUE(CheckPriorityClass("high", false, limits).ok());
  EXPECT_EQ(CheckPriorityClass("critical", true, limits).message(),
            "priority_class: critical is above high, the highest class of role admin; use high");
}

TEST(CheckPriorityClass, RefusesUnknownClass) {
  EXPECT_TRUE(absl::IsInvalidArgument(CheckPriorityClass("urgent", true, {})));
}

}  // namespace
}  // namespace muster::core
