#include "trainer/checkpoint/part_file.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/data/testing.h"
#include "trainer/exit_code.h"

namespace muster::train {
namespace {

class PartFileTest : public ::testing::Test {
 protected:
  absl::StatusOr<PartFile> Read(const std::string& text) const {
    const std::string path = directory_.path() + "/part-00001.json";
    data::WriteFile(path, text);
    return ReadPartFile(path);
  }
  data::TemporaryDirectory directory_;
};

TEST_F(PartFileTest, ReadsWrittenReports) {
  PartFile part;
  part.attempt = "job 1 7 1";
  part.shards["model.safetensors"] = {
      "model-00001-of-00002.safetensors", {80, "0123"}, {"fc.weight", "fc.bias"}, 24};
  const auto read = Read(FormatPartFile(part));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->attempt, "job 1 7 1");
  EXPECT_TRUE(read->error.ok());
  ASSERT_EQ(read->shards.size(), 1);
  const Shard& shard = read->shards.at("model.safetensors");
  EXPECT_EQ(shard.name, "model-00001-of-00002.safetensors");
  EXPECT_EQ(shard.entry.size_bytes, 80);
  EXPECT_EQ(shard.entry.sha256, "0123");
  EXPECT_THAT(shard.tensors, ::testing::ElementsAre("fc.weight", "fc.bias"));
  EXPECT_EQ(shard.tensor_bytes, 24);
}

TEST_F(PartFileTest, KeepsErrorsWithExitCode) {
  PartFile part;
  // A path need not be UTF-8.
  part.error = WithExitCode(absl::ResourceExhaustedError("write /\xff: no space"), kExitDiverged);
  const auto read = Read(FormatPartFile(part));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(absl::IsResourceExhausted(read->error));
  EXPECT_THAT(std::string(read->error.message()), ::testing::EndsWith(": no space"));
  EXPECT_EQ(ExitCodeOf(read->error), kExitDiverged);
}

TEST_F(PartFileTest, RejectsMalformedFiles) {
  for (const char* text : {"", "[]", "{}", R"({"files": {}})", R"({"attempt": 1, "files": {}})",
                           R"({"attempt": "1", "files": {"model.safetensors": {"name": 1}}})",
                           R"({"attempt": "1", "files": {}, "error": {}})"}) {
    EXPECT_TRUE(absl::IsDataLoss(Read(text).status())) << text;
  }
}

}  // namespace
}  // namespace muster::train
