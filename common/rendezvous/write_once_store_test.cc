#include "common/rendezvous/write_once_store.h"

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

TEST(WriteOnceStoreTest, KeepsTheFirstValue) {
  WriteOnceStore store;
  EXPECT_EQ(store.Find("key"), nullptr);
  EXPECT_TRUE(*store.Put("key", "value"));
  EXPECT_FALSE(*store.Put("key", "value"));
  const absl::Status status = store.Put("key", "other").status();
  EXPECT_TRUE(absl::IsAlreadyExists(status));
  EXPECT_EQ(status.message(), "key key holds another value");
  ASSERT_NE(store.Find("key"), nullptr);
  EXPECT_EQ(*store.Find("key"), "value");
}

TEST(WriteOnceStoreTest, RejectsKeysAndValuesThatExceedLimits) {
  WriteOnceStore store;
  EXPECT_TRUE(absl::IsInvalidArgument(store.Put("", "v").status()));
  EXPECT_TRUE(
      absl::IsInvalidArgument(store.Put(std::string(limits::kKeyBytes + 1, 'k'), "v").status()));
  EXPECT_TRUE(
      absl::IsInvalidArgument(store.Put("k", std::string(limits::kValueBytes + 1, 'v')).status()));
  EXPECT_TRUE(store.Put(std::string(limits::kKeyBytes, 'k'), "v").ok());
}

TEST(WriteOnceStoreTest, LimitsTheTotalSizeOfValues) {
  WriteOnceStore store;
  const std::string value(limits::kValueBytes, 'v');
  for (size_t i = 0; i < limits::kValueBytesPerGeneration / limits::kValueBytes; ++i) {
    ASSERT_TRUE(store.Put(absl::StrCat(i), value).ok());
  }
  EXPECT_TRUE(absl::IsResourceExhausted(store.Put("more", "v").status()));
  EXPECT_FALSE(*store.Put("0", value));  // a repetition needs no space
  store.Erase("0");
  EXPECT_EQ(store.Find("0"), nullptr);
  EXPECT_TRUE(*store.Put("more", "v"));
}

TEST(WriteOnceStoreTest, LimitsTheNumberOfKeys) {
  WriteOnceStore store;
  for (size_t i = 0; i < limits::kKeysPerGeneration; ++i) {
    ASSERT_TRUE(store.Put(absl::StrCat(i), "").ok());
  }
  EXPECT_TRUE(absl::IsResourceExhausted(store.Put("more", "").status()));
}

}  // namespace
}  // namespace muster
