#include "worker/agent/generation/ranks/exit_info.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "common/text/utf8.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::agent {
namespace {

class ErrorFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = "/tmp/muster-error-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::optional<ProgramError> Read(const std::string& contents) {
    const std::string path = directory_ + "/error.json";
    std::ofstream(path) << contents;
    return ReadErrorFile(path);
  }

  std::string directory_;
};

TEST_F(ErrorFileTest, ReadsFilesOfRecord) {
  const auto error = Read(
      R"({"message": {"message": "ValueError: no", "extraInfo": {"py_callstack": "Traceback\n",
          "timestamp": "1700000000"}}})");
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->message, "ValueError: no");
  EXPECT_EQ(error->traceback, "Traceback\n");
  EXPECT_EQ(Read(R"({"message": "plain"})")->message, "plain");
  EXPECT_EQ(Read(R"({"message": {"message": "m", "extraInfo": 3}})")->traceback, "");
}

// Parsed, 60 MiB of brackets take 5 GiB of the worker's memory.
TEST_F(ErrorFileTest, RejectsFilesOfVeryManyValues) {
  for (const char* const value : {"[", "{},", "0,"}) {
    std::string values;
    for (int i = 0; i < 20'000; ++i) values += value;
    const std::string closing(*value == '[' ? 20'000 : 0, ']');
    EXPECT_EQ(Read(R"({"message": "m", "x": [)" + values + "0" + closing + "]}"), std::nullopt);
  }
  const std::string list(20'000, ',');
  EXPECT_EQ(Read(R"({"message": "\"[)" + list + R"(\\"})")->message, "\"[" + list + "\\");
}

TEST_F(ErrorFileTest, ReadsStatusCodeAndPeer) {
  const auto error =
      Read(R"({"message": {"message": "rank 2 went"}, "status_code": 14, "peer_rank": 2})");
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->message, "rank 2 went");
  EXPECT_EQ(error->status_code, 14);
  EXPECT_EQ(error->peer_rank, 2u);
  for (const char* text :
       {R"({"message": "m"})", R"({"message": "m", "status_code": 17, "peer_rank": 4294967296})",
        R"({"message": "m", "status_code": 0, "peer_rank": -1})",
        R"({"message": "m", "status_code": "14", "peer_rank": 1.5})"}) {
    const auto plain = Read(text);
    ASSERT_TRUE(plain.has_value()) << text;
    EXPECT_FALSE(plain->status_code.has_value()) << text;
    EXPECT_FALSE(plain->peer_rank.has_value()) << text;
  }
}

TEST_F(ErrorFileTest, IgnoresOtherFormats) {
  for (const char* text :
       {"", "{", "[]", "3", "{}", R"({"message": 3})", R"({"message": {}})", R"({"message": ""})",
        R"({"message": {"message": []}})", "\xff\xfe", R"({"message": "cut)"}) {
    EXPECT_FALSE(Read(text).has_value()) << text;
  }
  EXPECT_FALSE(Read(std::string(200'000, '[')).has_value());
  EXPECT_FALSE(Read("{\"message\": \"" + std::string(65 << 20, 'x') + "\"}").has_value());
  EXPECT_FALSE(ReadErrorFile(directory_ + "/none").has_value());
  EXPECT_FALSE(ReadErrorFile(directory_).has_value());
  ASSERT_EQ(symlink("/dev/zero", (directory_ + "/link").c_str()), 0);
  EXPECT_FALSE(ReadErrorFile(directory_ + "/link").has_value());
}

TEST(PythonErrorTest, ReturnsLastLineOfLastTraceback) {
  EXPECT_EQ(PythonError("Traceback (most recent call last):\n  File \"a.py\", line 1\n    1 / 0\n"
                        "ZeroDivisionError: division by zero\n\n"
                        "During handling of the above exception, another exception occurred:\n\n"
                        "Traceback (most recent call last):\n  File \"a.py\", line 3\n    f()\n"
                        "KeyError: 'x'\nlast words\n"),
            "KeyError: 'x'");
  EXPECT_EQ(PythonError("    in_a_frame()\n  File \"a.py\", line 3\n    f()\nKeyError: 'x'\n"),
            "KeyError: 'x'")
      << "of a long traceback, the last lines";
  EXPECT_EQ(PythonError("nothing of the kind\n"), std::nullopt);
  EXPECT_EQ(PythonError("Traceback (most recent call last):\n  File \"cut"), std::nullopt);
}

TEST(PeerTest, RecognisesBrokenConnections) {
  EXPECT_TRUE(IsPeerLostMessage(
      "RuntimeError: [../gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.0.0.1]:3"));
  EXPECT_FALSE(IsPeerLostMessage("ValueError: no such layer"));
}

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
