#include "tests/compatibility/transcript.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::compatibility {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

v1::WorkerMessage Hello() {
  v1::WorkerMessage message;
  message.mutable_hello()->set_protocol_version(1);
  message.mutable_hello()->set_node_name("node-1");
  return message;
}

TEST(Transcript, ReturnsWhatWasWritten) {
  v1::CoordinatorMessage welcome;
  welcome.mutable_welcome()->set_coordinator_incarnation(7);
  const auto entries = ParseTranscript(
      absl::StrCat("# a comment\n", ToText("key", "a: value"), ToText(Hello()), ToText(welcome)));
  ASSERT_TRUE(entries.ok()) << entries.status();
  ASSERT_EQ(entries->size(), 2u);
  const Entry& first = entries->front();
  EXPECT_EQ(first.line, 3);
  EXPECT_THAT(first.metadata, ElementsAre(Pair("key", "a: value")));
  ASSERT_TRUE(first.worker.has_value());
  EXPECT_EQ(first.worker->SerializeAsString(), Hello().SerializeAsString());
  const Entry& second = entries->back();
  ASSERT_TRUE(second.coordinator.has_value());
  EXPECT_EQ(second.coordinator->SerializeAsString(), welcome.SerializeAsString());
  EXPECT_TRUE(second.metadata.empty());
}

TEST(Transcript, RefusesEncodingThatDiffersFromItsText) {
  v1::WorkerMessage other = Hello();
  other.mutable_hello()->set_software_version("node-1");
  other.mutable_hello()->clear_node_name();
  const auto entries =
      ParseTranscript(absl::StrCat("> hello { protocol_version: 1 node_name: \"node-1\" }\n= ",
                                   absl::Base64Escape(other.SerializeAsString()), "\n"));
  EXPECT_EQ(entries.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(entries.status().message(), HasSubstr("line 1: the encoding differs from the text"));
  EXPECT_THAT(entries.status().message(), HasSubstr("node_name"));
}

TEST(Transcript, RefusesUnknownFieldsAndLines) {
  for (const char* text :
       {"> hello { no_such_field: 1 }\n= ChQ=\n", "> hello {}\n", "hello {}\n"}) {
    EXPECT_EQ(ParseTranscript(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_EQ(ReadTranscript("/no/such/file").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace muster::compatibility
