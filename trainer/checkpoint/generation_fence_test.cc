#include "trainer/checkpoint/generation_fence.h"

#include "gtest/gtest.h"
#include "trainer/data/testing.h"

namespace muster::train {
namespace {

class GenerationFenceTest : public ::testing::Test {
 protected:
  // Publishes as a generation of a job and records whether the callback ran.
  absl::Status Publish(const std::string& job, uint64_t generation) {
    published_ = false;
    return Fence(job, generation).Publish([this] {
      published_ = true;
      return absl::OkStatus();
    });
  }
  GenerationFence Fence(const std::string& job, uint64_t generation) const {
    return {directory_.path(), job, generation};
  }
  data::TemporaryDirectory directory_;
  bool published_ = false;
};

TEST_F(GenerationFenceTest, PublishesAfterRaise) {
  ASSERT_TRUE(Fence("a", 1).Raise().ok());
  ASSERT_TRUE(Fence("a", 1).Raise().ok());  // every rank of a generation raises it
  EXPECT_TRUE(Publish("a", 1).ok());
  EXPECT_TRUE(published_);
}

TEST_F(GenerationFenceTest, RejectsOlderGeneration) {
  ASSERT_TRUE(Fence("a", 9).Raise().ok());
  ASSERT_TRUE(Fence("a", 10).Raise().ok());
  EXPECT_EQ(Publish("a", 9).code(), absl::StatusCode::kAborted);
  EXPECT_FALSE(published_);
  EXPECT_EQ(Fence("a", 9).Raise().code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(Publish("a", 10).ok());
}

TEST_F(GenerationFenceTest, OtherJobReplacesFence) {
  ASSERT_TRUE(Fence("a", 3).Raise().ok());
  ASSERT_TRUE(Fence("b", 1).Raise().ok());
  EXPECT_EQ(Publish("a", 3).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(published_);
  EXPECT_TRUE(Publish("b", 1).ok());
}

TEST_F(GenerationFenceTest, ReplacesDamagedFence) {
  data::WriteFile(directory_.path() + "/GENERATION", "a 99999999999999999999999999 x");
  EXPECT_TRUE(Fence("a", 1).Raise().ok());
  EXPECT_TRUE(Publish("a", 1).ok());
}

TEST_F(GenerationFenceTest, PublishReturnsErrorOfCallback) {
  ASSERT_TRUE(Fence("a", 1).Raise().ok());
  EXPECT_EQ(Fence("a", 1).Publish([] { return absl::DataLossError("x"); }).code(),
            absl::StatusCode::kDataLoss);
}

TEST_F(GenerationFenceTest, NamesMissingDirectory) {
  const GenerationFence fence(directory_.path() + "/none", "a", 1);
  EXPECT_EQ(fence.Raise().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace muster::train
