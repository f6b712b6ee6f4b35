#include "worker/agent/logs/log_file_reader.h"

#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace muster::agent {
namespace {

class LogFileReaderTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& contents) {
    const std::string path = ::testing::TempDir() + "log_file_reader_test.log";
    std::ofstream(path, std::ios::trunc) << contents;
    return path;
  }
  std::string Tail(const std::string& contents, uint64_t lines) {
    auto reader = LogFileReader::Open(Write(contents), false);
    if (!reader.ok() || !(*reader)->SeekTail(lines).ok()) return "<error>";
    return (*reader)->Read(1 << 20).value_or("<error>");
  }
};

TEST_F(LogFileReaderTest, ContinuesFromItsOffset) {
  const std::string path = Write("0123456789");
  auto reader = LogFileReader::Open(path, false);
  ASSERT_TRUE(reader.ok()) << reader.status();
  (*reader)->Seek(3);
  EXPECT_EQ((*reader)->Read(4).value_or(""), "3456");
  EXPECT_EQ((*reader)->offset(), 7u);
  EXPECT_EQ((*reader)->Read(100).value_or(""), "789");
  EXPECT_EQ((*reader)->Read(100).value_or("<error>"), "");
  std::ofstream(path, std::ios::app) << "more";
  EXPECT_EQ((*reader)->Read(100).value_or(""), "more");
  (*reader)->Seek(1000);
  EXPECT_EQ((*reader)->Read(100).value_or("<error>"), "");
}

TEST_F(LogFileReaderTest, HandlesMissingFile) {
  const std::string path = ::testing::TempDir() + "log_file_reader_test.none";
  std::remove(path.c_str());
  EXPECT_TRUE(absl::IsNotFound(LogFileReader::Open(path, false).status()));
  auto reader = LogFileReader::Open(path, true);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*reader)->Read(10).value_or("<error>"), "");
  std::remove(path.c_str());
}

TEST_F(LogFileReaderTest, SeeksToLastLines) {
  EXPECT_EQ(Tail("a\nb\nc\n", 1), "c\n");
  EXPECT_EQ(Tail("a\nb\nc\n", 2), "b\nc\n");
  EXPECT_EQ(Tail("a\nb\nc\n", 3), "a\nb\nc\n");
  EXPECT_EQ(Tail("a\nb\nc\n", 30), "a\nb\nc\n");
  EXPECT_EQ(Tail("a\nb\nunfinished", 1), "unfinished");
  EXPECT_EQ(Tail("\n\n\n", 2), "\n\n");
  EXPECT_EQ(Tail("", 2), "");
  EXPECT_EQ(Tail("a\n", 0), "");
}

TEST_F(LogFileReaderTest, SeeksToLinesLongerThanABlock) {
  const std::string line = std::string(100'000, 'x') + "\n";
  EXPECT_EQ(Tail(line + line + line, 2), line + line);
}

}  // namespace
}  // namespace muster::agent
