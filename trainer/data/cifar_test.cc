#include "trainer/data/cifar.h"

#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/data/dataset.h"
#include "trainer/data/testing.h"

namespace muster::data {
namespace {

using ::testing::HasSubstr;

size_t FilesIn(const std::string& directory, const std::string& extension) {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    count += entry.path().extension() == extension;
  }
  return count;
}

class CifarTest : public ::testing::Test {
 protected:
  using Opened = absl::StatusOr<std::unique_ptr<ImageDataset>>;

  Opened Open(const std::string& name, Split split = Split::kTrain) const {
    return OpenDataset({.name = name, .path = directory_.path()}, split, cache_);
  }
  // Expects that opening returns DATA_LOSS, and returns the message.
  std::string DataLossMessage(const std::string& name, Split split = Split::kTrain) const {
    const absl::Status status = Open(name, split).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    return std::string(status.message());
  }
  std::string path(const std::string& name) const { return directory_.path() + "/" + name; }

  TemporaryDirectory directory_;
  const std::string cache_ = directory_.path() + "/cache";
};

TEST_F(CifarTest, ReadsCifar10) {
  WriteCifar10(directory_.path(), 300, 12);
  const auto train = Open("cifar10");
  ASSERT_TRUE(train.ok()) << train.status();
  ASSERT_EQ((*train)->size(), 1500);
  EXPECT_EQ((*train)->info().classes, 10);
  for (const size_t i : {0, 1, 255, 256, 299, 300, 1499}) {
    const size_t record = i % 300;
    ASSERT_EQ((*train)->label(i), record % 10);
    const uint8_t* image = (*train)->image(i);
    for (size_t y = 0; y < 32; ++y) {
      for (size_t x = 0; x < 32; ++x) {
        for (size_t c = 0; c < 3; ++c) {
          ASSERT_EQ(image[(y * 32 + x) * 3 + c], CifarPixel(record, y, x, c)) << i;
        }
      }
    }
  }
  const auto test = Open("cifar10", Split::kTest);
  ASSERT_TRUE(test.ok()) << test.status();
  EXPECT_EQ((*test)->size(), 12);
  EXPECT_NE((*test)->Digest(), (*train)->Digest());
}

TEST_F(CifarTest, ReadsCifar100WithTheFineLabels) {
  WriteFile(path("train.bin"), CifarBytes(230, 100, true));
  WriteFile(path("test.bin"), CifarBytes(5, 100, true));
  const auto train = Open("cifar100");
  ASSERT_TRUE(train.ok()) << train.status();
  EXPECT_EQ((*train)->size(), 230);
  EXPECT_EQ((*train)->label(99), 99);
  EXPECT_EQ((*train)->label(229), 29);
  EXPECT_EQ((*train)->image(229)[1], CifarPixel(229, 0, 0, 1));
  EXPECT_EQ((*Open("cifar100", Split::kTest))->size(), 5);
}

TEST_F(CifarTest, FindsTheSubfolderOfTheArchive) {
  std::filesystem::create_directory(path("cifar-10-batches-bin"));
  WriteCifar10(path("cifar-10-batches-bin"), 3, 2);
  std::filesystem::create_directory(path("cifar-100-binary"));
  WriteFile(path("cifar-100-binary/test.bin"), CifarBytes(5, 100, true));
  EXPECT_EQ((*Open("cifar10"))->size(), 15);
  EXPECT_EQ((*Open("cifar100", Split::kTest))->size(), 5);
}

TEST_F(CifarTest, ReaderReturnsTheSamePixels) {
  WriteCifar10(directory_.path(), 3, 2);
  const auto train = Open("cifar10");
  const std::unique_ptr<ImageReader> reader = (*train)->NewReader();
  const auto size = reader->Open(7);
  ASSERT_TRUE(size.ok());
  EXPECT_EQ(size->height, 32);
  EXPECT_EQ(size->width, 32);
  const auto decoded = reader->Decode({4.5, 6, 10, 11.25}, {1, 1});
  ASSERT_TRUE(decoded.ok());
  const ImageView& view = decoded->view;
  const auto y = static_cast<int64_t>(decoded->region.top + 0.5);
  const auto x = static_cast<int64_t>(decoded->region.left);
  EXPECT_EQ(view.pixels[y * view.row_bytes + x * 3 + 2], CifarPixel(7 % 3, 5, 6, 2));
}

TEST_F(CifarTest, ConvertsOnceForAllProcesses) {
  WriteCifar10(directory_.path(), 100, 2);
  std::vector<std::thread> threads;
  std::vector<absl::Status> statuses(6);
  for (absl::Status& status : statuses) {
    threads.emplace_back([this, &status] { status = Open("cifar10").status(); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(FilesIn(cache_, ""), 1);
  EXPECT_EQ(FilesIn(cache_, ".part"), 0);
}

TEST_F(CifarTest, RepairsADamagedCache) {
  WriteCifar10(directory_.path(), 20, 2);
  const std::string digest = (*Open("cifar10"))->Digest();
  for (const auto& entry : std::filesystem::directory_iterator(cache_)) {
    if (!entry.path().extension().empty()) continue;
    std::string bytes = ReadFile(entry.path());
    bytes[0] ^= 1;  // a pixel
    WriteFile(entry.path(), bytes);
  }
  EXPECT_EQ((*Open("cifar10"))->Digest(), digest);
}

TEST_F(CifarTest, ConvertsReplacedFilesAgain) {
  WriteCifar10(directory_.path(), 20, 2);
  ASSERT_EQ((*Open("cifar10"))->size(), 100);
  WriteCifar10(directory_.path(), 21, 2);
  EXPECT_EQ((*Open("cifar10"))->size(), 105);
}

TEST_F(CifarTest, NamesAMissingFile) {
  WriteCifar10(directory_.path(), 2, 2);
  std::filesystem::remove(path("data_batch_4.bin"));
  const absl::Status status = Open("cifar10").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr(path("data_batch_4.bin")));
}

TEST_F(CifarTest, RejectsWrongByteCounts) {
  WriteCifar10(directory_.path(), 2, 2);
  WriteFile(path("data_batch_2.bin"), CifarBytes(2, 10, false).substr(0, 6000));
  EXPECT_THAT(DataLossMessage("cifar10"),
              HasSubstr(path("data_batch_2.bin") +
                        " is truncated or too long: 6000 bytes are 2927 more than whole records"));
  // Truncated between two records, which shows only in comparison with the other files.
  WriteFile(path("data_batch_2.bin"), CifarBytes(1, 10, false));
  EXPECT_THAT(DataLossMessage("cifar10"), HasSubstr("data_batch_2.bin contains 1 images, but"));
  WriteFile(path("test_batch.bin"), "");
  EXPECT_THAT(DataLossMessage("cifar10", Split::kTest),
              HasSubstr("test_batch.bin contains no images"));
  // CIFAR-100's records are one byte longer.
  WriteFile(path("train.bin"), CifarBytes(2, 10, false));
  EXPECT_THAT(DataLossMessage("cifar100"), HasSubstr("train.bin"));
}

TEST_F(CifarTest, RejectsLabelsOutOfRange) {
  WriteCifar10(directory_.path(), 2, 2);
  std::string bytes = CifarBytes(2, 10, false);
  bytes[3073] = '\x0a';
  WriteFile(path("data_batch_5.bin"), bytes);
  EXPECT_THAT(
      DataLossMessage("cifar10"),
      HasSubstr(path("data_batch_5.bin") + ": label 10 of image 1 is out of range for 10 classes"));
  EXPECT_EQ(FilesIn(cache_, ".part"), 0);
  bytes = CifarBytes(2, 100, true);
  bytes[1] = '\x64';
  WriteFile(path("train.bin"), bytes);
  EXPECT_THAT(DataLossMessage("cifar100"),
              HasSubstr("label 100 of image 0 is out of range for 100 classes"));
  bytes = CifarBytes(2, 100, true);
  bytes[3074] = '\x14';
  WriteFile(path("train.bin"), bytes);
  EXPECT_THAT(DataLossMessage("cifar100"),
              HasSubstr("label 20 of image 1 is out of range for 20 classes"));
}

}  // namespace
}  // namespace muster::data
