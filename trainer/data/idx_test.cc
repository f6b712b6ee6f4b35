#include "trainer/data/idx.h"

#include <zlib.h>

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/data/testing.h"

namespace muster::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Gzip(const std::string& bytes) {
  std::string packed(compressBound(bytes.size()) + 64, '\0');
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

std::string Text(const IdxFile& file) { return {file.elements().begin(), file.elements().end()}; }

size_t FilesIn(const std::string& directory, const std::string& suffix) {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    count += entry.path().extension() == suffix;
  }
  return count;
}

class IdxTest : public ::testing::Test {
 protected:
  absl::Status OpenError(const std::string& bytes, const std::string& name = "file") {
    WriteFile(path(name), bytes);
    return IdxFile::Open(path("file"), cache_).status();
  }
  std::string path(const std::string& name) const { return directory_.path() + "/" + name; }

  TemporaryDirectory directory_;
  const std::string cache_ = directory_.path() + "/cache";
};

TEST_F(IdxTest, ReadsAnUnpackedFileInPlace) {
  WriteFile(path("file"), IdxBytes({2, 3}, "abcdef"));
  const auto file = IdxFile::Open(path("file"), cache_);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(file->dimensions(), ElementsAre(2, 3));
  EXPECT_EQ(Text(*file), "abcdef");
  EXPECT_FALSE(std::filesystem::exists(cache_));
}

TEST_F(IdxTest, UnpacksOnceIntoTheCache) {
  WriteFile(path("file.gz"), Gzip(IdxBytes({6}, "abcdef")));
  ASSERT_EQ(Text(*IdxFile::Open(path("file"), cache_)), "abcdef");
  ASSERT_EQ(FilesIn(cache_, ""), 1);
  // Named by path, size and time: while these do not change, the packed file is not even read.
  const auto time = std::filesystem::last_write_time(path("file.gz"));
  WriteFile(path("file.gz"), std::string(std::filesystem::file_size(path("file.gz")), 'x'));
  std::filesystem::last_write_time(path("file.gz"), time);
  EXPECT_EQ(Text(*IdxFile::Open(path("file"), cache_)), "abcdef");
}

TEST_F(IdxTest, UnpacksAReplacedSourceAgain) {
  WriteFile(path("file.gz"), Gzip(IdxBytes({3}, "abc")));
  ASSERT_EQ(Text(*IdxFile::Open(path("file"), cache_)), "abc");
  WriteFile(path("file.gz"), Gzip(IdxBytes({4}, "efgh")));
  EXPECT_EQ(Text(*IdxFile::Open(path("file"), cache_)), "efgh");
}

TEST_F(IdxTest, RepairsADamagedCache) {
  WriteFile(path("file.gz"), Gzip(IdxBytes({6}, "abcdef")));
  ASSERT_TRUE(IdxFile::Open(path("file"), cache_).ok());
  std::string cached;
  for (const auto& entry : std::filesystem::directory_iterator(cache_)) {
    if (entry.path().extension().empty()) cached = entry.path();
  }
  const std::string intact = ReadFile(cached);
  std::string changed = intact;
  changed[9] ^= 1;  // in the elements, where any value is valid
  for (const std::string& damaged : {changed, intact.substr(0, 9), std::string()}) {
    WriteFile(cached, damaged);
    const auto file = IdxFile::Open(path("file"), cache_);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(Text(*file), "abcdef");
    EXPECT_EQ(ReadFile(cached), intact);
  }
}

TEST_F(IdxTest, ConcurrentOpensUnpackOnce) {
  WriteFile(path("file.gz"), Gzip(IdxBytes({1 << 20}, std::string(1 << 20, 'z'))));
  std::vector<std::thread> threads;
  std::vector<absl::Status> statuses(8);
  for (absl::Status& status : statuses) {
    threads.emplace_back(
        [this, &status] { status = IdxFile::Open(path("file"), cache_).status(); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(FilesIn(cache_, ""), 1);
  EXPECT_EQ(FilesIn(cache_, ".part"), 0);
}

TEST_F(IdxTest, NamesAMissingFile) {
  const absl::Status status = IdxFile::Open(path("file"), cache_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr(path("file")));
}

TEST_F(IdxTest, ReportsTheMissingBytesOfATruncatedFile) {
  const absl::Status status = OpenError(IdxBytes({10}, "abcdef"));
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr(path("file")));
  EXPECT_THAT(std::string(status.message()), HasSubstr("4 of 18 bytes are missing"));
}

TEST_F(IdxTest, ReportsTheMissingBytesOfATruncatedPackedFile) {
  // Incompressible, so that half of the packed bytes contain about half of the content.
  std::string content;
  for (uint32_t i = 0, x = 1; i < 100000; ++i)
    content.push_back((x = x * 1664525 + 1013904223) >> 24);
  const std::string packed = Gzip(IdxBytes({100000}, content));
  const absl::Status status = OpenError(packed.substr(0, packed.size() / 2), "file.gz");
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              ::testing::MatchesRegex(".*file.gz is truncated: [0-9]+ of 100008 .*missing"));
  EXPECT_EQ(FilesIn(cache_, ".part"), 0);
}

TEST_F(IdxTest, ReportsTheMissingBytesOfAShortUnpackedFile) {
  const absl::Status status = OpenError(Gzip(IdxBytes({10}, "abcdef")), "file.gz");
  EXPECT_THAT(std::string(status.message()), HasSubstr("4 of 18 unpacked bytes are missing"));
}

TEST_F(IdxTest, RejectsADamagedPackedFile) {
  std::string packed = Gzip(IdxBytes({6}, "abcdef"));
  packed[packed.size() - 6] ^= 1;  // in its checksum
  EXPECT_EQ(OpenError(packed, "file.gz").code(), absl::StatusCode::kDataLoss);
}

TEST_F(IdxTest, RejectsInvalidHeaders) {
  EXPECT_EQ(OpenError("").code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(OpenError(IdxBytes({}, "")).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(OpenError(IdxBytes({1, 1, 1, 1, 1}, "a")).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(OpenError(IdxBytes({3}, "abc").substr(0, 6)).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(OpenError(IdxBytes({2}, "abc")).code(), absl::StatusCode::kDataLoss);
  // The product of the dimensions wraps around 64 bits to zero.
  EXPECT_EQ(OpenError(IdxBytes({1u << 31, 1u << 31, 4}, "")).code(), absl::StatusCode::kDataLoss);
  std::string floats = IdxBytes({1}, "abcd");
  floats[2] = '\x0d';
  EXPECT_EQ(OpenError(floats).code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace muster::data
