#include "worker/agent/logs/line_times_reader.h"

#include <unistd.h>

#include <cstdio>
#include <string>

#include "gtest/gtest.h"

namespace muster::agent {
namespace {

// An index of 1000 lines of 10 bytes; line i was begun at time 100 + i.
class LineTimesReaderTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kLines = 1000;

  LineTimesReaderTest() : path_(::testing::TempDir() + "line_times_reader_test.times") {
    std::remove(path_.c_str());
  }
  void WriteIndex() {
    shim::LineTimesWriter writer;
    ASSERT_TRUE(writer.Open(path_));
    for (uint64_t i = 0; i < kLines; ++i) writer.Add({10 * i, static_cast<int64_t>(100 + i)});
  }
  // The time of the only line; 0 if it is not known.
  static int64_t TimeOf(LineTimesReader& reader, uint64_t offset) {
    const auto lines = reader.TimesOf({offset});
    return lines.empty() ? 0 : lines.front().unix_micros;
  }

  const std::string path_;
};

TEST_F(LineTimesReaderTest, FindsTimesInAnyOrder) {
  WriteIndex();
  LineTimesReader reader(path_);
  for (const uint64_t line : {0, 1, 255, 256, 257, 600, 999, 30, 999, 0}) {
    EXPECT_EQ(TimeOf(reader, 10 * line), static_cast<int64_t>(100 + line)) << line;
  }
  EXPECT_EQ(TimeOf(reader, 1'000'000), 1099);
  std::vector<uint64_t> all;
  for (uint64_t i = 0; i < kLines; ++i) all.push_back(10 * i);
  const auto lines = reader.TimesOf(all);
  ASSERT_EQ(lines.size(), kLines);
  for (uint64_t i = 0; i < kLines; ++i) {
    EXPECT_EQ(lines[i].offset, 10 * i);
    EXPECT_EQ(lines[i].unix_micros, static_cast<int64_t>(100 + i));
  }
}

TEST_F(LineTimesReaderTest, SeeksByTime) {
  WriteIndex();
  LineTimesReader reader(path_);
  EXPECT_EQ(reader.OffsetSince(0), 0u);
  EXPECT_EQ(reader.OffsetSince(100), 0u);
  EXPECT_EQ(reader.OffsetSince(500), 4000u);
  EXPECT_EQ(reader.OffsetSince(1099), 9990u);
  EXPECT_EQ(reader.OffsetSince(1100), std::nullopt);
}

TEST_F(LineTimesReaderTest, IgnoresTruncatedRecord) {
  WriteIndex();
  ASSERT_EQ(truncate(path_.c_str(), 2 * shim::kLineTimeBytes + 5), 0);
  LineTimesReader reader(path_);
  EXPECT_EQ(TimeOf(reader, 5000), 101);
  EXPECT_EQ(reader.OffsetSince(102), std::nullopt);
}

TEST_F(LineTimesReaderTest, LinesBeforeTheFirstRecordHaveNoTime) {
  shim::LineTimesWriter writer;
  ASSERT_TRUE(writer.Open(path_));
  writer.Add({100, 7});
  LineTimesReader reader(path_);
  EXPECT_EQ(TimeOf(reader, 99), 0);
  const auto lines = reader.TimesOf({0, 100});
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines.front().offset, 100u);
}

// A piece of output that was lost (disk full) leaves two records at one offset.
TEST_F(LineTimesReaderTest, LastRecordAtAnOffsetCounts) {
  shim::LineTimesWriter writer;
  ASSERT_TRUE(writer.Open(path_));
  writer.Add({0, 1});
  writer.Add({0, 2});
  LineTimesReader reader(path_);
  EXPECT_EQ(TimeOf(reader, 0), 2);
}

TEST_F(LineTimesReaderTest, FindsAnIndexThatAppearsLater) {
  LineTimesReader reader(path_);
  EXPECT_TRUE(reader.empty());
  EXPECT_EQ(TimeOf(reader, 0), 0);
  EXPECT_EQ(reader.OffsetSince(0), std::nullopt);
  WriteIndex();
  EXPECT_FALSE(reader.empty());
  EXPECT_EQ(TimeOf(reader, 10), 101);
}

}  // namespace
}  // namespace muster::agent
