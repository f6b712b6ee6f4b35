#include "coordinator/core/rendezvous/keys.h"

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(KeyTable, KeepsTheFirstValue) {
  KeyTable keys;
  EXPECT_TRUE(keys.Put("k", "v").ok());
  EXPECT_TRUE(keys.Put("k", "v").ok());
  EXPECT_EQ(keys.Put("k", "w").status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(**keys.Get("k", NodeName("a")), "v");
}

TEST(KeyTable, PutReturnsEachWaitingNodeOnce) {
  KeyTable keys;
  for (const char* node : {"b", "a", "b"}) {
    const auto value = keys.Get("k", NodeName(node));
    ASSERT_TRUE(value.ok());
    EXPECT_EQ(*value, nullptr);
  }
  EXPECT_THAT(*keys.Put("k", "v"), ElementsAre(NodeName("a"), NodeName("b")));
  EXPECT_THAT(*keys.Put("k", "v"), IsEmpty());
}

TEST(KeyTable, RejectsKeysAndValuesThatExceedLimits) {
  KeyTable keys;
  for (const std::string& key : {std::string(), std::string(limits::kKeyBytes + 1, 'k')}) {
    EXPECT_EQ(keys.Put(key, "v").status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(keys.Get(key, NodeName("a")).status().code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(keys.Put("k", std::string(limits::kValueBytes + 1, 'v')).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(KeyTable, LimitsKeysAndAwaitedKeys) {
  KeyTable keys;
  KeyTable waiters;
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
