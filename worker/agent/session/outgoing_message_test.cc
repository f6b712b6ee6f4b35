#include "worker/agent/session/outgoing_message.h"

#include <string>

#include "gtest/gtest.h"

namespace muster::agent {
namespace {

bool CanBeRead(const v1::WorkerMessage& message) {
  return v1::WorkerMessage().ParseFromString(message.SerializeAsString());
}

TEST(OutgoingMessageTest, ReplacesInvalidUtf8) {
  v1::WorkerMessage message;
  v1::Hello& hello = *message.mutable_hello();
  (*hello.mutable_labels())["rack"] = "r\xff";
  v1::RankReport& rank = *hello.add_inventory()->add_ranks();
  rank.mutable_progress()->set_phase("caf\xe9");
  rank.add_warnings("fine");
  rank.add_warnings("\x80");
  ASSERT_FALSE(CanBeRead(message));
  MakeReadable(message);
  EXPECT_TRUE(CanBeRead(message));
  EXPECT_EQ(hello.labels().at("rack"), "r?");
  EXPECT_EQ(rank.progress().phase(), "caf?");
  EXPECT_EQ(rank.warnings(0), "fine");
  EXPECT_EQ(rank.warnings(1), "?");
}

TEST(OutgoingMessageTest, KeepsBytes) {
  v1::WorkerMessage message;
  message.mutable_put_key()->set_value("\xff");
  MakeReadable(message);
  EXPECT_EQ(message.put_key().value(), "\xff");
}

TEST(OutgoingMessageTest, ShortensTheLargestReportsOfAMessageThatIsTooLarge) {
  v1::WorkerMessage message;
  for (int job = 0; job < 3; ++job) {
    v1::GenerationReport& report = *message.mutable_hello()->add_inventory();
    report.set_job_id("job-" + std::to_string(job));
    v1::RankReport& rank = *report.add_ranks();
    rank.set_phase(v1::EXITED);
    rank.mutable_exit()->set_exit_code(3);
    rank.mutable_exit()->set_stderr_tail(std::string(job == 1 ? 8000 : 100, 'x'));
    rank.mutable_summary()->set_steps(7);
    for (int i = 0; job == 1 && i < 1000; ++i) rank.mutable_summary()->add_losses(1);
  }
  const std::string first = message.hello().inventory(0).SerializeAsString();
  MakeReadable(message, 4000);
  EXPECT_LE(message.ByteSizeLong(), 4000u);
  EXPECT_EQ(message.hello().inventory(0).SerializeAsString(), first);
  const v1::RankReport& shortened = message.hello().inventory(1).ranks(0);
  EXPECT_EQ(shortened.phase(), v1::EXITED);
  EXPECT_EQ(shortened.exit().exit_code(), 3);
  EXPECT_EQ(shortened.exit().stderr_tail(), "");
  EXPECT_EQ(shortened.summary().steps(), 7u);
  EXPECT_EQ(shortened.summary().losses_size(), 0);
  EXPECT_EQ(shortened.warnings_size(), 1);
}

}  // namespace
}  // namespace muster::agent
