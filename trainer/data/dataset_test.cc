#include "trainer/data/dataset.h"

#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/data/testing.h"

namespace muster::data {
namespace {

using ::testing::HasSubstr;

TEST(FindDatasetTest, ListsTheKnownDataSets) {
  ASSERT_TRUE(FindDataset("fashion_mnist").ok());
  EXPECT_FLOAT_EQ(FindDataset("mnist")->mean[0], 0.1307f);
  const absl::Status status = FindDataset("fashion-mnist").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("fashion_mnist, mnist"));
}

TEST(FindDatasetTest, ImageFolderHasNoSizeAndClasses) {
  const auto info = FindDataset("image_folder");
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->height, 0);
  EXPECT_EQ(info->channels, 3);
  EXPECT_EQ(info->classes, 0);
}

class DatasetTest : public ::testing::Test {
 protected:
  void SetUp() override { WriteSyntheticDataset(directory_.path(), 30, 20); }
  absl::StatusOr<std::unique_ptr<ImageDataset>> Open(Split split) const {
    return OpenDataset({.name = "fashion_mnist", .path = directory_.path()}, split,
                       directory_.path() + "/cache");
  }
  TemporaryDirectory directory_;
};

TEST_F(DatasetTest, OpensBothSplits) {
  const auto train = Open(Split::kTrain);
  const auto test = Open(Split::kTest);
  ASSERT_TRUE(train.ok()) << train.status();
  ASSERT_TRUE(test.ok()) << test.status();
  EXPECT_EQ((*train)->size(), 30);
  EXPECT_EQ((*test)->size(), 20);
  EXPECT_EQ((*train)->label(17), 7);
  EXPECT_EQ((*train)->image(1) - (*train)->image(0), 28 * 28);
}

TEST_F(DatasetTest, DigestDistinguishesData) {
  const std::string digest = (*Open(Split::kTest))->Digest();
  EXPECT_EQ((*Open(Split::kTest))->Digest(), digest);
  EXPECT_NE((*Open(Split::kTrain))->Digest(), digest);
  WriteFile(directory_.path() + "/t10k-labels-idx1-ubyte",
            IdxBytes({20}, std::string(19, '\0') + '\x01'));
  EXPECT_NE((*Open(Split::kTest))->Digest(), digest);
}

TEST_F(DatasetTest, RejectsLabelsOutOfRange) {
  WriteFile(directory_.path() + "/t10k-labels-idx1-ubyte",
            IdxBytes({20}, std::string(19, '\x09') + '\x0a'));
  const absl::Status status = Open(Split::kTest).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("label 10 of sample 19"));
}

TEST_F(DatasetTest, RejectsMismatchedImagesAndLabels) {
  WriteFile(directory_.path() + "/train-labels-idx1-ubyte", IdxBytes({29}, std::string(29, '\0')));
  EXPECT_EQ(Open(Split::kTrain).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(DatasetTest, RejectsImagesOfAnotherSize) {
  WriteFile(directory_.path() + "/train-images-idx3-ubyte",
            IdxBytes({30, 1, 1}, std::string(30, '\0')));
  EXPECT_EQ(Open(Split::kTrain).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(DatasetTest, MeanAndDeviationCanBeOverridden) {
  DatasetOptions options = {"mnist", directory_.path(), {0.25f}, {}};
  EXPECT_EQ((*OpenDataset(options, Split::kTest, ""))->info().mean[0], 0.25f);
  EXPECT_FLOAT_EQ((*OpenDataset(options, Split::kTest, ""))->info().standard_deviation[0], 0.3081f);
  const auto error_message = [&options] {
    const absl::Status status = OpenDataset(options, Split::kTest, "").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  options.standard_deviation = {0};
  EXPECT_THAT(error_message(), HasSubstr("standard_deviation: 0 must be greater than 0"));
  options.standard_deviation = {0.5f};
  options.mean = {0.1f, 0.2f, 0.3f};
  EXPECT_THAT(error_message(), HasSubstr("mean has 3 values, expected one per channel: 1"));
}

TEST_F(DatasetTest, NamesAMissingFile) {
  std::filesystem::remove(directory_.path() + "/t10k-images-idx3-ubyte");
  const absl::Status status = Open(Split::kTest).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("t10k-images-idx3-ubyte"));
}

}  // namespace
}  // namespace muster::data
