#include "trainer/data/image_folder.h"

#include <filesystem>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/data/dataset.h"
#include "trainer/data/jpeg_testing.h"
#include "trainer/data/testing.h"

namespace muster::data {
namespace {

using ::testing::HasSubstr;

class ImageFolderTest : public ::testing::Test {
 protected:
  using Opened = absl::StatusOr<std::unique_ptr<ImageDataset>>;

  void SetUp() override {
    // Written in another order than that of the names.
    Write("train/dog/b.JPEG", {.height = 30, .width = 41});
    Write("train/dog/a.jpg", {.height = 20, .width = 21, .components = 1});
    Write("train/cat/1.jpg", {.height = 33, .width = 35, .progressive = true});
    Write("train/cat/10.Jpg", {.height = 16, .width = 16, .components = 4});
    Write("val/cat/1.jpg", {});
    Write("val/dog/1.jpg", {});
  }

  void Write(const std::string& name, const JpegOptions& options) const {
    WriteText(name, EncodeJpeg(options));
  }
  void WriteText(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    WriteFile(path(name), text);
  }
  Opened Open(Split split = Split::kTrain) const {
    return OpenDataset({.name = "image_folder", .path = directory_.path()}, split, "");
  }
  // Expects that opening returns DATA_LOSS, and returns the message.
  std::string DataLossMessage(Split split = Split::kTrain) const {
    const absl::Status status = Open(split).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    return std::string(status.message());
  }
  std::string path(const std::string& name) const { return directory_.path() + "/" + name; }

  TemporaryDirectory directory_;
};

TEST_F(ImageFolderTest, ListsClassesAndImagesByName) {
  const auto train = Open();
  ASSERT_TRUE(train.ok()) << train.status();
  EXPECT_EQ((*train)->info().classes, 2);
  EXPECT_EQ((*train)->info().channels, 3);
  EXPECT_FLOAT_EQ((*train)->info().mean[2], 0.406f);
  ASSERT_EQ((*train)->size(), 4);
  EXPECT_EQ((*train)->image(0), nullptr);
  const std::unique_ptr<ImageReader> reader = (*train)->NewReader();
  const int64_t heights[] = {33, 16, 20, 30};
  const int64_t widths[] = {35, 16, 21, 41};
  const int32_t labels[] = {0, 0, 1, 1};
  for (size_t i = 0; i < 4; ++i) {
    const auto size = reader->Open(i);
    ASSERT_TRUE(size.ok()) << size.status();
    EXPECT_EQ(size->height, heights[i]);
    EXPECT_EQ(size->width, widths[i]);
    EXPECT_EQ((*train)->label(i), labels[i]);
    const auto decoded = reader->Decode({1, 2, 10, 12}, {INT64_MAX, INT64_MAX});
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(decoded->view.height, 10);
    EXPECT_EQ(decoded->view.width, 12);
    EXPECT_EQ(decoded->view.channels, 3);
  }
}

TEST_F(ImageFolderTest, UsesTestIfThereIsNoVal) {
  EXPECT_EQ((*Open(Split::kTest))->size(), 2);
  std::filesystem::remove_all(path("val"));
  const absl::Status status = Open(Split::kTest).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr(directory_.path()));
  Write("test/dog/1.jpg", {});
  EXPECT_EQ((*Open(Split::kTest))->size(), 1);
}

TEST_F(ImageFolderTest, TestImagesHaveTheLabelsOfTheTrainingClasses) {
  std::filesystem::remove_all(path("val/cat"));
  const auto test = Open(Split::kTest);
  ASSERT_TRUE(test.ok()) << test.status();
  EXPECT_EQ((*test)->info().classes, 2);
  EXPECT_EQ((*test)->label(0), 1);  // dog
  Write("val/bird/1.jpg", {});
  EXPECT_THAT(DataLossMessage(Split::kTest), HasSubstr(path("val/bird")));
}

TEST_F(ImageFolderTest, IgnoresHiddenFilesAndTextFiles) {
  const std::string digest = (*Open())->Digest();
  WriteText("train/.DS_Store", "x");
  WriteText("train/dog/.b.jpg.swp", "x");
  WriteText("train/labels.csv", "x");
  WriteText("train/dog/README.TXT", "x");
  WriteText("train/.hidden/1.jpg", "x");
  const auto train = Open();
  ASSERT_TRUE(train.ok()) << train.status();
  EXPECT_EQ((*train)->size(), 4);
  EXPECT_EQ((*train)->Digest(), digest);
}

TEST_F(ImageFolderTest, RejectsOtherFiles) {
  WriteText("train/dog/c.png", "x");
  EXPECT_THAT(DataLossMessage(), HasSubstr(path("train/dog/c.png")));
  std::filesystem::remove(path("train/dog/c.png"));
  WriteText("train/dog/puppies/c.jpg", "x");
  EXPECT_THAT(DataLossMessage(), HasSubstr(path("train/dog/puppies") + " is a folder"));
  std::filesystem::remove_all(path("train/dog/puppies"));
  WriteText("train/c.jpg", "x");
  EXPECT_THAT(DataLossMessage(), HasSubstr(path("train/c.jpg") + " is not in a class folder"));
}

TEST_F(ImageFolderTest, RejectsEmptyFolders) {
  std::filesystem::create_directory(path("train/eel"));
  EXPECT_THAT(DataLossMessage(), HasSubstr(path("train/eel") + " contains no images"));
  std::filesystem::remove_all(path("train"));
  const absl::Status missing = Open().status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr(path("train")));
  std::filesystem::create_directory(path("train"));
  EXPECT_THAT(DataLossMessage(), HasSubstr(path("train") + " has no class folders"));
}

TEST_F(ImageFolderTest, DigestCoversNamesAndSizes) {
  const std::string digest = (*Open())->Digest();
  EXPECT_NE((*Open(Split::kTest))->Digest(), digest);
  const auto time = std::filesystem::last_write_time(path("train/dog/a.jpg"));
  std::filesystem::last_write_time(path("train/dog/a.jpg"), time + std::chrono::hours(1));
  EXPECT_EQ((*Open())->Digest(), digest);
  std::filesystem::rename(path("train/dog/a.jpg"), path("train/dog/aa.jpg"));
  EXPECT_NE((*Open())->Digest(), digest);
  std::filesystem::rename(path("train/dog/aa.jpg"), path("train/dog/a.jpg"));
  EXPECT_EQ((*Open())->Digest(), digest);
  WriteText("train/dog/a.jpg", "shorter");
  EXPECT_NE((*Open())->Digest(), digest);
}

TEST_F(ImageFolderTest, ReaderReportsDamageWithTheFileName) {
  const std::string jpeg = EncodeJpeg({.height = 30, .width = 41});
  WriteText("train/dog/b.JPEG", jpeg.substr(0, jpeg.size() * 9 / 10));
  WriteText("train/dog/c.jpg", "no JPEG");
  WriteText("train/dog/d.jpg", "");
  const auto train = Open();
  ASSERT_TRUE(train.ok()) << train.status();
  const std::unique_ptr<ImageReader> reader = (*train)->NewReader();
  ASSERT_TRUE(reader->Open(3).ok());
  const absl::Status cut = reader->Decode({0, 0, 30, 41}, {30, 41}).status();
  EXPECT_EQ(cut.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(cut.message()), HasSubstr(path("train/dog/b.JPEG")));
  for (const size_t i : {4, 5}) {
    const absl::Status status = reader->Open(i).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(status.message()), HasSubstr(path("train/dog/")));
  }
  std::filesystem::remove(path("train/dog/c.jpg"));
  EXPECT_EQ(reader->Open(4).status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(reader->Open(0).ok());
}

}  // namespace
}  // namespace muster::data
