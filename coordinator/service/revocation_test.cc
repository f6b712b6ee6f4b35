// Streams in progress end when the token or certificate of their caller is revoked.
#include <grpcpp/generic/generic_stub.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/grpc/channel.h"
#include "common/http/http_get.h"
#include "common/security/authority.h"
#include "common/security/certificate.h"
#include "common/time/now.h"
#include "common/time/proto_time.h"
#include "coordinator/service/coordinator_fixture.h"
#include "gmock/gmock.h"
#include "google/protobuf/message.h"
#include "gtest/gtest.h"
#include "proto/muster/v1/identity.grpc.pb.h"

namespace muster::service {
namespace {

using ::testing::HasSubstr;
using Cluster = v1::ClusterService::Stub;

constexpr char kAdmin[] = "admin-token-0123456789";
constexpr char kAlice[] = "alice-token-0123456789";
constexpr char kViewer[] = "viewer-token-0123456789";
constexpr char kNodes[] = "nodes-token-0123456789";

// A call of any streaming method, which sends the request, or nothing, and then only reads.
class Stream {
 public:
  Stream(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
         const google::protobuf::Message* request = nullptr)
      : method_(method), stub_(channel) {
    context_.set_deadline(TestDeadline());
    call_ = stub_.PrepareCall(&context_, "/muster.v1." + method, &queue_);
    call_->StartCall(nullptr);
    Wait();
    if (request == nullptr) return;
    const grpc::Slice text(request->SerializeAsString());
    call_->WriteLast(grpc::ByteBuffer(&text, 1), grpc::WriteOptions(), nullptr);
    Wait();
  }
  ~Stream() {
    context_.TryCancel();
    Finish();
  }

  const std::string& method() const { return method_; }
  // Waits until the coordinator has ended the call.
  grpc::Status Finish() {
    if (finished_) return status_;
    finished_ = true;
    grpc::ByteBuffer message;
    do {
      call_->Read(&message, nullptr);
    } while (Wait());
    call_->Finish(&status_, nullptr);
    Wait();
    return status_;
  }

 private:
  bool Wait() {
    void* tag = nullptr;
    bool ok = false;
    queue_.Next(&tag, &ok);
    return ok;
  }

  const std::string method_;
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  grpc::Status status_;
  bool finished_ = false;
};

class RevocationTest : public CoordinatorFixture {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "/revocation.XXXXXX";
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
  }
  void TearDown() override {
    StopCoordinator();
    std::filesystem::remove_all(folder_);
  }
  std::string Write(const std::string& name, const std::string& text) const {
    std::string path = folder_ + "/" + name;
    const std::string beside = path + ".new";
    std::ofstream(beside) << text;
    EXPECT_EQ(chmod(beside.c_str(), 0600), 0);
    std::filesystem::rename(beside, path);
    return path;
  }
  // `security` is that of an administrator.
  void Start(CoordinatorOptions options, const security::ClientSecurity& security) {
    options.listen = options.http = "127.0.0.1:0";
    options.core.lease = options.core.job_lease = absl::Minutes(1);  // workers are silent
    auto coordinator = Coordinator::Start(options, store_);
    ASSERT_TRUE(coordinator.ok()) << coordinator.status();
    coordinator_ = *std::move(coordinator);
    channel_ = ChannelOf(security);
    cluster_ = v1::ClusterService::NewStub(channel_);
  }
  std::shared_ptr<grpc::Channel> ChannelOf(const security::ClientSecurity& security) const {
    return OpenChannel(coordinator_->grpc_address().ToString(), {}, security);
  }
  static std::unique_ptr<RawWorker> Register(const std::shared_ptr<grpc::Channel>& channel,
                                             uint64_t incarnation = 1) {
    auto worker = std::make_unique<RawWorker>(channel);
    worker->SendHello(RawWorker::HelloOf("a", incarnation));
    return worker;
  }

  std::string folder_;
};

// ------------------------------------------------------------------------------------------------
// tokens

class TokenTest : public RevocationTest {
 protected:
  void SetUp() override {
    RevocationTest::SetUp();
    CoordinatorOptions options;
    options.access.tokens_file =
        Write("tokens",
              absl::StrCat(Line("view", kViewer), Line("submit", kAlice), Line("worker", kNodes)));
    options.access.local_token = kAdmin;
    Start(options, WithToken(kAdmin));
    worker_ = Register(nodes_ = ChannelOf(WithToken(kNodes)));
    worker_->Next(v1::CoordinatorMessage::kWelcome);
    alice_ = ChannelOf(WithToken(kAlice));
    v1::SubmitJobResponse submitted;
    ASSERT_TRUE(Call(*v1::ClusterService::NewStub(alice_), &Cluster::SubmitJob,
                     SubmitRequest("job"), &submitted)
                    .ok());
    job_ = submitted.job().job_id();
    worker_->Report(worker_->Next(v1::CoordinatorMessage::kLaunch).launch(), v1::STARTED);
    AwaitState(job_, v1::RUNNING);
  }
  static security::ClientSecurity WithToken(const std::string& token) {
    security::ClientSecurity security;
    security.token = token;
    return security;
  }
  static std::string Line(const std::string& role, const std::string& token) {
    return absl::StrCat(role, " ", token, " user-of-", role, "\n");
  }

  std::shared_ptr<grpc::Channel> nodes_;
  std::shared_ptr<grpc::Channel> alice_;
  std::unique_ptr<RawWorker> worker_;
  std::string job_;
};

TEST_F(TokenTest, RemovedTokenEndsAllStreams) {
  v1::WatchJobRequest watch;
  watch.set_job_id(job_);
  v1::ReadLogRequest log;
  log.set_job_id(job_);
  log.set_stream(v1::STDOUT);
  log.set_follow(true);
  v1::ReadFilesRequest files;
  files.set_job_id(job_);
  files.set_path("x");
  std::vector<std::unique_ptr<Stream>> of_alice;
  const auto open = [&](const std::string& method, const google::protobuf::Message* request) {
    of_alice.push_back(std::make_unique<Stream>(alice_, "ClusterService/" + method, request));
  };
  open("WatchJob", &watch);
  open("ReadLog", &log);
  worker_->Next(v1::CoordinatorMessage::kOpenLog);
  open("ReadFiles", &files);
  worker_->Next(v1::CoordinatorMessage::kOpenFiles);
  open("Exec", nullptr);
  open("UploadFile", nullptr);
  std::vector<std::unique_ptr<Stream>> of_nodes;
  for (const char* method : {"Session", "SendLog", "ServeExec", "SendFiles"}) {
    of_nodes.push_back(std::make_unique<Stream>(nodes_, absl::StrCat("WorkerService/", method)));
  }
  AwaitCondition([this] { return coordinator_->watcher_count() > 0; });

  Write("tokens", Line("worker", kNodes));
  for (const auto& stream : of_alice) {
    const grpc::Status status = stream->Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED)
        << stream->method() << ": " << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr("token")) << stream->method();
  }
  Write("tokens", "# none\n");
  for (const auto& stream : of_nodes) {
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAUTHENTICATED) << stream->method();
  }
  EXPECT_EQ(worker_->Finish().error_code(), grpc::StatusCode::UNAUTHENTICATED);
  AwaitCondition([this] {
    return coordinator_->watcher_count() + coordinator_->log_transfer_count() +
               coordinator_->transfer_count() ==
           0;
  });
}

TEST_F(TokenTest, RemovedTokensEndStreamsOfThePage) {
  // Reads a stream to its end, and leaves only the tokens `left` once it has sent `awaited`.
  const auto read_to_end = [this](const std::string& target, const std::string& token,
                                  const std::string& awaited, const std::string& left) {
    std::string text;
    bool removed = false;
    const auto deadline = TestDeadline();
    const auto read = [&](absl::string_view bytes) {
      absl::StrAppend(&text, bytes);
      if (!removed && absl::StrContains(text, awaited)) {
        removed = true;
        Write("tokens", left);
      }
      const bool in_time = std::chrono::system_clock::now() < deadline;
      EXPECT_TRUE(in_time) << target;
      return in_time;
    };
    EXPECT_TRUE(http::Stream(coordinator_->http_address(), target, read,
                             {absl::StrCat("Authorization: Bearer ", token)})
                    .ok());
    EXPECT_TRUE(removed) << text;
  };
  const std::string nodes = Line("worker", kNodes);
  read_to_end("/api/overview", kViewer, "event: nodes", Line("submit", kAlice) + nodes);
  read_to_end("/api/log?job=" + job_, kAlice, "200 OK", nodes);
}

TEST_F(TokenTest, LowerRoleEndsOnlyWhatItForbids) {
  v1::WatchJobRequest watch;
  watch.set_job_id(job_);
  grpc::ClientContext context;
  context.set_deadline(TestDeadline());
  const auto watched = v1::ClusterService::NewStub(alice_)->WatchJob(&context, watch);
  v1::Job job;
  ASSERT_TRUE(watched->Read(&job));
  Stream upload(alice_, "ClusterService/UploadFile");
  Write("tokens", absl::StrCat(Line("view", kAlice), Line("worker", kNodes)));
  EXPECT_EQ(upload.Finish().error_code(), grpc::StatusCode::PERMISSION_DENIED);
  v1::CancelJobRequest cancel;
  cancel.set_job_id(job_);
  v1::Job cancelled;
  ASSERT_TRUE(Call(*cluster_, &Cluster::CancelJob, cancel, &cancelled).ok());
  while (job.state() == v1::RUNNING && watched->Read(&job)) {
  }
  EXPECT_EQ(job.state(), v1::STOPPING);
  context.TryCancel();
  watched->Finish();
}

// ------------------------------------------------------------------------------------------------
// certificates

class CertificateTest : public RevocationTest {
 protected:
  void SetUp() override {
    RevocationTest::SetUp();
    authority_ = *security::Authority::Create("CA", Valid());
    Write("ca.pem", authority_->certificate());
    CoordinatorOptions options;
    options.tls =
        Issue("coordinator", {"coordinator", {"127.0.0.1"}, "", security::Usage::kServer});
    options.ca_key = Write("ca.key", authority_->key());
    options.access.local_token = kAdmin;
    options.clock = [this] {
      Time now = Now();
      now.wall += absl::Seconds(ahead_.load());
      return now;
    };
    security::ClientSecurity admin;
    admin.token = kAdmin;
    admin.tls = Issue("admin", {.common_name = "admin"});
    Start(options, admin);
    node_.tls = Issue(
        "node", {"a", {security::kNodeHost}, security::NodeUri("a", ""), security::Usage::kBoth});
    node_.has_node_certificate = true;
    worker_ = Register(ChannelOf(node_));
    worker_->Next(v1::CoordinatorMessage::kWelcome);
  }
  static security::Validity Valid() { return security::ValidFor(absl::Hours(1), absl::Now()); }
  security::TlsFiles Issue(const std::string& name, const security::CertificateSubject& subject) {
    const std::string key = *security::NewPrivateKey();
    security::TlsFiles files;
    files.ca = folder_ + "/ca.pem";
    files.key = Write(name + ".key", key);
    files.cert = Write(name + ".pem", *authority_->Issue(*security::PublicKeyOf(key), subject,
                                                         security::NewSerial(), Valid()));
    return files;
  }
  // The status with which the coordinator ends a session of this certificate.
  grpc::Status TryToRegister() const { return Register(ChannelOf(node_), 2)->Finish(); }

  std::optional<security::Authority> authority_;
  std::atomic<int64_t> ahead_ = 0;  // of the coordinator's wall clock, in seconds
  security::ClientSecurity node_;
  std::unique_ptr<RawWorker> worker_;
};

TEST_F(CertificateTest, RemovalByForceEndsTheSessionForGood) {
  Stream log(ChannelOf(node_), "WorkerService/SendLog");
  v1::RemoveNodeRequest remove;
  remove.set_name("a");
  v1::RemoveNodeResponse removed;
  EXPECT_EQ(Call(*cluster_, &Cluster::RemoveNode, remove, &removed).error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
  remove.set_force(true);
  ASSERT_TRUE(Call(*cluster_, &Cluster::RemoveNode, remove, &removed).ok());
  for (const grpc::Status& status : {worker_->Finish(), log.Finish(), TryToRegister()}) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED) << status.error_message();
  }
  EXPECT_EQ(Get(Submit("job")).state(), v1::QUEUED);
}

TEST_F(CertificateTest, NewIdentityEndsTheSessionOfTheEarlierOne) {
  const auto identities = v1::IdentityService::NewStub(channel_);
  v1::CreateJoinTokenRequest create;
  create.set_node("a");
  create.set_uses(1);
  *create.mutable_expire_time() = ToProto(absl::Now() + absl::Hours(1));
  v1::CreateJoinTokenResponse token;
  ASSERT_TRUE(Call(*identities, &v1::IdentityService::Stub::CreateJoinToken, create, &token).ok());
  v1::EnrollNodeRequest enroll;
  enroll.set_token(token.secret());
  enroll.set_node_name("a");
  enroll.set_machine_id("machine");
  enroll.set_certificate_request(*security::NewCertificateRequest(*security::NewPrivateKey()));
  v1::EnrollNodeResponse enrolled;
  const grpc::Status status =
      Call(*identities, &v1::IdentityService::Stub::EnrollNode, enroll, &enrolled);
  ASSERT_TRUE(status.ok()) << status.error_message();
  for (const grpc::Status& ended : {worker_->Finish(), TryToRegister()}) {
    EXPECT_EQ(ended.error_code(), grpc::StatusCode::PERMISSION_DENIED);
    EXPECT_THAT(ended.error_message(), HasSubstr("of node a was revoked"));
  }
}

TEST_F(CertificateTest, ExpiryEndsStreamsAndCalls) {
  ahead_ = absl::ToInt64Seconds(absl::Hours(2));
  for (const grpc::Status& ended : {worker_->Finish(), TryToRegister()}) {
    EXPECT_EQ(ended.error_code(), grpc::StatusCode::UNAUTHENTICATED);
    EXPECT_THAT(ended.error_message(), HasSubstr("expired"));
  }
  v1::GetVersionResponse version;
  EXPECT_EQ(Call(*cluster_, &Cluster::GetVersion, v1::GetVersionRequest(), &version).error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
}

}  // namespace
}  // namespace muster::service
