#include "worker/agent/self_test.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/agent/testing/agent_fixture.h"

namespace muster::agent {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string MakeFolder() {
  std::string pattern = ::testing::TempDir() + "/self-test-XXXXXX";
  EXPECT_NE(mkdtemp(pattern.data()), nullptr);
  return pattern;
}

TEST(CheckDiskTest, SucceedsAndLeavesNothingBehind) {
  const std::string folder = MakeFolder();
  EXPECT_TRUE(CheckDisk(folder).ok()) << CheckDisk(folder);
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

TEST(CheckDiskTest, ReportsMissingFolder) {
  const std::string folder = MakeFolder() + "/missing";
  EXPECT_THAT(std::string(CheckDisk(folder).message()),
              HasSubstr("create " + folder + "/self-test: No such file or directory"));
}

TEST(CheckDiskTest, ReportsFileThatCannotBeOpened) {
  const std::string folder = MakeFolder();
  // A directory in the place of the file, because root may write to a read-only folder.
  ASSERT_EQ(mkdir((folder + "/self-test").c_str(), 0700), 0);
  EXPECT_THAT(std::string(CheckDisk(folder).message()), HasSubstr("Is a directory"));
}

TEST(CheckDiskTest, ReportsFailedWriteAndRemovesFile) {
  const std::string folder = MakeFolder();
  signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 4096;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status status = CheckDisk(folder);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("write " + folder + "/self-test: File too large"));
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

TEST(CheckMemoryTest, ComparesWithLimit) {
  const std::string file = MakeFolder() + "/meminfo";
  const auto check = [&file](const std::string& text) {
    std::ofstream(file) << text;
    return CheckMemory(file);
  };
  EXPECT_TRUE(check("MemTotal: 100 kB\nMemAvailable:   65536 kB\n").ok());
  EXPECT_THAT(std::string(check("MemAvailable:   2048 kB\n").message()),
              HasSubstr("2 MiB available; at least 64 MiB are needed"));
  EXPECT_TRUE(check("").ok()) << "no evidence";
}

class SelfTesterTest : public ::testing::Test {
 protected:
  void TearDown() override {
    loop_.RunAndWait([this] { tester_.reset(); });
  }
  // Runs the checks and returns the report.
  v1::SelfTestReport Run(uint64_t id, std::vector<v1::SelfTest::Check> others = {}) {
    absl::Notification done;
    v1::SelfTestReport report;
    loop_.RunAndWait([&] {
      tester_->Run(id, others, [&](v1::SelfTestReport answer) {
        report = std::move(answer);
        done.Notify();
      });
    });
    EXPECT_TRUE(done.WaitForNotificationWithTimeout(kPatience));
    return report;
  }

  EventLoop loop_{"test"};
  std::unique_ptr<SelfTester> tester_;
};

TEST_F(SelfTesterTest, ReportsChecksOfHostAndOthers) {
  const std::string folder = MakeFolder();
  tester_ = std::make_unique<SelfTester>(loop_, [folder] { return CheckHost(folder); });
  v1::SelfTest::Check gpu;
  gpu.set_name("gpu 1");
  gpu.set_failure("Xid 79");
  const v1::SelfTestReport report = Run(7, {gpu});
  EXPECT_EQ(report.id(), 7u);
  ASSERT_EQ(report.checks_size(), 3);
  EXPECT_EQ(report.checks(0).name(), "disk");
  EXPECT_THAT(report.checks(0).failure(), IsEmpty());
  EXPECT_EQ(report.checks(1).name(), "memory");
  EXPECT_EQ(report.checks(2).failure(), "Xid 79");
  EXPECT_TRUE(report.has_duration());
  EXPECT_EQ(Run(8).id(), 8u);
}

TEST_F(SelfTesterTest, ReportsChecksThatBlock) {
  const auto release = std::make_shared<absl::Notification>();
  tester_ = std::make_unique<SelfTester>(
      loop_,
      [release] {
        release->WaitForNotification();
        return std::vector<v1::SelfTest::Check>();
      },
      "disk", absl::Milliseconds(5));
  for (const uint64_t id : {1, 2}) {
    const v1::SelfTestReport report = Run(id);
    EXPECT_EQ(report.id(), id);
    ASSERT_EQ(report.checks_size(), 1);
    EXPECT_EQ(report.checks(0).failure(), "the check has not ended after 5ms");
  }
  release->Notify();
}

TEST_F(SelfTesterTest, CanBeDestroyedWhileChecksRun) {
  const auto release = std::make_shared<absl::Notification>();
  tester_ = std::make_unique<SelfTester>(loop_, [release] {
    release->WaitForNotification();
    return std::vector<v1::SelfTest::Check>();
  });
  loop_.RunAndWait([this] { tester_->Run(1, {}, [](v1::SelfTestReport) { FAIL(); }); });
  loop_.RunAndWait([this] { tester_.reset(); });
  release->Notify();
}

using AgentSelfTest = AgentTest;

TEST_F(AgentSelfTest, AnswersCoordinator) {
  StartBoth();
  EXPECT_TRUE(coordinator_->hello().tests_itself());
  v1::CoordinatorMessage request;
  request.mutable_self_test()->set_id(3);
  coordinator_->Send(request);
  v1::WorkerMessage answer;
  ASSERT_TRUE(coordinator_->WaitFor(
      [](const v1::WorkerMessage& message) { return message.has_self_test(); }, &answer));
  EXPECT_EQ(answer.self_test().id(), 3u);
  ASSERT_EQ(answer.self_test().checks_size(), 2) << answer.ShortDebugString();
  EXPECT_EQ(answer.self_test().checks(0).name(), "disk");
  EXPECT_THAT(answer.self_test().checks(0).failure(), IsEmpty());
}

TEST_F(AgentSelfTest, ReportsDataDirectoryThatWasRemoved) {
  StartBoth();
  // The worker may write to it meanwhile.
  std::error_code failure;
  do {
    std::filesystem::remove_all(Options().data_dir, failure);
  } while (failure || std::filesystem::exists(Options().data_dir));
  v1::CoordinatorMessage request;
  request.mutable_self_test()->set_id(4);
  coordinator_->Send(request);
  v1::WorkerMessage answer;
  ASSERT_TRUE(coordinator_->WaitFor(
      [](const v1::WorkerMessage& message) { return message.has_self_test(); }, &answer));
  EXPECT_THAT(answer.self_test().checks(0).failure(), HasSubstr("No such file or directory"));
}

}  // namespace
}  // namespace muster::agent
