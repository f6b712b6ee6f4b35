// Tests of the file itself: damage, other versions, a killed process.
#include "coordinator/store/sqlite_store.h"

#include <signal.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::store {
namespace {

using ::testing::HasSubstr;

class SqliteStoreTest : public ::testing::Test {
 protected:
  void TearDown() override {
    for (const char* suffix : {"", "-wal", "-shm"}) unlink((path_ + suffix).c_str());
  }
  void Sql(const char* sql) {
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open(path_.c_str(), &database), SQLITE_OK);
    ASSERT_EQ(sqlite3_exec(database, sql, nullptr, nullptr, nullptr), SQLITE_OK);
    sqlite3_close(database);
  }
  void ExpectRefused(absl::StatusCode code, const std::string& words) {
    const absl::Status status = SqliteStore::Open(path_).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path_));
    EXPECT_THAT(std::string(status.message()), HasSubstr(words));
  }
  const std::string path_ = absl::StrCat(::testing::TempDir(), "/store_", getpid(), ".sqlite");
};

TEST_F(SqliteStoreTest, ReopensWithAllRecords) {
  const std::vector<Mutation> batch = {{"a", "1"}, {"b", "2"}};
  ASSERT_TRUE((*SqliteStore::Open(path_))->Commit(batch).ok());
  const auto store = SqliteStore::Open(path_);
  ASSERT_TRUE(store.ok()) << store.status();
  const auto records = (*store)->Scan("");
  ASSERT_TRUE(records.ok());
  ASSERT_EQ(records->size(), 2);
  EXPECT_EQ((*records)[1].value, "2");
}

TEST_F(SqliteStoreTest, IsPrivateWhateverModesTheFilesHad) {
  for (const char* suffix : {"", "-wal", "-shm"}) {
    std::ofstream file(path_ + suffix);
    chmod((path_ + suffix).c_str(), 0644);
  }
  for (int round = 0; round < 2; ++round) {  // the second one adds the files
    const auto store = SqliteStore::Open(path_);
    ASSERT_TRUE(store.ok()) << store.status();
    ASSERT_TRUE((*store)->Commit(std::vector<Mutation>{{"a", "1"}}).ok());
    for (const char* suffix : {"", "-wal", "-shm"}) {
      struct stat info;
      ASSERT_EQ(stat((path_ + suffix).c_str(), &info), 0) << suffix;
      EXPECT_EQ(info.st_mode & 0777, 0600u) << suffix;
    }
  }
}

TEST_F(SqliteStoreTest, RejectsFileThatIsNotADatabase) {
  std::ofstream(path_) << std::string(5000, 'x');
  ExpectRefused(absl::StatusCode::kDataLoss, "is not a database");
}

TEST_F(SqliteStoreTest, RejectsDamagedFile) {
  {
    auto store = SqliteStore::Open(path_);
    ASSERT_TRUE(store.ok());
    std::vector<Mutation> batch;
    for (int i = 0; i < 1000; ++i) batch.push_back({absl::StrCat(i), std::string(200, 'x')});
    ASSERT_TRUE((*store)->Commit(batch).ok());
  }
  {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(3 * 4096);
    file << std::string(4096, '\xee');
  }
  ExpectRefused(absl::StatusCode::kDataLoss, "");
}

TEST_F(SqliteStoreTest, RejectsNewerLayout) {
  ASSERT_TRUE(SqliteStore::Open(path_).ok());
  Sql("PRAGMA user_version = 7");
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "newer Muster (layout 7");
}

TEST_F(SqliteStoreTest, RejectsDatabaseOfAnotherProgram) {
  Sql("CREATE TABLE t (x)");
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "a database of another program");
}

TEST_F(SqliteStoreTest, ReturnsErrorForMissingDirectory) {
  const absl::Status status = SqliteStore::Open("/nonexistent/store").status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("/nonexistent/store"));
}

// A child process commits and reports each commit, until it is killed. All reported commits must be
// in the store, and the batch in progress completely or not at all.
TEST_F(SqliteStoreTest, KilledProcessKeepsAcknowledgedCommits) {
  constexpr int kRounds = 3;
  constexpr uint32_t kAcknowledgements = 20;
  uint32_t first = 0;
  for (int round = 0; round < kRounds; ++round) {
    int pipe_fds[2];
    ASSERT_EQ(pipe(pipe_fds), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto store = SqliteStore::Open(path_);
      if (!store.ok()) _exit(1);
      for (uint32_t i = first;; ++i) {
        if (!(*store)
                 ->Commit(
                     {{{absl::StrFormat("%08d/a", i), "1"}, {absl::StrFormat("%08d/b", i), "1"}}})
                 .ok()) {
          _exit(2);
        }
        if (write(pipe_fds[1], &i, sizeof(i)) != sizeof(i)) _exit(3);
      }
    }
    close(pipe_fds[1]);
    uint32_t acknowledged = 0;
    for (uint32_t i = 0; i < kAcknowledgements; ++i) {
      ASSERT_EQ(read(pipe_fds[0], &acknowledged, sizeof(acknowledged)), sizeof(acknowledged));
    }
    kill(child, SIGKILL);
    int wait_status = 0;
    ASSERT_EQ(waitpid(child, &wait_status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(wait_status));
    while (read(pipe_fds[0], &acknowledged, sizeof(acknowledged)) == sizeof(acknowledged)) {
    }
    close(pipe_fds[0]);

    auto store = SqliteStore::Open(path_);
    ASSERT_TRUE(store.ok()) << store.status();
    const auto records = (*store)->Scan("");
    ASSERT_TRUE(records.ok());
    ASSERT_EQ(records->size() % 2, 0);
    ASSERT_GE(records->size(), 2 * (acknowledged + 1));
    ASSERT_LE(records->size(), 2 * (acknowledged + 2));
    first = records->size() / 2;
  }
}

}  // namespace
}  // namespace muster::store
