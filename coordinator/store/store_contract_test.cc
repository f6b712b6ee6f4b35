// The contract of Store, tested on each implementation.
#include <unistd.h>

#include <functional>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/notification.h"
#include "coordinator/store/memory_store.h"
#include "coordinator/store/sqlite_store.h"
#include "coordinator/store/store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::store {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct Implementation {
  std::string name;
  std::function<std::unique_ptr<Store>(const std::string& path)> open;
  // Opens a store that holds about 1 MB.
  std::function<std::unique_ptr<Store>(const std::string& path)> open_small;
};

std::unique_ptr<Store> OpenSqlite(const std::string& path, uint32_t max_pages) {
  auto store = SqliteStore::Open(path, {.max_pages = max_pages});
  EXPECT_TRUE(store.ok()) << store.status();
  return store.ok() ? *std::move(store) : nullptr;
}

class StoreContractTest : public ::testing::TestWithParam<Implementation> {
 protected:
  void SetUp() override { store_ = GetParam().open(path_); }
  void TearDown() override {
    store_.reset();
    for (const char* suffix : {"", "-wal", "-shm"}) unlink((path_ + suffix).c_str());
  }

  std::vector<std::string> Keys(absl::string_view prefix) const {
    const auto records = store_->Scan(prefix);
    EXPECT_TRUE(records.ok()) << records.status();
    std::vector<std::string> keys;
    for (const Record& record : *records) keys.push_back(record.key);
    return keys;
  }
  std::string Value(const std::string& key) const {
    const auto records = store_->Scan(key);
    EXPECT_TRUE(records.ok()) << records.status();
    for (const Record& record : *records) {
      if (record.key == key) return record.value;
    }
    return "(none)";
  }

  const std::string path_ =
      absl::StrCat(::testing::TempDir(), "/store_contract_", getpid(), ".sqlite");
  std::unique_ptr<Store> store_;
};

TEST_P(StoreContractTest, StartsEmpty) { EXPECT_THAT(Keys(""), IsEmpty()); }

TEST_P(StoreContractTest, PutsReplacesAndDeletes) {
  ASSERT_TRUE(store_->Commit({Mutation{"a", "1"}, {"b", "2"}}).ok());
  ASSERT_TRUE(
      store_->Commit({Mutation{"a", "3"}, {"b", std::nullopt}, {"missing", std::nullopt}}).ok());
  EXPECT_THAT(Keys(""), ElementsAre("a"));
  EXPECT_EQ(Value("a"), "3");
}

TEST_P(StoreContractTest, UnsyncedBatchesAreReadAtOnceAndKeptByTheNextCommit) {
  ASSERT_TRUE(store_->CommitUnsynced({Mutation{"a", "1"}}).ok());
  EXPECT_EQ(Value("a"), "1");
  ASSERT_TRUE(store_->CommitUnsynced({Mutation{"a", "2"}, {"b", "1"}}).ok());
  ASSERT_TRUE(store_->Commit({Mutation{"b", std::nullopt}}).ok());
  EXPECT_THAT(Keys(""), ElementsAre("a"));
  EXPECT_EQ(Value("a"), "2");
}

TEST_P(StoreContractTest, LastMutationOfAKeyWins) {
  ASSERT_TRUE(
      store_->Commit({Mutation{"a", "1"}, {"a", std::nullopt}, {"b", std::nullopt}, {"b", "2"}})
          .ok());
  EXPECT_THAT(Keys(""), ElementsAre("b"));
}

TEST_P(StoreContractTest, AcceptsEmptyBatchAndEmptyValue) {
  ASSERT_TRUE(store_->Commit({}).ok());
  ASSERT_TRUE(store_->Commit({Mutation{"a", ""}}).ok());
  EXPECT_EQ(Value("a"), "");
}

TEST_P(StoreContractTest, KeysAndValuesMayHoldAnyBytes) {
  const std::string zero("a\0b", 3);
  const std::string value("\0\xff\x80'\"%", 6);
  ASSERT_TRUE(
      store_->Commit({Mutation{zero, value}, {"a", "shorter"}, {"a%", "x"}, {"a_", "y"}}).ok());
  EXPECT_EQ(Value(zero), value);
  EXPECT_THAT(Keys(absl::string_view("a\0", 2)), ElementsAre(zero));
  EXPECT_THAT(Keys("a%"), ElementsAre("a%"));
}

TEST_P(StoreContractTest, ScansPrefixInByteOrder) {
  ASSERT_TRUE(store_
                  ->Commit({Mutation{"job/b", ""},
                            {"job/a", ""},
                            {"job", ""},
                            {"job0", ""},
                            {"job/\xff", ""},
                            {"job/\xff\xff", ""},
                            {"\xff", ""},
                            {"\xff\xff", ""},
                            {"\xfe", ""}})
                  .ok());
  EXPECT_THAT(Keys("job/"), ElementsAre("job/a", "job/b", "job/\xff", "job/\xff\xff"));
  EXPECT_THAT(Keys("job/\xff"), ElementsAre("job/\xff", "job/\xff\xff"));
  EXPECT_THAT(Keys("\xff"), ElementsAre("\xff", "\xff\xff"));
  EXPECT_THAT(Keys("\xff\xff\xff"), IsEmpty());
  EXPECT_EQ(Keys("").size(), 9);
  EXPECT_THAT(Keys("nothing"), IsEmpty());
}

TEST_P(StoreContractTest, CommitsLargeBatch) {
  std::vector<Mutation> batch;
  for (int i = 0; i < 20000; ++i) {
    batch.push_back({absl::StrFormat("event/%010d", i), std::string(100, 'x')});
  }
  batch.push_back({"large", std::string(8 << 20, 'y')});
  ASSERT_TRUE(store_->Commit(batch).ok());
  EXPECT_EQ(Keys("event/").size(), 20000);
  EXPECT_EQ(Value("large").size(), 8 << 20);
}

TEST_P(StoreContractTest, ScansDuringCommits) {
  absl::Notification done;
  absl::Status committed;
  std::thread writer([&] {
    for (int i = 0; i < 200 && committed.ok(); ++i) {
      committed = store_->Commit({Mutation{"a", absl::StrCat(i)}, {"b", absl::StrCat(i)}});
    }
    done.Notify();
  });
  do {
    const auto records = store_->Scan("");
    ASSERT_TRUE(records.ok()) << records.status();
    // A batch is visible completely or not at all.
    ASSERT_TRUE(records->empty() || records->size() == 2);
    if (!records->empty()) ASSERT_EQ((*records)[0].value, (*records)[1].value);
  } while (!done.HasBeenNotified());
  writer.join();
  EXPECT_TRUE(committed.ok()) << committed;
}

TEST_P(StoreContractTest, FullStoreKeepsAcknowledgedRecords) {
  store_.reset();
  TearDown();
  store_ = GetParam().open_small(path_);
  absl::Status status;
  int acknowledged = 0;
  while (acknowledged < 1000) {
    status =
        store_->Commit({Mutation{absl::StrFormat("%04d/a", acknowledged), std::string(10000, 'x')},
                        {absl::StrFormat("%04d/b", acknowledged), std::string(10000, 'x')}});
    if (!status.ok()) break;
    ++acknowledged;
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_GT(acknowledged, 10);
  EXPECT_EQ(Keys("").size(), 2 * acknowledged);
  // The store still works within its limit.
  EXPECT_TRUE(store_->Commit({Mutation{"0000/a", std::nullopt}, {"0000/b", std::nullopt}}).ok());
  EXPECT_EQ(Keys("").size(), 2 * acknowledged - 2);
}

INSTANTIATE_TEST_SUITE_P(
    Stores, StoreContractTest,
    ::testing::Values(
        Implementation{"Memory", [](const std::string&) { return std::make_unique<MemoryStore>(); },
                       [](const std::string&) { return std::make_unique<MemoryStore>(1 << 20); }},
        Implementation{"Sqlite", [](const std::string& path) { return OpenSqlite(path, 0); },
                       [](const std::string& path) { return OpenSqlite(path, 256); }}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace muster::store
