#include "coordinator/core/owners/memory_budget.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using ::testing::IsEmpty;

TEST(MemoryBudget, OneOwnerGetsHalf) {
  MemoryBudget budget(1000);
  EXPECT_TRUE(budget.Check("alice", 500).ok());
  budget.Add("alice", 400);
  const absl::Status refused = budget.Check("alice", 101);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.message(),
            "the jobs of alice use 400 bytes of the coordinator's memory, and 101 more would "
            "exceed the limit of 500; cancel some or wait until some have been finished for a "
            "minute, or raise --job-memory of the coordinator");
  EXPECT_TRUE(budget.Check("bob", 500).ok());
}

TEST(MemoryBudget, AllOwnersGetTheTotal) {
  MemoryBudget budget(1000);
  budget.Add("alice", 500);
  budget.Add("bob", 400);
  EXPECT_TRUE(budget.Check("carol", 100).ok());
  EXPECT_THAT(std::string(budget.Check("carol", 101).message()),
              ::testing::StartsWith("the jobs of all owners use 900 bytes"));
  EXPECT_TRUE(budget.OwnerHasRoom("carol", 101));
  EXPECT_FALSE(budget.OwnerHasRoom("alice", 1));
}

TEST(MemoryBudget, ForgetsOwnersWithoutMemory) {
  MemoryBudget budget(1000);
  budget.Add("alice", 300);
  budget.Add("bob", 0);
  budget.Remove("alice", 100);
  EXPECT_EQ(budget.used(), 200u);
  budget.Remove("alice", 200);
  EXPECT_EQ(budget.used(), 0u);
  EXPECT_THAT(budget.by_owner(), IsEmpty());
}

// After a start with a lower limit.
TEST(MemoryBudget, RefusesBeyondLimitsAndWithoutOverflow) {
  MemoryBudget budget(1000);
  budget.Add("alice", 5000);
  EXPECT_FALSE(budget.Check("alice", 0).ok());
  EXPECT_TRUE(budget.IsFarBeyond("alice"));
  EXPECT_TRUE(budget.IsFarBeyond("bob"));
  budget.Remove("alice", 4450);
  EXPECT_FALSE(budget.Check("alice", 0).ok());
  EXPECT_FALSE(budget.IsFarBeyond("alice"));
  EXPECT_FALSE(budget.Check("bob", std::numeric_limits<size_t>::max()).ok());
}

}  // namespace
}  // namespace muster::core
