#include "trainer/data/cache_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/data/testing.h"

namespace muster::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CacheFileTest : public ::testing::Test {
 protected:
  const std::string target() const { return directory_.path() + "/target"; }
  bool Exists() const { return access(target().c_str(), F_OK) == 0; }
  // Takes the lock, as another process does. Returns the open lock file.
  int HoldLock() const {
    const int lock = open((target() + ".lock").c_str(), O_CREAT | O_RDWR, 0644);
    EXPECT_EQ(flock(lock, LOCK_EX), 0);
    return lock;
  }
  // Writes the progress of the lock's holder.
  static void Report(int lock, uint64_t done) {
    EXPECT_EQ(pwrite(lock, &done, sizeof(done), 0), static_cast<ssize_t>(sizeof(done)));
  }

  TemporaryDirectory directory_;
};

TEST_F(CacheFileTest, ReportsWork) {
  std::vector<uint64_t> reports;
  const absl::Status made = MakeCacheFile(
      target(), "files",
      {"",
       [&](uint64_t done, absl::string_view unit) {
         EXPECT_EQ(unit, "files");
         reports.push_back(done);
       }},
      [&] { return Exists(); },
      [](const NewCacheFile& file) {
        file.report(7);
        return absl::OkStatus();
      });
  EXPECT_TRUE(made.ok()) << made;
  EXPECT_TRUE(Exists());
  EXPECT_THAT(reports, ElementsAre(0, 7));
}

// A process that waits for another one's work reports the progress of that one: none while the
// other makes none.
TEST_F(CacheFileTest, ReportsWorkOfAnotherProcessWhileWaiting) {
  const int lock = HoldLock();
  Report(lock, 40);
  absl::Notification saw_40, saw_41;
  std::thread waiting([&] {
    const absl::Status made = MakeCacheFile(
        target(), "files",
        {"",
         [&](uint64_t done, absl::string_view) {
           if (done == 40 && !saw_40.HasBeenNotified()) saw_40.Notify();
           if (done == 41 && !saw_41.HasBeenNotified()) saw_41.Notify();
         }},
        [&] { return Exists(); },
        [](const NewCacheFile&) { return absl::InternalError("the file was complete"); });
    EXPECT_TRUE(made.ok()) << made;
  });
  saw_40.WaitForNotification();
  Report(lock, 41);
  saw_41.WaitForNotification();
  WriteFile(target(), "complete");
  close(lock);
  waiting.join();
}

TEST_F(CacheFileTest, GivesUpAfterTheTimeoutWithoutProgress) {
  const int lock = HoldLock();
  for (const bool reported : {false, true}) {
    if (reported) Report(lock, 40);
    Cache cache;
    cache.lock_timeout = absl::ZeroDuration();
    const absl::Status made = MakeCacheFile(
        target(), "files", cache, [&] { return Exists(); },
        [](const NewCacheFile&) { return absl::InternalError("another process has the lock"); });
    EXPECT_EQ(made.code(), absl::StatusCode::kDeadlineExceeded) << made;
    EXPECT_THAT(std::string(made.message()), HasSubstr(target() + ".lock"));
    EXPECT_THAT(std::string(made.message()), HasSubstr(reported ? "40 files" : "0 files"));
  }
  EXPECT_FALSE(Exists());
  close(lock);
}

// The timeout begins again with each progress.
TEST_F(CacheFileTest, WaitsAsLongAsTheOtherProcessMakesProgress) {
  const int lock = HoldLock();
  Report(lock, 1);
  Cache cache("", [&](uint64_t done, absl::string_view) {
    if (done < 5) return Report(lock, done + 1);
    WriteFile(target(), "complete");
    close(lock);
  });
  cache.lock_timeout = absl::ZeroDuration();
  const absl::Status made = MakeCacheFile(
      target(), "files", cache, [&] { return Exists(); },
      [](const NewCacheFile&) { return absl::InternalError("the file was complete"); });
  EXPECT_TRUE(made.ok()) << made;
}

}  // namespace
}  // namespace muster::data
