#include "trainer/data/cache_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/data/testing.h"

namespace muster::data {
namespace {

using ::testing::ElementsAre;

class CacheFileTest : public ::testing::Test {
 protected:
  const std::string target() const { return directory_.path() + "/target"; }
  bool Exists() const { return access(target().c_str(), F_OK) == 0; }

  TemporaryDirectory directory_;
};

TEST_F(CacheFileTest, ReportsWork) {
  std::vector<uint64_t> reports;
  const absl::Status made = MakeCacheFile(
      target(), "files",
      [&](uint64_t done, absl::string_view unit) {
        EXPECT_EQ(unit, "files");
        reports.push_back(done);
      },
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
  const int lock = open((target() + ".lock").c_str(), O_CREAT | O_RDWR, 0644);
  ASSERT_EQ(flock(lock, LOCK_EX), 0);
  const auto report = [lock](uint64_t done) {
    ASSERT_EQ(pwrite(lock, &done, sizeof(done), 0), static_cast<ssize_t>(sizeof(done)));
  };
  report(40);
  absl::Notification saw_40, saw_41;
  std::thread waiting([&] {
    const absl::Status made = MakeCacheFile(
        target(), "files",
        [&](uint64_t done, absl::string_view) {
          if (done == 40 && !saw_40.HasBeenNotified()) saw_40.Notify();
          if (done == 41 && !saw_41.HasBeenNotified()) saw_41.Notify();
        },
        [&] { return Exists(); },
        [](const NewCacheFile&) { return absl::InternalError("the file was complete"); });
    EXPECT_TRUE(made.ok()) << made;
  });
  saw_40.WaitForNotification();
  report(41);
  saw_41.WaitForNotification();
  WriteFile(target(), "complete");
  close(lock);
  waiting.join();
}

}  // namespace
}  // namespace muster::data
