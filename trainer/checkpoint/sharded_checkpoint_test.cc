// Ranks are threads, or calls one after the other, that share a directory.
#include "trainer/checkpoint/sharded_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/checkpoint/part_file.h"
#include "trainer/checkpoint/tensor_set.h"
#include "trainer/data/testing.h"
#include "trainer/exit_code.h"

namespace muster::train {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kName[] = "step-00000007.g1";

Tensor Floats(const std::string& name, std::vector<float> values) {
  const auto count = static_cast<int64_t>(values.size());
  return {name, {count}, std::move(values)};
}

// Contents of a part with one tensor per file, of `index` + 1 values.
struct Part {
  explicit Part(uint32_t index)
      : model{Floats(absl::StrCat("w", index), std::vector<float>(index + 1, 1.0f + index))},
        optimizer{Floats(absl::StrCat("w", index, ".momentum"), {-1.0f * index})},
        average{Floats(absl::StrCat("w", index), {0.5f * index})} {}
  PartTensors tensors() const { return {model, optimizer, average}; }
  std::vector<Tensor> model, optimizer, average;
};

class ShardedCheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = *CheckpointDirectory::OpenForWriting(
        {.path = parent_.path(), .job_id = "job", .generation = 1});
    state_.step = 7;
    state_.job_id = "job";
    state_.generation = 1;
    ASSERT_TRUE(directory_->CreateUnfinished(7).ok());
  }
  ShardedAttempt Attempt(uint32_t parts, const std::string& id = "job 1 7 1") const {
    return {directory_->UnfinishedPath(7), id, parts};
  }
  // By default does not wait.
  absl::Status Publish(const ShardedAttempt& attempt,
                       const PartWait& wait = {.timeout = absl::ZeroDuration()}) const {
    return PublishParts(*directory_, state_, attempt, wait).status();
  }
  static std::vector<std::string> Names(const std::string& folder) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder)) {
      names.push_back(entry.path().filename());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  std::string StepPath() const { return directory_->FolderPath(kName); }

  data::TemporaryDirectory parent_;
  std::optional<CheckpointDirectory> directory_;
  CheckpointState state_;
};

TEST_F(ShardedCheckpointTest, PublishesPartsWithIndexes) {
  const ShardedAttempt attempt = Attempt(2);
  for (const uint32_t index : {1, 0}) {
    ASSERT_TRUE(WritePart(attempt, index, Part(index).tensors()).ok());
  }
  const absl::Status published = Publish(attempt);
  ASSERT_TRUE(published.ok()) << published;
  EXPECT_THAT(
      Names(StepPath()),
      ElementsAre("ema-00001-of-00002.safetensors", "ema-00002-of-00002.safetensors",
                  "ema.safetensors.index.json", "manifest.json", "model-00001-of-00002.safetensors",
                  "model-00002-of-00002.safetensors", "model.safetensors.index.json",
                  "optimizer-00001-of-00002.safetensors", "optimizer-00002-of-00002.safetensors",
                  "optimizer.safetensors.index.json", "state.json"));
  ASSERT_TRUE(directory_->Verify(kName).ok()) << directory_->Verify(kName).status();
  std::ifstream in(StepPath() + "/model.safetensors.index.json");
  const std::string index(std::istreambuf_iterator<char>(in), {});
  EXPECT_EQ(index,
            "{\n  \"metadata\": {\n    \"total_size\": 12\n  },\n  \"weight_map\": {\n"
            "    \"w0\": \"model-00001-of-00002.safetensors\",\n"
            "    \"w1\": \"model-00002-of-00002.safetensors\"\n  }\n}\n");
  EXPECT_THAT(*TensorSet::Open(directory_->ModelPath(kName))->ReadFloats("w1", {2}),
              ElementsAre(2, 2));
  EXPECT_THAT(*TensorSet::Open(directory_->OptimizerPath(kName))->ReadFloats("w1.momentum", {1}),
              ElementsAre(-1));
  EXPECT_THAT(*TensorSet::Open(*directory_->AveragePath(kName))->ReadFloats("w1", {1}),
              ElementsAre(0.5));
}

// A rank without tensors, an optimizer without states, no average.
TEST_F(ShardedCheckpointTest, OmitsEmptyFiles) {
  const ShardedAttempt attempt = Attempt(2);
  const std::vector<Tensor> model = {Floats("w", {1})};
  ASSERT_TRUE(WritePart(attempt, 0, {.model = model}).ok());
  ASSERT_TRUE(WritePart(attempt, 1, {}).ok());
  ASSERT_TRUE(Publish(attempt).ok());
  EXPECT_THAT(Names(StepPath()), ElementsAre("manifest.json", "model-00001-of-00002.safetensors",
                                             "model.safetensors.index.json",
                                             "optimizer.safetensors.index.json", "state.json"));
  EXPECT_TRUE(directory_->Verify(kName).ok());
  EXPECT_THAT(TensorSet::Open(directory_->OptimizerPath(kName))->names(), IsEmpty());
  EXPECT_EQ(directory_->AveragePath(kName), std::nullopt);
}

TEST_F(ShardedCheckpointTest, VerifiesEveryShard) {
  for (const char* file : {"model-00002-of-00002.safetensors", "model.safetensors.index.json",
                           "optimizer-00001-of-00002.safetensors"}) {
    for (const uint32_t index : {0, 1}) {
      ASSERT_TRUE(WritePart(Attempt(2), index, Part(index).tensors()).ok());
    }
    ASSERT_TRUE(Publish(Attempt(2)).ok());
    ASSERT_TRUE(directory_->Verify(kName).ok());
    fs::remove(absl::StrCat(StepPath(), "/", file));
    EXPECT_EQ(directory_->Verify(kName).status().code(), absl::StatusCode::kDataLoss) << file;
  }
}

TEST_F(ShardedCheckpointTest, WaitsForPartsOfOtherRanks) {
  const ShardedAttempt attempt = Attempt(3);
  std::vector<std::thread> ranks;
  for (const uint32_t index : {0, 1}) {
    ranks.emplace_back(
        [&, index] { EXPECT_TRUE(WritePart(attempt, index, Part(index).tensors()).ok()); });
  }
  // The last part is written while the publisher waits.
  bool wrote = false;
  const absl::Status published =
      Publish(attempt, {.poll_interval = absl::ZeroDuration(), .check = [&] {
                          if (!wrote) EXPECT_TRUE(WritePart(attempt, 2, Part(2).tensors()).ok());
                          wrote = true;
                          return absl::OkStatus();
                        }});
  for (std::thread& rank : ranks) rank.join();
  ASSERT_TRUE(published.ok()) << published;
  EXPECT_TRUE(wrote);
  EXPECT_THAT(TensorSet::Open(directory_->ModelPath(kName))->names(),
              ElementsAre("w0", "w1", "w2"));
}

TEST_F(ShardedCheckpointTest, NamesMissingParts) {
  ASSERT_TRUE(WritePart(Attempt(3), 1, Part(1).tensors()).ok());
  const absl::Status status = Publish(
      Attempt(3), {.timeout = absl::Milliseconds(1), .poll_interval = absl::Milliseconds(1)});
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("parts 1, 3 of 3 are missing in " + directory_->UnfinishedPath(7) +
                        " after 1ms without progress"));
  EXPECT_FALSE(fs::exists(StepPath()));
  EXPECT_FALSE(fs::exists(directory_->UnfinishedPath(7)));
}

// A file that grows extends the wait and is reported.
TEST_F(ShardedCheckpointTest, WaitsAsLongAsFilesGrow) {
  const ShardedAttempt attempt = Attempt(1);
  data::WriteFile(attempt.folder + "/growing", "");
  int polls = 0;
  uint64_t reported_bytes = 0;
  PartWait wait;
  wait.timeout = wait.poll_interval = absl::ZeroDuration();
  wait.check = [&] {
    data::WriteFile(attempt.folder + "/growing", std::string(++polls, 'x'));
    if (polls == 10) EXPECT_TRUE(WritePart(attempt, 0, Part(0).tensors()).ok());
    return absl::OkStatus();
  };
  wait.progress = [&](uint64_t bytes) { reported_bytes += bytes; };
  const absl::Status status = Publish(attempt, wait);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(polls, 10);
  EXPECT_EQ(reported_bytes, 9);
}

TEST_F(ShardedCheckpointTest, StopsWaitingOnRequest) {
  const absl::Status status =
      Publish(Attempt(1), {.check = [] { return absl::AbortedError("enough"); }});
  EXPECT_TRUE(absl::IsAborted(status)) << status;
  EXPECT_FALSE(fs::exists(directory_->UnfinishedPath(7)));
}

TEST_F(ShardedCheckpointTest, IgnoresPartsOfEarlierAttempt) {
  ASSERT_TRUE(WritePart(Attempt(2, "first"), 0, Part(5).tensors()).ok());
  ASSERT_TRUE(WritePart(Attempt(2, "first"), 1, Part(6).tensors()).ok());
  ASSERT_TRUE(WritePart(Attempt(2, "second"), 0, Part(0).tensors()).ok());
  const auto with = [&](const std::function<absl::Status()>& check) {
    return Publish(Attempt(2, "second"), {.poll_interval = absl::ZeroDuration(), .check = check});
  };
  bool waited = false;
  const absl::Status published = with([&] {
    waited = true;
    return WritePart(Attempt(2, "second"), 1, Part(1).tensors());
  });
  ASSERT_TRUE(published.ok()) << published;
  EXPECT_TRUE(waited);
  EXPECT_THAT(TensorSet::Open(directory_->ModelPath(kName))->names(), ElementsAre("w0", "w1"));
  EXPECT_TRUE(directory_->Verify(kName).ok());
}

TEST_F(ShardedCheckpointTest, ReportsFailureOfOneRankToPublisher) {
  const ShardedAttempt attempt = Attempt(2);
  ASSERT_TRUE(WritePart(attempt, 0, Part(0).tensors()).ok());
  // A folder is in the way of the second file.
  const std::string blocked = attempt.folder + "/optimizer-00002-of-00002.safetensors";
  fs::create_directories(blocked + "/in the way");
  const absl::Status failed = WritePart(attempt, 1, Part(1).tensors());
  EXPECT_FALSE(failed.ok());
  EXPECT_FALSE(fs::exists(attempt.folder + "/model-00002-of-00002.safetensors"));
  const absl::Status status = Publish(attempt);
  EXPECT_EQ(status.code(), failed.code());
  EXPECT_EQ(status.message(), absl::StrCat("write checkpoint: part 2 of 2: ", failed.message()));
  EXPECT_THAT(std::string(status.message()), HasSubstr(blocked));
  EXPECT_FALSE(fs::exists(StepPath()));
}

TEST_F(ShardedCheckpointTest, RejectsReportsWithNumbersThatAreNoCounts) {
  const std::string path = parent_.path() + "/part";
  for (const char* const code : {"1e300", "-1", "0.5"}) {
    data::WriteFile(path, absl::StrCat(R"({"attempt": "a", "files": {}, "error": {"code": )", code,
                                       R"(, "message": "m", "exit_code": 1}})"));
    EXPECT_TRUE(absl::IsDataLoss(ReadPartFile(path).status())) << code;
  }
}

TEST_F(ShardedCheckpointTest, PublishesNothingThatIsNotFinite) {
  Part diverged(1);
  diverged.optimizer[0].values = std::vector<float>{std::nanf("")};
  const ShardedAttempt attempt = Attempt(2);
  ASSERT_TRUE(WritePart(attempt, 0, Part(0).tensors()).ok());
  EXPECT_EQ(ExitCodeOf(WritePart(attempt, 1, diverged.tensors())), kExitDiverged);
  const absl::Status published = Publish(attempt);
  EXPECT_EQ(ExitCodeOf(published), kExitDiverged);
  EXPECT_THAT(std::string(published.message()), HasSubstr("w1.momentum"));
  EXPECT_FALSE(fs::exists(StepPath()));
}

// As on a full disk. A folder is in the way of the report, too.
TEST_F(ShardedCheckpointTest, ReportsFailureThatCannotBeDescribed) {
  const ShardedAttempt attempt = Attempt(2);
  ASSERT_TRUE(WritePart(attempt, 0, Part(0).tensors()).ok());
  fs::create_directories(attempt.folder + "/model-00002-of-00002.safetensors/in the way");
  fs::create_directories(attempt.folder + "/part-00002.json.tmp");
  EXPECT_FALSE(WritePart(attempt, 1, Part(1).tensors()).ok());
  EXPECT_EQ(Publish(attempt, {}).message(),
            "write checkpoint: part 2 of 2: cannot be written; see the log of its rank");
}

TEST_F(ShardedCheckpointTest, RejectsTensorInTwoParts) {
  for (const uint32_t index : {0, 1}) {
    ASSERT_TRUE(WritePart(Attempt(2), index, Part(0).tensors()).ok());
  }
  const absl::Status status = Publish(Attempt(2));
  EXPECT_TRUE(absl::IsInternal(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("tensor w0 is in "));
}

TEST_F(ShardedCheckpointTest, PublishesNothingInStaleGeneration) {
  ASSERT_TRUE(WritePart(Attempt(1), 0, Part(0).tensors()).ok());
  const auto newer = CheckpointDirectory::OpenForWriting(
      {.path = parent_.path(), .job_id = "job", .generation = 2});
  Checkpoint checkpoint;
  checkpoint.state.step = 3;
  checkpoint.state.job_id = "job";
  checkpoint.state.generation = 2;
  ASSERT_TRUE(newer->Write(checkpoint).ok());
  EXPECT_TRUE(absl::IsAborted(Publish(Attempt(1))));
  EXPECT_FALSE(fs::exists(StepPath()));
}

}  // namespace
}  // namespace muster::train
