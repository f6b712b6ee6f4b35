#include "worker/agent/logs/log_tail.h"

#include <cstdio>
#include <string>

#include "common/limits.h"
#include "gtest/gtest.h"
#include "worker/shim/log_file.h"
#include "worker/shim/lost_output.h"

namespace muster::agent {
namespace {

class LogTailTest : public ::testing::Test {
 protected:
  LogTailTest() : path_(::testing::TempDir() + "log_tail_test.log") {
    std::remove(path_.c_str());
    std::remove((path_ + ".times").c_str());
    EXPECT_TRUE(log_.Open(path_));
  }

  const std::string path_;
  shim::LogFile log_;
};

TEST_F(LogTailTest, SmallLogIsWhole) {
  log_.Append("one\n", 10);
  log_.Append("two", 20);
  const auto tail = ReadLogTail(path_);
  ASSERT_TRUE(tail.has_value());
  EXPECT_EQ(tail->offset(), 0u);
  EXPECT_EQ(tail->data(), "one\ntwo");
  EXPECT_TRUE(tail->end());
  ASSERT_EQ(tail->lines_size(), 2);
  EXPECT_EQ(tail->lines(1).offset(), 4u);
  EXPECT_EQ(tail->lines(1).unix_micros(), 20);
}

TEST_F(LogTailTest, LargeLogIsCutAtALine) {
  for (int i = 0; i < 10'000; ++i) log_.Append("1234567\n9\n", 10 + i);
  const auto tail = ReadLogTail(path_);
  ASSERT_TRUE(tail.has_value());
  EXPECT_LE(tail->data().size(), limits::kLogTailBytes);
  EXPECT_GT(tail->data().size(), limits::kLogTailBytes - 10);
  EXPECT_EQ(tail->offset() + tail->data().size(), 100'000u);
  EXPECT_EQ(tail->offset() % 10, tail->data()[0] == '1' ? 0u : 8u);
  EXPECT_EQ(tail->lines_size(), static_cast<int>(limits::kLogTailLines));
  EXPECT_EQ(tail->lines().rbegin()->offset(), 99'998u);
}

TEST_F(LogTailTest, LongLineIsCut) {
  log_.Append(std::string(100'000, 'x') + "\n", 10);
  const auto tail = ReadLogTail(path_);
  ASSERT_TRUE(tail.has_value());
  EXPECT_EQ(tail->data(), std::string(limits::kLogTailBytes - 1, 'x') + "\n");
  EXPECT_EQ(tail->lines_size(), 0);
}

TEST_F(LogTailTest, HasNoticeOfLostOutput) {
  shim::LostOutputFile lost;
  lost.Open(path_);
  lost.Write({2, 30, 0, "No space left on device"});
  const std::string notice = "2 lines (30 bytes) could not be stored: No space left on device";
  ASSERT_TRUE(ReadLogTail(path_).has_value());  // although nothing was stored
  EXPECT_EQ(ReadLogTail(path_)->notice(), notice);
  log_.Append("one\n", 10);
  EXPECT_EQ(ReadLogTail(path_)->notice(), notice);
  EXPECT_EQ(ReadLogTail(path_)->data(), "one\n");
}

TEST_F(LogTailTest, EmptyOrMissingLogHasNone) {
  EXPECT_FALSE(ReadLogTail(path_).has_value());
  EXPECT_FALSE(ReadLogTail(path_ + ".none").has_value());
}

}  // namespace
}  // namespace muster::agent
