// The audit log of a complete coordinator.
#include "coordinator/service/auth/audit_calls.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/version.h"
#include "coordinator/service/coordinator_fixture.h"
#include "gmock/gmock.h"
#include "nlohmann/json.hpp"

namespace muster::service {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Stub = v1::ClusterService::Stub;

constexpr char kAdmin[] = "admin-token-of-a-test";
constexpr char kAlice[] = "alices-token-of-a-test";
constexpr char kViewer[] = "viewers-token-of-a-test";

class AuditTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = absl::StrCat(::testing::TempDir(), "/audit_calls.", getpid());
    std::filesystem::create_directories(directory_);
    const std::string tokens = directory_ + "/tokens";
    std::ofstream(tokens) << "admin " << kAdmin << " olga\nsubmit " << kAlice << " alice\nview "
                          << kViewer << " victor\n";
    chmod(tokens.c_str(), 0600);
    CoordinatorOptions options;
    options.listen = options.http = "127.0.0.1:0";
    options.access.tokens_file = tokens;
    options.audit_log = directory_ + "/audit.log";
    auto coordinator = Coordinator::Start(options, store_);
    ASSERT_TRUE(coordinator.ok()) << coordinator.status();
    coordinator_ = *std::move(coordinator);
    channel_ = grpc::CreateChannel(coordinator_->grpc_address().ToString(),
                                   grpc::InsecureChannelCredentials());
    cluster_ = v1::ClusterService::NewStub(channel_);
  }
  void TearDown() override {
    coordinator_.reset();
    std::filesystem::remove_all(directory_);
  }

  static void Prepare(grpc::ClientContext& context, const std::string& token) {
    context.set_deadline(TestDeadline());
    if (!token.empty()) context.AddMetadata("authorization", "Bearer " + token);
  }
  template <typename Method, typename Request, typename Response>
  grpc::Status CallAs(const std::string& token, Method method, const Request& request,
                      Response* response) {
    grpc::ClientContext context;
    Prepare(context, token);
    return (*cluster_.*method)(&context, request, response);
  }
  std::string Text() const {
    std::ifstream file(directory_ + "/audit.log");
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  std::vector<nlohmann::json> Lines() const {
    std::vector<nlohmann::json> lines;
    for (const auto line : absl::StrSplit(Text(), '\n', absl::SkipEmpty())) {
      lines.push_back(nlohmann::json::parse(std::string(line)));
    }
    return lines;
  }
  // The only line that is not about an earlier call. A call is recorded before it is answered.
  nlohmann::json NewLine() {
    const std::vector<nlohmann::json> lines = Lines();
    EXPECT_EQ(lines.size(), ++seen_) << Text();
    return lines.empty() ? nlohmann::json() : lines.back();
  }

  std::string directory_;
  store::MemoryStore store_;
  std::unique_ptr<Coordinator> coordinator_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<Stub> cluster_;
  size_t seen_ = 0;
};

TEST_F(AuditTest, RecordsWhoDidWhatWithoutItsContents) {
  v1::SubmitJobRequest submit;
  submit.set_protocol_version(kProtocolVersion);
  submit.set_idempotency_key("key-1");
  submit.mutable_spec()->set_name("train");
  submit.mutable_spec()->add_command("--password=hidden-argument");
  (*submit.mutable_spec()->mutable_env())["PASSWORD"] = "hidden-value";
  v1::SubmitJobResponse submitted;
  ASSERT_TRUE(CallAs(kAlice, &Stub::SubmitJob, submit, &submitted).ok());
  const std::string job = submitted.job().job_id();
  EXPECT_EQ(submitted.job().spec().name(), "train") << "the response is intact";
  nlohmann::json line = NewLine();
  absl::Time time;
  EXPECT_TRUE(absl::ParseTime(absl::RFC3339_full, line["time"].get<std::string>(), &time, nullptr));
  line.erase("time");
  EXPECT_EQ(line, nlohmann::json({{"user", "alice"},
                                  {"role", "submit"},
                                  {"peer", "127.0.0.1"},
                                  {"method", "SubmitJob"},
                                  {"job", job},
                                  {"idempotency_key", "key-1"},
                                  {"code", "OK"}}));

  v1::SetSecretRequest secret;
  secret.set_name("hf-token");
  secret.set_value("hidden-secret");
  v1::SetSecretResponse nothing;
  ASSERT_TRUE(CallAs(kAlice, &Stub::SetSecret, secret, &nothing).ok());
  EXPECT_EQ(NewLine()["secret"], "hf-token");
  EXPECT_THAT(Text(), Not(HasSubstr("hidden")));
  EXPECT_THAT(Text(), Not(HasSubstr(kAlice)));
}

TEST_F(AuditTest, RecordsCallsThatFailOrAreRefused) {
  v1::CancelJobRequest cancel;
  cancel.set_job_id("absent");
  v1::Job job;
  ASSERT_FALSE(CallAs(kAlice, &Stub::CancelJob, cancel, &job).ok());
  nlohmann::json line = NewLine();
  EXPECT_EQ(line["code"], "NOT_FOUND");
  EXPECT_EQ(line["job"], "absent");

  ASSERT_FALSE(CallAs(kViewer, &Stub::CancelJob, cancel, &job).ok());
  line = NewLine();
  EXPECT_EQ(line["code"], "PERMISSION_DENIED");
  EXPECT_EQ(line["user"], "victor");
  EXPECT_EQ(line["role"], "view");
  EXPECT_EQ(line["job"], "absent");
  EXPECT_THAT(line["message"].get<std::string>(), HasSubstr("requires role submit"));

  ASSERT_FALSE(CallAs("an-invalid-token-0", &Stub::CancelJob, cancel, &job).ok());
  line = NewLine();
  EXPECT_EQ(line["code"], "UNAUTHENTICATED");
  EXPECT_FALSE(line.contains("user"));
  EXPECT_THAT(Text(), Not(HasSubstr("an-invalid-token-0")));
}

TEST_F(AuditTest, RecordsUploadsAndExecs) {
  grpc::ClientContext upload_context;
  Prepare(upload_context, kAlice);
  v1::UploadFileResponse uploaded;
  const auto upload = cluster_->UploadFile(&upload_context, &uploaded);
  v1::UploadFileRequest file;
  file.set_sha256(std::string(64, 'a'));
  file.set_size_bytes(3);
  file.set_data("abc");
  upload->Write(file);
  upload->WritesDone();
  EXPECT_FALSE(upload->Finish().ok()) << "the digest is of another file";
  nlohmann::json line = NewLine();
  EXPECT_EQ(line["method"], "UploadFile");
  EXPECT_EQ(line["file"], std::string(64, 'a'));
  EXPECT_NE(line["code"], "OK");

  grpc::ClientContext exec_context;
  Prepare(exec_context, kAlice);
  const auto exec = cluster_->Exec(&exec_context);
  v1::ExecInput start;
  start.mutable_start()->set_job_id("absent");
  start.mutable_start()->add_command("hidden-command");
  exec->Write(start);
  v1::ExecOutput output;
  while (exec->Read(&output)) {
  }
  EXPECT_FALSE(exec->Finish().ok());
  line = NewLine();
  EXPECT_EQ(line["method"], "Exec");
  EXPECT_EQ(line["job"], "absent");
  EXPECT_EQ(line["code"], "NOT_FOUND");
  EXPECT_THAT(Text(), Not(HasSubstr("hidden-command")));
}

TEST_F(AuditTest, RecordsNodesOnlyIfTheyAreRefused) {
  const auto open = [this](const std::string& token) {
    const auto stub = v1::WorkerService::NewStub(channel_);
    grpc::ClientContext context;
    Prepare(context, token);
    const auto session = stub->Session(&context);
    v1::WorkerMessage message;
    *message.mutable_hello() = RawWorker::HelloOf("node-1");
    session->Write(message);
    v1::CoordinatorMessage welcome;
    const bool welcomed = session->Read(&welcome);
    context.TryCancel();
    while (session->Read(&welcome)) {
    }
    session->Finish();
    return welcomed;
  };
  EXPECT_TRUE(open(kAdmin));
  EXPECT_THAT(Lines(), IsEmpty());
  EXPECT_FALSE(open(kAlice));
  const nlohmann::json line = NewLine();
  EXPECT_EQ(line["method"], "Session");
  EXPECT_EQ(line["user"], "alice");
  EXPECT_EQ(line["code"], "PERMISSION_DENIED");
}

TEST_F(AuditTest, DoesNotRecordReads) {
  v1::ListJobsResponse jobs;
  ASSERT_TRUE(CallAs(kAlice, &Stub::ListJobs, v1::ListJobsRequest(), &jobs).ok());
  EXPECT_THAT(Lines(), IsEmpty());
}

}  // namespace
}  // namespace muster::service
