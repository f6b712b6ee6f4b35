#include "coordinator/core/rendezvous/keys.h"

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A table with as much memory as it needs.
struct Keys : KeyTable {
  Keys() : KeyTable(budget, "alice") {}
  static inline MemoryBudget budget{size_t{1} << 40};
};

TEST(KeyTable, KeepsTheFirstValue) {
  Keys keys;
  EXPECT_TRUE(keys.Put("k", "v").ok());
  EXPECT_TRUE(keys.Put("k", "v").ok());
  EXPECT_EQ(keys.Put("k", "w").status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(**keys.Get("k", NodeName("a")), "v");
}

TEST(KeyTable, PutReturnsEachWaitingNodeOnce) {
  Keys keys;
  for (const char* node : {"b", "a", "b"}) {
    const auto value = keys.Get("k", NodeName(node));
    ASSERT_TRUE(value.ok());
    EXPECT_EQ(*value, nullptr);
  }
  EXPECT_THAT(*keys.Put("k", "v"), ElementsAre(NodeName("a"), NodeName("b")));
  EXPECT_THAT(*keys.Put("k", "v"), IsEmpty());
}

TEST(KeyTable, RejectsKeysAndValuesThatExceedLimits) {
  Keys keys;
  for (const std::string& key : {std::string(), std::string(limits::kKeyBytes + 1, 'k')}) {
    EXPECT_EQ(keys.Put(key, "v").status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(keys.Get(key, NodeName("a")).status().code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(keys.Put("k", std::string(limits::kValueBytes + 1, 'v')).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(KeyTable, CountsMemoryUntilItEnds) {
  MemoryBudget budget(20000);
  {
    KeyTable keys(budget, "alice");
    ASSERT_TRUE(keys.Put("k", std::string(5000, 'v')).ok());
    const size_t of_one = budget.used();
    EXPECT_GE(of_one, 5001u);
    ASSERT_TRUE(keys.Put("k", std::string(5000, 'v')).ok());
    EXPECT_EQ(budget.used(), of_one);
    for (const char* node : {"a", "b", "b"}) ASSERT_TRUE(keys.Get("w", NodeName(node)).ok());
    EXPECT_GT(budget.used(), of_one);
    EXPECT_EQ(budget.used(), keys.bytes());

    const absl::Status full = keys.Put("w", std::string(5000, 'v')).status();
    EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(full.message()), ::testing::HasSubstr("the jobs of alice use"));
    EXPECT_TRUE(keys.Put("k", std::string(5000, 'v')).ok()) << "a repeated put needs no memory";
    EXPECT_TRUE(KeyTable(budget, "bob").Put("w", std::string(5000, 'v')).ok());

    ASSERT_TRUE(keys.Put("w", "").ok());
    EXPECT_EQ(budget.used(), keys.bytes());
    for (int i = 0; keys.Get(absl::StrCat("never", i), NodeName("a")).ok(); ++i) {
      ASSERT_LE(budget.used(), 10000u);
    }
  }
  EXPECT_EQ(budget.used(), 0u);
}

TEST(KeyTable, LimitsKeysAndAwaitedKeys) {
  Keys keys;
  Keys waiters;
  for (size_t i = 0; i < limits::kKeysPerGeneration; ++i) {
    ASSERT_TRUE(keys.Put(absl::StrCat(i), "").ok());
    ASSERT_TRUE(waiters.Get(absl::StrCat(i), NodeName("a")).ok());
  }
  EXPECT_EQ(keys.Put("more", "").status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(waiters.Get("more", NodeName("a")).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(waiters.Get("0", NodeName("b")).ok());
}

}  // namespace
}  // namespace muster::core
