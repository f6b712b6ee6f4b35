#include "worker/shim/log_file.h"

#include <string>

#include "gtest/gtest.h"
#include "worker/shim/fields.h"

namespace muster::shim {
namespace {

class LogFileTest : public ::testing::Test {
 protected:
  LogFileTest() : path_(::testing::TempDir() + "log_file_test.log") {
    std::remove(path_.c_str());
    EXPECT_TRUE(log_.Open(path_));
  }
  std::string Contents() { return ReadFile(path_).value_or("<none>"); }

  const std::string path_;
  LogFile log_;
};

TEST_F(LogFileTest, HoldsBackIncompleteLines) {
  log_.Append("one\ntw");
  EXPECT_EQ(Contents(), "one\n");
  log_.Append("o");
  EXPECT_EQ(Contents(), "one\n");
  log_.Append("\nthree\nfour");
  EXPECT_EQ(Contents(), "one\ntwo\nthree\n");
  log_.Flush();
  EXPECT_EQ(Contents(), "one\ntwo\nthree\nfour");
}

TEST_F(LogFileTest, WritesOverlongLinesInPieces) {
  const std::string part(LogFile::kMaxLineBytes, 'x');
  log_.Append(part);
  EXPECT_EQ(Contents(), "");
  log_.Append("y");
  EXPECT_EQ(Contents(), part + "y");
}

TEST_F(LogFileTest, AppendsToExistingFile) {
  log_.Append("first\n");
  LogFile second;
  ASSERT_TRUE(second.Open(path_));
  second.Append("second\n");
  EXPECT_EQ(Contents(), "first\nsecond\n");
}

TEST(LogFileErrorTest, CountsLostBytes) {
  LogFile full;
  ASSERT_TRUE(full.Open("/dev/full"));
  full.Append("12345\n");
  EXPECT_EQ(full.lost_bytes(), 6u);
}

TEST(TailTest, KeepsLastLinesOnly) {
  Tail tail(2, 100);
  EXPECT_EQ(tail.Lines(), "");
  tail.Append("a\nb");
  EXPECT_EQ(tail.Lines(), "a\nb");
  tail.Append("b\nc\n");
  EXPECT_EQ(tail.Lines(), "bb\nc\n");
  tail.Append("d");
  EXPECT_EQ(tail.Lines(), "c\nd");
}

TEST(TailTest, KeepsLastBytesOnly) {
  Tail tail(50, 10);
  tail.Append("0123456789");
  tail.Append("abc");
  EXPECT_EQ(tail.Lines(), "3456789abc");
  tail.Append(std::string(5, 'x') + "0123456789");
  EXPECT_EQ(tail.Lines(), "0123456789");
}

}  // namespace
}  // namespace muster::shim
