#include "worker/agent/generation/exit_info.h"

#include <signal.h>

#include <cerrno>
#include <fstream>
#include <string>

#include "common/utf8.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::agent {
namespace {

using ::testing::HasSubstr;

TEST(ExitInfoTest, ConvertsExitCodeAndSignal) {
  shim::ExitRecord record;
  record.exit_code = 3;
  record.stderr_tail = "why\n";
  record.stopped = true;
  record.time_unix_ms = 1500;
  const v1::ExitInfo exit = ToExitInfo(record);
  EXPECT_EQ(exit.exit_code(), 3);
  EXPECT_EQ(exit.stderr_tail(), "why\n");
  EXPECT_TRUE(exit.stopped_by_worker());
  EXPECT_FALSE(exit.has_failure());
  EXPECT_EQ(exit.time().seconds(), 1);
  EXPECT_EQ(exit.time().nanos(), 500'000'000);
}

TEST(ExitInfoTest, ReportsLostShim) {
  const v1::ExitInfo exit = ToExitInfo(std::nullopt);
  EXPECT_EQ(exit.signal(), SIGKILL);
  EXPECT_EQ(exit.failure().message(), "shim lost");
  EXPECT_FALSE(exit.stopped_by_worker());
}

TEST(ExitInfoTest, AddsDeviceEvidence) {
  v1::ExitInfo exit;
  AddDeviceEvidence("GPU 0: lost", exit);
  EXPECT_FALSE(exit.has_failure());
  exit.set_signal(SIGABRT);
  AddDeviceEvidence("", exit);
  EXPECT_FALSE(exit.has_failure());
  AddDeviceEvidence("GPU 0: lost", exit);
  EXPECT_EQ(exit.failure().message(), "GPU 0: lost");
  exit.mutable_failure()->set_message("RuntimeError: CUDA error");
  AddDeviceEvidence("GPU 0: lost", exit);
  EXPECT_EQ(exit.failure().message(), "GPU 0: lost; RuntimeError: CUDA error");

  v1::ExitInfo stopped;
  stopped.set_signal(SIGTERM);
  stopped.set_stopped_by_worker(true);
  AddDeviceEvidence("GPU 0: lost", stopped);
  EXPECT_FALSE(stopped.has_failure());
}

TEST(ExitInfoTest, ReportsExecFailure) {
  shim::ExitRecord record;
  record.exit_code = 127;
  record.exec_errno = ENOENT;
  record.exec_error = "exec x: No such file or directory";
  EXPECT_TRUE(ToExitInfo(record).failure().not_retryable());
  EXPECT_EQ(ToExitInfo(record).failure().phase(), "launching");
  record.exec_errno = ENOMEM;
  EXPECT_FALSE(ToExitInfo(record).failure().not_retryable());
  record.exec_errno = EROFS;
  record.exit_code = 73;
  EXPECT_TRUE(ToExitInfo(record).failure().not_retryable());
}

TEST(ExitInfoTest, ReportsAbandonedRankAsStopped) {
  shim::ExitRecord record;
  record.abandoned = true;
  record.signal = SIGTERM;
  EXPECT_TRUE(ToExitInfo(record).stopped_by_worker());
  EXPECT_TRUE(ToExitInfo(record).has_failure());
}

TEST(ExitInfoTest, ReportsTracebackOfACommand) {
  v1::ExitInfo exit;
  exit.set_exit_code(1);
  exit.set_stderr_tail("Traceback (most recent call last):\n  File x\nValueError: no\n");
  AddProgramError("/no/such/file", exit);
  EXPECT_EQ(exit.failure().message(), "ValueError: no");
  EXPECT_EQ(exit.failure().code(), static_cast<int>(absl::StatusCode::kUnknown));
  EXPECT_FALSE(exit.failure().not_retryable());
}

TEST(ExitInfoTest, ReportsLostPeerAsAborted) {
  v1::ExitInfo exit;
  exit.set_exit_code(1);
  exit.set_stderr_tail(
      "Traceback (most recent call last):\n  File x\nRuntimeError: [pair.cc] Connection closed by "
      "peer [127.0.0.1]:1234\n");
  AddProgramError("/no/such/file", exit);
  EXPECT_EQ(exit.failure().code(), static_cast<int>(absl::StatusCode::kAborted));
}

TEST(ExitInfoTest, KeepsSuccessAndKnownFailures) {
  v1::ExitInfo exit;
  exit.set_stderr_tail("Traceback (most recent call last):\n  File x\nValueError: caught\n");
  AddProgramError("/no/such/file", exit);
  EXPECT_FALSE(exit.has_failure());
  exit.set_exit_code(1);
  exit.mutable_failure()->set_message("said before");
  AddProgramError("/no/such/file", exit);
  EXPECT_EQ(exit.failure().message(), "said before");
}

TEST(ExitInfoTest, DoesNotRetryUnreachableMaster) {
  EXPECT_TRUE(LaunchFailure(absl::FailedPreconditionError("x")).failure().not_retryable());
  EXPECT_FALSE(LaunchFailure(absl::InternalError("x")).failure().not_retryable());
}

TEST(ExitInfoTest, ShortensLongMessagesInTheMiddle) {
  std::string message = "RuntimeError: first ";
  while (message.size() < 12'000'000) message += "漢";
  const std::string path = ::testing::TempDir() + "exit_info_test_error.json";
  std::ofstream(path) << R"({"message": {"message": ")" << message << R"( last", "extraInfo": )"
                      << R"({"py_callstack": "Traceback\n  File\n)" << message << R"( last\n"}}})";
  v1::ExitInfo exit;
  exit.set_exit_code(1);
  AddProgramError(path, exit);
  for (const std::string& text : {exit.failure().message(), exit.stderr_tail()}) {
    EXPECT_THAT(text, HasSubstr("RuntimeError: first 漢"));
    EXPECT_THAT(text, HasSubstr(" bytes omitted] ... "));
    EXPECT_THAT(text, HasSubstr("漢 last"));
    EXPECT_LE(text.size(), 4096u + 30);
    EXPECT_EQ(text, ToUtf8(text));
  }
  EXPECT_LE(exit.failure().message().size(), 4096u);
  EXPECT_LE(LaunchFailure(absl::InternalError(message)).failure().message().size(), 4096u);
}

}  // namespace
}  // namespace muster::agent
