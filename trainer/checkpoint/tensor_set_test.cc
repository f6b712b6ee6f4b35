#include "trainer/checkpoint/tensor_set.h"

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/data/testing.h"

namespace muster::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kBothFiles[] =
    R"({"metadata": {"total_size": 12},
        "weight_map": {"a": "model-00001-of-00002.safetensors",
                       "b": "model-00002-of-00002.safetensors"}})";

class TensorSetTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const {
    return absl::StrCat(directory_.path(), "/", name);
  }
  void WriteTensors(const std::string& name, const std::vector<Tensor>& tensors) const {
    std::string bytes;
    EXPECT_TRUE(WriteSafetensors(tensors, [&](absl::Span<const uint8_t> more) {
                  bytes.append(more.begin(), more.end());
                  return absl::OkStatus();
                }).ok());
    data::WriteFile(Path(name), bytes);
  }
  // Tensor a with one value and b with two, in two files.
  void WriteTwoFiles(const std::string& index = kBothFiles) const {
    WriteTensors("model-00001-of-00002.safetensors", {{"a", {1}, std::vector<float>{1}}});
    WriteTensors("model-00002-of-00002.safetensors", {{"b", {2}, std::vector<float>{2, 3}}});
    data::WriteFile(Path("model.safetensors.index.json"), index);
  }
  std::string ErrorOf(const std::string& index) const {
    WriteTwoFiles(index);
    const absl::Status status = TensorSet::Open(Path("model.safetensors")).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    return std::string(status.message());
  }
  data::TemporaryDirectory directory_;
};

TEST_F(TensorSetTest, ReadsSeveralFilesByIndexSingleNameOrFolder) {
  WriteTwoFiles();
  EXPECT_TRUE(TensorsExist(Path("model.safetensors")));
  EXPECT_FALSE(TensorsExist(Path("ema.safetensors")));
  for (const std::string& path :
       {Path("model.safetensors.index.json"), Path("model.safetensors"), directory_.path()}) {
    const auto set = TensorSet::Open(path);
    ASSERT_TRUE(set.ok()) << set.status();
    EXPECT_THAT(set->names(), ElementsAre("a", "b"));
    EXPECT_TRUE(set->Contains("b"));
    EXPECT_FALSE(set->Contains("c"));
    EXPECT_THAT(*set->ReadFloats("a", {1}), ElementsAre(1));
    EXPECT_THAT(*set->ReadFloats("b", {2}), ElementsAre(2, 3));
    EXPECT_EQ(set->ReadFloats("c", {}).status().code(), absl::StatusCode::kNotFound);
  }
}

TEST_F(TensorSetTest, PrefersSingleFile) {
  WriteTwoFiles();
  WriteTensors("model.safetensors", {{"c", {1}, std::vector<float>{4}}});
  for (const std::string& path : {Path("model.safetensors"), directory_.path()}) {
    EXPECT_THAT(TensorSet::Open(path)->names(), ElementsAre("c"));
  }
}

TEST_F(TensorSetTest, ReturnsErrorOfMissingFile) {
  const absl::Status status = TensorSet::Open(Path("model.safetensors")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr(Path("model.safetensors")));
  WriteTwoFiles();
  std::filesystem::remove(Path("model-00002-of-00002.safetensors"));
  EXPECT_THAT(std::string(TensorSet::Open(Path("model.safetensors")).status().message()),
              HasSubstr("model-00002-of-00002.safetensors"));
}

TEST_F(TensorSetTest, RejectsIndexThatDoesNotMatchFiles) {
  EXPECT_THAT(ErrorOf("no JSON"), HasSubstr("has no weight_map"));
  EXPECT_THAT(ErrorOf(R"({"weight_map": ["a"]})"), HasSubstr("has no weight_map"));
  EXPECT_THAT(ErrorOf(R"({"weight_map": {"a": 1}})"), HasSubstr("for tensor a"));
  EXPECT_THAT(ErrorOf(R"({"weight_map": {"a": "../model.safetensors"}})"),
              HasSubstr("names no file in its folder for tensor a"));
  EXPECT_THAT(ErrorOf(R"({"weight_map": {"b": "model-00001-of-00002.safetensors"}})"),
              HasSubstr("lists tensor b, which " + Path("model-00001-of-00002.safetensors")));
}

TEST_F(TensorSetTest, RejectsTensorInTwoFiles) {
  WriteTwoFiles();
  WriteTensors("model-00002-of-00002.safetensors",
               {{"a", {1}, std::vector<float>{2}}, {"b", {1}, std::vector<float>{2}}});
  const absl::Status status = TensorSet::Open(Path("model.safetensors")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("tensor a is in "));
}

}  // namespace
}  // namespace muster::train
