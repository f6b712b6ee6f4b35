#include "process_group/meeting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "common/limits.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Heard final : Meeting::Listener {
  void Complete(const std::vector<uint32_t>& node_of_rank) override { nodes = node_of_rank; }
  void Lost(uint32_t rank) override { lost.push_back(rank); }
  void End(const absl::Status& status) override { end = status; }

  std::vector<uint32_t> nodes;
  std::vector<uint32_t> lost;
  std::optional<absl::Status> end;
};

class MeetingTest : public ::testing::Test {
 protected:
  absl::Status Join(uint32_t rank, const std::string& host = "h", const std::string& run = "run",
                    uint32_t world_size = 3) {
    return meeting_.Join({.rank = rank, .world_size = world_size, .run = run, .host = host},
                         &heard_[rank % 3]);
  }
  // What has been answered so far.
  uint64_t Get(const std::string& key, std::vector<absl::StatusOr<std::string>>* answers) {
    return meeting_.Get(
        key, [answers](absl::StatusOr<std::string> answer) { answers->push_back(answer); });
  }

  Heard heard_[3];
  Meeting meeting_{3, "run"};
};

TEST_F(MeetingTest, IsCompleteWhenAllHaveCome) {
  EXPECT_TRUE(Join(2, "a").ok());
  EXPECT_TRUE(Join(0, "b").ok());
  EXPECT_THAT(meeting_.Missing(10), ElementsAre(1));
  EXPECT_TRUE(heard_[0].nodes.empty());
  EXPECT_TRUE(Join(1, "a").ok());
  for (const Heard& heard : heard_) EXPECT_THAT(heard.nodes, ElementsAre(0, 1, 1));
}

TEST_F(MeetingTest, HostsThatAreNotKnownShareNothing) {
  for (const uint32_t rank : {0, 1, 2}) EXPECT_TRUE(Join(rank, "").ok());
  EXPECT_THAT(heard_[0].nodes, ElementsAre(0, 1, 2));
}

TEST_F(MeetingTest, StrangersAreRefused) {
  EXPECT_TRUE(Join(0).ok());
  EXPECT_EQ(Join(0).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Join(3).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Join(1, "h", "run", 4).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Join(1, "h", "another").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Join(1, std::string(limits::kLabelBytes + 1, 'x')).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(meeting_.Missing(10), ElementsAre(1, 2));
}

TEST_F(MeetingTest, ALostRankIsToldToAllAndEndsWhatWaits) {
  for (const uint32_t rank : {0, 1, 2}) EXPECT_TRUE(Join(rank).ok());
  std::vector<absl::StatusOr<std::string>> answers;
  Get("key", &answers);
  meeting_.Leave(1);
  meeting_.Remove(1, &heard_[1]);
  EXPECT_TRUE(answers.empty());
  EXPECT_TRUE(heard_[0].lost.empty());
  meeting_.Remove(2, &heard_[2]);
  EXPECT_THAT(heard_[0].lost, ElementsAre(2));
  EXPECT_TRUE(heard_[1].lost.empty());
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].status(), absl::UnavailableError("rank 2 went away"));
  Get("another", &answers);
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[1].status(), absl::UnavailableError("rank 2 went away"));
}

TEST_F(MeetingTest, KeysAreWrittenOnceAndWaitedFor) {
  std::vector<absl::StatusOr<std::string>> answers;
  Get("key", &answers);
  const uint64_t cancelled = Get("never", &answers);
  EXPECT_TRUE(meeting_.Put("key", "value").ok());
  EXPECT_TRUE(meeting_.Put("key", "value").ok());
  EXPECT_EQ(meeting_.Put("key", "other").code(), absl::StatusCode::kAlreadyExists);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(*answers[0], "value");
  meeting_.Cancel(cancelled);
  meeting_.Cancel(cancelled);
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[1].status().code(), absl::StatusCode::kCancelled);
}

TEST_F(MeetingTest, KeysAndWaitersAreBounded) {
  EXPECT_EQ(meeting_.Put(std::string(limits::kKeyBytes + 1, 'k'), "").code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(meeting_.Put("k", std::string(limits::kValueBytes + 1, 'v')).code(),
            absl::StatusCode::kInvalidArgument);
  const std::string value(limits::kValueBytes, 'v');
  const size_t fit = limits::kValueBytesPerGeneration / limits::kValueBytes;
  for (size_t i = 0; i < fit; ++i) ASSERT_TRUE(meeting_.Put("k" + std::to_string(i), value).ok());
  EXPECT_EQ(meeting_.Put("one more", "v").code(), absl::StatusCode::kResourceExhausted);
  std::vector<absl::StatusOr<std::string>> answers;
  while (answers.empty()) Get("never", &answers);
  EXPECT_EQ(answers[0].status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(MeetingTest, ClosingBeforeAllHaveComeNamesTheMissing) {
  EXPECT_TRUE(Join(0).ok());
  EXPECT_TRUE(Join(2).ok());
  meeting_.Close();
  ASSERT_TRUE(heard_[2].end.has_value());
  EXPECT_EQ(heard_[2].end->code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(heard_[2].end->message()), HasSubstr("no sign of rank 1"));
}

}  // namespace
}  // namespace muster
