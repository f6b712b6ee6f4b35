#include "worker/shim/log/line_times.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "worker/shim/fields.h"

namespace muster::shim {
namespace {

class LineTimesTest : public ::testing::Test {
 protected:
  LineTimesTest() : path_(::testing::TempDir() + "line_times_test.times") {
    std::remove(path_.c_str());
  }
  std::vector<std::pair<uint64_t, int64_t>> Records() const {
    const std::string bytes = ReadFile(path_).value_or("");
    std::vector<std::pair<uint64_t, int64_t>> records;
    for (size_t i = 0; i + kLineTimeBytes <= bytes.size(); i += kLineTimeBytes) {
      const LineTime record = DecodeLineTime(bytes.data() + i);
      records.emplace_back(record.offset, record.unix_micros);
    }
    return records;
  }
  using Expected = std::vector<std::pair<uint64_t, int64_t>>;

  const std::string path_;
};

TEST_F(LineTimesTest, RecordsSurviveARoundTrip) {
  const LineTime large = {0xFEDCBA9876543210, 1'795'000'000'123'456};
  {
    LineTimesWriter writer;
    ASSERT_TRUE(writer.Open(path_));
    writer.Add({0, 1'795'000'000'000'000});
    writer.Add(large);
  }
  EXPECT_EQ(Records(), (Expected{{0, 1'795'000'000'000'000}, {large.offset, large.unix_micros}}));
  EXPECT_EQ(EncodeLineTime({1, 2}), std::string("\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0", 16));
}

TEST_F(LineTimesTest, RemovesTruncatedRecordAndContinues) {
  {
    LineTimesWriter writer;
    ASSERT_TRUE(writer.Open(path_));
    writer.Add({0, 100});
    writer.Add({5, 200});
  }
  ASSERT_EQ(truncate(path_.c_str(), 2 * kLineTimeBytes - 3), 0);
  LineTimesWriter writer;
  ASSERT_TRUE(writer.Open(path_));
  writer.Add({9, 300});
  EXPECT_EQ(Records(), (Expected{{0, 100}, {9, 300}}));
}

TEST_F(LineTimesTest, TimesNeverDecrease) {
  {
    LineTimesWriter writer;
    ASSERT_TRUE(writer.Open(path_));
    writer.Add({0, 100});
    writer.Add({5, 90});
  }
  LineTimesWriter writer;
  ASSERT_TRUE(writer.Open(path_));
  writer.Add({9, 80});
  writer.Add({12, 110});
  EXPECT_EQ(Records(), (Expected{{0, 100}, {5, 100}, {9, 100}, {12, 110}}));
}

}  // namespace
}  // namespace muster::shim
