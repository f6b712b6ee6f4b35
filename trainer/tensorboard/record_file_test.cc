#include "trainer/tensorboard/record_file.h"

#include <sys/resource.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <string>

#include "gtest/gtest.h"
#include "trainer/data/testing.h"

namespace muster::train {
namespace {

std::string Bytes(std::initializer_list<int> values) {
  return std::string(values.begin(), values.end());
}

// The check value of the CRC's definition, and the test vectors of RFC 3720, B.4.
TEST(Crc32cTest, MatchesKnownValues) {
  EXPECT_EQ(Crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(Crc32c(""), 0u);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(Crc32c(std::string(32, '\xFF')), 0x62A8AB43u);
  std::string rising;
  for (int i = 0; i < 32; ++i) rising += static_cast<char>(i);
  EXPECT_EQ(Crc32c(rising), 0x46DD794Eu);
}

TEST(Crc32cTest, MasksCrc) {
  // Rotated right by 15 plus a constant; zero becomes the constant.
  EXPECT_EQ(MaskedCrc32c(""), 0xA282EAD8u);
  const uint32_t crc = 0xE3069283;
  EXPECT_EQ(MaskedCrc32c("123456789"), ((crc >> 15 | crc << 17) + 0xA282EAD8u));
}

TEST(FramedRecordTest, ContainsLengthDataAndChecksums) {
  const std::string record = FramedRecord("123456789");
  ASSERT_EQ(record.size(), 8u + 4 + 9 + 4);
  EXPECT_EQ(record.substr(0, 8), Bytes({9, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(record.substr(12, 9), "123456789");
  const auto number = [&record](size_t at) {
    uint32_t value = 0;
    for (size_t i = 4; i-- > 0;) value = value << 8 | static_cast<unsigned char>(record[at + i]);
    return value;
  };
  EXPECT_EQ(number(8), MaskedCrc32c(record.substr(0, 8)));
  EXPECT_EQ(number(21), MaskedCrc32c("123456789"));
  EXPECT_EQ(FramedRecord(std::string(300, 'x')).substr(0, 2), Bytes({44, 1}));
}

TEST(RecordFileTest, AppendedRecordsAreVisibleAtOnce) {
  const data::TemporaryDirectory directory;
  const std::string path = directory.path() + "/records";
  auto file = RecordFile::Create(path);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Append("one").ok());
  ASSERT_TRUE((*file)->Append("").ok());
  // The file is still open.
  std::ifstream reader(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(reader), {}};
  EXPECT_EQ(bytes, FramedRecord("one") + FramedRecord(""));
  EXPECT_TRUE((*file)->Sync().ok());
}

TEST(RecordFileTest, NamesPathInErrors) {
  const data::TemporaryDirectory directory;
  const std::string path = directory.path() + "/records";
  ASSERT_TRUE(RecordFile::Create(path).ok());
  EXPECT_EQ(RecordFile::Create(path).status().code(), absl::StatusCode::kAlreadyExists);
  const absl::Status missing = RecordFile::Create(directory.path() + "/no/records").status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(missing.message().find("/no/records"), std::string::npos) << missing;
}

TEST(RecordFileTest, ReturnsErrorWhenDiskIsFull) {
  const data::TemporaryDirectory directory;
  auto file = RecordFile::Create(directory.path() + "/records");
  ASSERT_TRUE(file.ok());
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 64;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status status = (*file)->Append(std::string(100, 'x'));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find((*file)->path()), std::string::npos) << status;
}

}  // namespace
}  // namespace muster::train
