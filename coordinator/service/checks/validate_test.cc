#include "coordinator/service/checks/validate.h"

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/version.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::service {
namespace {

using ::testing::HasSubstr;

v1::Hello GoodHello() {
  v1::Hello hello;
  hello.set_protocol_version(kProtocolVersion);
  hello.set_node_name("node-1.rack_2");
  hello.set_incarnation(1);
  hello.add_slots()->set_index(0);
  hello.add_slots()->set_index(1);
  return hello;
}

void ExpectInvalid(const absl::Status& status, const std::string& words) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(words));
}

TEST(ValidateTest, ProtocolVersion) {
  EXPECT_TRUE(CheckProtocolVersion(kProtocolVersion, 0, "client").ok());
  EXPECT_TRUE(CheckProtocolVersion(kProtocolVersion - 1, 0, "client").ok());
  EXPECT_TRUE(CheckProtocolVersion(kProtocolVersion, kProtocolVersion + 1, "client").ok());
  ExpectInvalid(CheckProtocolVersion(0, 0, "client"), "protocol_version is missing");
  const absl::Status other = CheckProtocolVersion(kProtocolVersion + 1, 0, "client");
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(other.message()), HasSubstr("run the same version"));
}

TEST(ValidateTest, Hello) {
  EXPECT_TRUE(ValidateHello(GoodHello()).ok());
  v1::Hello hello = GoodHello();
  hello.set_protocol_version(99);
  EXPECT_EQ(ValidateHello(hello).code(), absl::StatusCode::kFailedPrecondition);
  for (const std::string& name : {std::string(), std::string("a/b"), std::string("a\nb"),
                                  std::string(limits::kNameLength + 1, 'a')}) {
    hello = GoodHello();
    hello.set_node_name(name);
    ExpectInvalid(ValidateHello(hello), "node_name");
  }
  hello = GoodHello();
  hello.clear_incarnation();
  ExpectInvalid(ValidateHello(hello), "incarnation");
  // Everything else is corrected; see quarantine_test.
  hello = GoodHello();
  hello.add_slots()->set_index(1);
  hello.add_inventory();
  EXPECT_TRUE(ValidateHello(hello).ok());
}

TEST(ValidateTest, Submit) {
  v1::SubmitJobRequest request;
  ExpectInvalid(ValidateSubmit(request), "spec is missing");
  request.mutable_spec()->add_command(std::string(limits::kSpecBytes, 'x'));
  ExpectInvalid(ValidateSubmit(request), "spec is");
  request.mutable_spec()->clear_command();
  EXPECT_TRUE(ValidateSubmit(request).ok());
  request.set_idempotency_key(std::string(limits::kIdempotencyKeyLength + 1, 'x'));
  ExpectInvalid(ValidateSubmit(request), "idempotency_key");
}

TEST(ValidateTest, ReadLog) {
  v1::ReadLogRequest request;
  ExpectInvalid(ValidateReadLog(request), "job_id");
  request.set_job_id("job-abcde");
  ExpectInvalid(ValidateReadLog(request), "STDOUT");
  request.set_stream(v1::STDERR);
  EXPECT_TRUE(ValidateReadLog(request).ok());
  request.set_rank(limits::kRanksPerJob);
  ExpectInvalid(ValidateReadLog(request), "rank");
}

TEST(ValidateTest, PeerHost) {
  EXPECT_EQ(PeerHost("ipv4:10.1.2.3:4711"), "10.1.2.3");
  EXPECT_EQ(PeerHost("ipv6:[fe80::1]:4711"), "fe80::1");
  EXPECT_EQ(PeerHost("ipv6:%5B::1%5D:4711"), "::1");
  EXPECT_EQ(PeerHost("ipv6:%5B::ffff:10.1.2.3%5D:4711"), "10.1.2.3");
  EXPECT_EQ(PeerHost("unix:/run/socket"), "");
  EXPECT_EQ(PeerHost(""), "");
}

TEST(ValidateTest, Exec) {
  v1::ExecInput input;
  ExpectInvalid(ValidateExecStart(input), "not a start");
  input.mutable_start()->set_job_id("job");
  ExpectInvalid(ValidateExecStart(input), "command is empty");
  input.mutable_start()->add_command("ps");
  EXPECT_TRUE(ValidateExecStart(input).ok());
  ExpectInvalid(ValidateExecInput(input), "not input of a started command");
  input.mutable_start()->add_command(std::string(200000, 'x'));
  ExpectInvalid(ValidateExecStart(input), "command");
  input.set_signal(0);
  ExpectInvalid(ValidateExecInput(input), "signal is 0; it must be from 1 to 64");
  input.set_signal(2);
  EXPECT_TRUE(ValidateExecInput(input).ok());
  input.mutable_size()->set_rows(65536);
  ExpectInvalid(ValidateExecInput(input), "65536 x 0; the limit is 65535");
  input.set_stdin_data(std::string(limits::kLogChunkBytes + 1, 'x'));
  ExpectInvalid(ValidateExecInput(input), "stdin_data");
  v1::ExecOutput output;
  output.set_stderr_data(std::string(limits::kLogChunkBytes + 1, 'x'));
  ExpectInvalid(ValidateExecOutput(output), "stderr_data");
}

TEST(ValidateTest, ReadFiles) {
  v1::ReadFilesRequest request;
  request.set_job_id("job");
  ExpectInvalid(ValidateReadFiles(request), "path is empty");
  request.set_path("model.pt");
  EXPECT_TRUE(ValidateReadFiles(request).ok());
  request.set_rank(limits::kRanksPerJob);
  ExpectInvalid(ValidateReadFiles(request), "rank is");
  request.set_rank(0);
  request.set_path(std::string(5000, 'x'));
  ExpectInvalid(ValidateReadFiles(request), "path");
}

}  // namespace
}  // namespace muster::service
