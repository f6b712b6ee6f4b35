// Owners over gRPC: what a user may see and do with jobs of others, and secrets.
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/grpc/channel.h"
#include "common/http/http_get.h"
#include "common/security/client_security.h"
#include "common/sha256.h"
#include "common/version.h"
#include "coordinator/core/jobs/job_record.h"
#include "coordinator/core/owners/filled_job.h"
#include "coordinator/core/records.h"
#include "coordinator/service/coordinator_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::service {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Stub = v1::ClusterService::Stub;

class OwnersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    tokens_ = absl::StrCat(::testing::TempDir(), "/tokens.", getpid());
    std::ofstream(tokens_) << "submit alice-token-0123456 alice\n"
                              "submit bob-token-01234567 bob\n"
                              "view viewer-token-0123456 viewer\n"
                              "worker worker-token-012345 nodes\n";
    chmod(tokens_.c_str(), 0600);
    StartCoordinator();
  }
  void StartCoordinator() {
    coordinator_.reset();
    CoordinatorOptions options;
    options.listen = options.http = "127.0.0.1:0";
    options.access.local_token = "local-token-of-a-test";
    options.access.tokens_file = tokens_;
    auto coordinator = Coordinator::Start(options, store_);
    ASSERT_TRUE(coordinator.ok()) << coordinator.status();
    coordinator_ = *std::move(coordinator);
    alice_ = StubOf("alice-token-0123456");
    bob_ = StubOf("bob-token-01234567");
    viewer_ = StubOf("viewer-token-0123456");
    admin_ = StubOf("local-token-of-a-test");
  }
  void TearDown() override { std::filesystem::remove(tokens_); }

  std::shared_ptr<grpc::Channel> ChannelOf(const std::string& token) {
    security::ClientSecurity security;
    security.token = token;
    return OpenChannel(coordinator_->grpc_address().ToString(), {}, security);
  }
  std::unique_ptr<Stub> StubOf(const std::string& token) {
    return v1::ClusterService::NewStub(ChannelOf(token));
  }

  static v1::SubmitJobRequest SubmitRequest(const std::string& name) {
    v1::SubmitJobRequest request;
    request.set_protocol_version(kProtocolVersion);
    request.mutable_spec()->set_name(name);
    request.mutable_spec()->add_command("true");
    (*request.mutable_spec()->mutable_env())["KEY"] = "hunter2";
    return request;
  }
  static std::string Submit(Stub& stub, const std::string& name) {
    v1::SubmitJobResponse response;
    const grpc::Status status = Call(stub, &Stub::SubmitJob, SubmitRequest(name), &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.job().job_id();
  }
  static v1::Job Get(Stub& stub, const std::string& job) {
    v1::GetJobRequest request;
    request.set_job_id(job);
    v1::Job response;
    EXPECT_TRUE(Call(stub, &Stub::GetJob, request, &response).ok());
    return response;
  }
  static v1::Job Watch(Stub& stub, const std::string& job) {
    grpc::ClientContext context;
    context.set_deadline(TestDeadline());
    v1::WatchJobRequest request;
    request.set_job_id(job);
    const auto stream = stub.WatchJob(&context, request);
    v1::Job seen;
    EXPECT_TRUE(stream->Read(&seen));
    context.TryCancel();
    v1::Job rest;
    while (stream->Read(&rest)) {
    }
    stream->Finish();
    return seen;
  }
  static std::vector<v1::Job> List(Stub& stub, const v1::ListJobsRequest& request) {
    v1::ListJobsResponse response;
    EXPECT_TRUE(Call(stub, &Stub::ListJobs, request, &response).ok());
    return {response.jobs().begin(), response.jobs().end()};
  }
  static grpc::Status ReadLog(Stub& stub, const std::string& job) {
    grpc::ClientContext context;
    context.set_deadline(TestDeadline());
    v1::ReadLogRequest request;
    request.set_job_id(job);
    request.set_stream(v1::STDOUT);
    const auto stream = stub.ReadLog(&context, request);
    v1::LogChunk chunk;
    while (stream->Read(&chunk)) {
    }
    return stream->Finish();
  }
  static grpc::Status SetSecret(Stub& stub, const std::string& name, const std::string& value) {
    v1::SetSecretRequest request;
    request.set_name(name);
    request.set_value(value);
    v1::SetSecretResponse response;
    return Call(stub, &Stub::SetSecret, request, &response);
  }
  static grpc::Status Upload(Stub& stub, const std::string& content) {
    grpc::ClientContext context;
    context.set_deadline(TestDeadline());
    v1::UploadFileResponse response;
    const auto writer = stub.UploadFile(&context, &response);
    v1::UploadFileRequest request;
    request.set_sha256(Sha256Hex(content));
    request.set_size_bytes(content.size());
    request.set_data(content);
    writer->Write(request);
    writer->WritesDone();
    return writer->Finish();
  }
  static bool IsMissing(Stub& stub, const std::string& content) {
    v1::FindMissingFilesRequest request;
    request.add_sha256(Sha256Hex(content));
    v1::FindMissingFilesResponse response;
    EXPECT_TRUE(Call(stub, &Stub::FindMissingFiles, request, &response).ok());
    return response.sha256_size() == 1;
  }
  static grpc::Status SubmitWith(Stub& stub, const std::string& content,
                                 v1::SubmitJobResponse* response) {
    v1::SubmitJobRequest request = SubmitRequest("reads");
    v1::FileSpec& file = *request.mutable_spec()->add_files();
    file.set_path("private.txt");
    file.set_sha256(Sha256Hex(content));
    file.set_size_bytes(content.size());
    return Call(stub, &Stub::SubmitJob, request, response);
  }
  static grpc::Status Share(Stub& stub, const std::string& job, bool shared) {
    v1::ShareJobRequest request;
    request.set_job_id(job);
    request.set_shared(shared);
    v1::Job response;
    return Call(stub, &Stub::ShareJob, request, &response);
  }
  static v1::ListSecretsResponse ListSecrets(Stub& stub) {
    v1::ListSecretsResponse response;
    EXPECT_TRUE(Call(stub, &Stub::ListSecrets, v1::ListSecretsRequest(), &response).ok());
    return response;
  }

  std::string tokens_;
  store::MemoryStore store_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<Stub> alice_, bob_, viewer_, admin_;
};

TEST_F(OwnersTest, EnvironmentIsHiddenFromOthers) {
  const std::string job = Submit(*alice_, "job");
  v1::ListJobsRequest all;
  for (Stub* const stub : {alice_.get(), admin_.get()}) {
    for (const v1::Job& seen : {Get(*stub, job), Watch(*stub, job)}) {
      EXPECT_EQ(seen.spec().env().at("KEY"), "hunter2");
      EXPECT_FALSE(seen.private_hidden());
    }
  }
  for (Stub* const stub : {bob_.get(), viewer_.get()}) {
    for (const v1::Job& seen : {Get(*stub, job), Watch(*stub, job)}) {
      EXPECT_TRUE(seen.spec().env().empty());
      EXPECT_TRUE(seen.private_hidden());
      EXPECT_EQ(seen.owner(), "alice");
    }
    EXPECT_TRUE(List(*stub, all)[0].spec().env().empty());
    EXPECT_EQ(List(*stub, all)[0].owner(), "alice");
  }
}

// A job that has ended, with every text that a job can have, as others see it over gRPC and HTTP.
TEST_F(OwnersTest, NobodyElseSeesPrivateTexts) {
  core::Job job;
  job.status = core::FilledJob("s3cr3t");
  job.status.set_job_id("run-0");
  job.status.set_owner("alice");
  job.status.set_state(v1::SUCCEEDED);
  job.status.set_reason("RankFailed");
  job.status.set_array_id("run");
  job.status.set_array_index(0);
  job.status.set_shared(false);
  v1::GenerationRecord generation;
  generation.set_job_id("run-0");
  generation.set_generation(job.status.generation());
  generation.set_over(true);
  generation.set_world_size(1);
  generation.set_node_count(1);
  v1::NodePlacement& placement = *generation.add_nodes();
  placement.set_node("node-1");
  v1::RankRecord& rank = *placement.add_ranks();
  rank.add_slots(0);
  rank.set_exited(true);
  *rank.mutable_exit() = core::ToRecord(job.status.first_failure().exit());
  std::vector<store::Mutation> writes = {core::PutSchema(), core::Put(core::ToRecord(job)),
                                         core::PutGeneration(generation),
                                         core::PutPlacement(generation, 0)};
  for (const char* type : {"FirstFailure", "Warning", "CheckpointFailed", "JobHung", "New"}) {
    v1::JobEvent event;
    event.set_job_id("run-0");
    event.set_sequence(writes.size());
    event.set_type(type);
    event.set_message("s3cr3t");
    writes.push_back(core::Put(core::ToRecord(event)));
  }
  v1::NodeRecord node;
  node.set_name("node-1");
  node.set_launch_failure("cannot run s3cr3t");
  writes.push_back(core::Put(node));
  coordinator_.reset();
  ASSERT_TRUE(store_.Commit(writes).ok());
  StartCoordinator();
  v1::SubmitJobRequest queued = SubmitRequest("queued");
  queued.mutable_spec()->add_command("s3cr3t");
  queued.mutable_spec()->set_workdir("/s3cr3t");
  (*queued.mutable_spec()->mutable_env())["s3cr3t"] = "x";
  v1::SubmitJobResponse submitted;
  ASSERT_TRUE(Call(*alice_, &Stub::SubmitJob, queued, &submitted).ok());

  const auto seen_by = [&](Stub& stub) {
    std::string seen;
    const auto see = [&](auto method, const auto& request, auto response) {
      const grpc::Status status = Call(stub, method, request, &response);
      EXPECT_TRUE(status.ok()) << status.error_message();
      seen += response.DebugString();
    };
    v1::GetJobRequest get;
    v1::ListEventsRequest events;
    v1::GetJobHistoryRequest history;
    v1::GetArrayRequest array;
    v1::ListJobsRequest list;
    list.set_include_finished(true);
    array.set_array_id("run");
    for (const std::string& id : {std::string("run-0"), submitted.job().job_id()}) {
      get.set_job_id(id);
      events.set_job_id(id);
      history.set_job_id(id);
      see(&Stub::GetJob, get, v1::Job());
      see(&Stub::ListEvents, events, v1::ListEventsResponse());
      see(&Stub::GetJobHistory, history, v1::JobHistory());
      seen += Watch(stub, id).DebugString();
    }
    see(&Stub::ListJobs, list, v1::ListJobsResponse());
    see(&Stub::GetQueue, v1::GetQueueRequest(), v1::GetQueueResponse());
    see(&Stub::GetArray, array, v1::GetArrayResponse());
    see(&Stub::GetReport, v1::GetReportRequest(), v1::GetReportResponse());
    see(&Stub::ListNodes, v1::ListNodesRequest(), v1::ListNodesResponse());
    v1::GetNodeRequest get_node;
    get_node.set_name("node-1");
    see(&Stub::GetNode, get_node, v1::Node());
    return seen;
  };
  EXPECT_THAT(seen_by(*alice_), HasSubstr("s3cr3t"));
  EXPECT_THAT(seen_by(*alice_), Not(HasSubstr("cannot run")));
  EXPECT_THAT(seen_by(*admin_), HasSubstr("cannot run s3cr3t"));
  for (Stub* const stub : {bob_.get(), viewer_.get()}) {
    const std::string seen = seen_by(*stub);
    EXPECT_THAT(seen, Not(HasSubstr("s3cr3t")));
    EXPECT_THAT(seen, HasSubstr("RankFailed"));
  }

  for (const char* target : {"/metrics", "/sd", "/api/session", "/version"}) {
    const auto result = http::Get(coordinator_->http_address(), target);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_THAT(result->body, Not(HasSubstr("s3cr3t"))) << target;
  }
  // Views of the page: the path, the event that comes last, and a public text.
  struct View {
    std::string target, last, shown;
    bool admins_only = false;
  };
  const View views[] = {
      {"/api/overview", "event: queue", "alice"},
      {"/api/job?id=run-0", "event: environment", "RankFailed"},
      {absl::StrCat("/api/job?id=", submitted.job().job_id()), "event: environment", "alice"},
      {"/api/comparison?jobs=run-0", "event: comparison", "RankFailed"},
      {"/api/comparison?array=run", "event: comparison", "RankFailed"},
      {"/api/node?name=node-1", "event: node", "node-1", true},
      {"/api/log?job=run-0", "event: problem", "belongs to alice"},
  };
  const auto view_of = [&](const View& view, const std::string& token) {
    std::string seen;
    const auto deadline = TestDeadline();
    const auto read = [&](absl::string_view bytes) {
      absl::StrAppend(&seen, bytes);
      return !absl::StrContains(seen, view.last) && std::chrono::system_clock::now() < deadline;
    };
    http::Stream(coordinator_->http_address(), view.target, read,
                 {absl::StrCat("Authorization: Bearer ", token)})
        .IgnoreError();
    return seen;
  };
  for (const View& view : views) {
    // First as those who see more, because viewers share rendered texts.
    const std::string of_admin = view_of(view, "local-token-of-a-test");
    const std::string of_alice = view_of(view, "alice-token-0123456");
    if (view.last == "event: environment") EXPECT_THAT(of_alice, HasSubstr("s3cr3t"));
    if (view.admins_only) EXPECT_THAT(of_admin, HasSubstr("cannot run s3cr3t"));
    for (const char* const token : {"bob-token-01234567", "viewer-token-0123456"}) {
      const std::string seen = view_of(view, token);
      EXPECT_THAT(seen, HasSubstr(view.shown)) << view.target;
      EXPECT_THAT(seen, Not(HasSubstr("s3cr3t"))) << view.target;
    }
  }
}

TEST_F(OwnersTest, UploadedFilesBelongToTheirOwners) {
  const std::string content = "private text";
  v1::SubmitJobResponse response;
  EXPECT_TRUE(IsMissing(*bob_, content));
  const grpc::Status before = SubmitWith(*bob_, content, &response);
  ASSERT_TRUE(Upload(*alice_, content).ok());
  EXPECT_FALSE(IsMissing(*alice_, content));
  ASSERT_TRUE(SubmitWith(*alice_, content, &response).ok());
  const std::string job = response.job().job_id();
  // The digest alone gives nothing, and does not reveal that somebody has the file.
  EXPECT_TRUE(IsMissing(*bob_, content));
  const grpc::Status refused = SubmitWith(*bob_, content, &response);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(refused.error_message(), before.error_message());
  EXPECT_TRUE(Get(*bob_, job).spec().files().empty());
  // An admin acts with the rights of the owner of a job.
  EXPECT_TRUE(SubmitWith(*admin_, content, &response).ok());

  EXPECT_EQ(Share(*bob_, job, true).error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(Share(*alice_, job, true).error_code(), grpc::StatusCode::PERMISSION_DENIED);
  ASSERT_TRUE(Share(*admin_, job, true).ok());
  EXPECT_EQ(Get(*bob_, job).spec().files(0).sha256(), Sha256Hex(content));
  EXPECT_FALSE(IsMissing(*bob_, content));
  ASSERT_TRUE(Share(*admin_, job, false).ok());
  EXPECT_TRUE(IsMissing(*bob_, content));
  // Whoever has the content may upload it.
  ASSERT_TRUE(Upload(*bob_, content).ok());
  EXPECT_TRUE(SubmitWith(*bob_, content, &response).ok());
}

TEST_F(OwnersTest, ListsOwnJobs) {
  const std::string a = Submit(*alice_, "a");
  const std::string b = Submit(*bob_, "b");
  v1::ListJobsRequest mine;
  mine.set_mine(true);
  ASSERT_EQ(List(*bob_, mine).size(), 1u);
  EXPECT_EQ(List(*bob_, mine)[0].job_id(), b);
  v1::ListJobsRequest of_alice;
  of_alice.set_owner("alice");
  ASSERT_EQ(List(*bob_, of_alice).size(), 1u);
  EXPECT_EQ(List(*bob_, of_alice)[0].job_id(), a);
  EXPECT_EQ(List(*bob_, {}).size(), 2u);
}

TEST_F(OwnersTest, LogsAreOnlyForOwnerAndAdmins) {
  const std::string job = Submit(*alice_, "job");
  for (Stub* const stub : {bob_.get(), viewer_.get()}) {
    const grpc::Status refused = ReadLog(*stub, job);
    EXPECT_EQ(refused.error_code(), grpc::StatusCode::PERMISSION_DENIED);
    EXPECT_THAT(refused.error_message(), HasSubstr(absl::StrCat("job ", job, " belongs to alice")));
  }
  // It has no logs yet.
  EXPECT_EQ(ReadLog(*alice_, job).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(ReadLog(*admin_, job).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(OwnersTest, ChangesAreOnlyForOwnerAndAdmins) {
  const std::string job = Submit(*alice_, "job");
  v1::CancelJobRequest request;
  request.set_job_id(job);
  v1::Job response;
  EXPECT_EQ(Call(*bob_, &Stub::CancelJob, request, &response).error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(Get(*alice_, job).state(), v1::QUEUED);
  EXPECT_TRUE(Call(*admin_, &Stub::CancelJob, request, &response).ok());
}

TEST_F(OwnersTest, ValidationRefusesClassAboveRole) {
  v1::SubmitJobRequest request = SubmitRequest("job");
  request.set_validate_only(true);
  request.mutable_spec()->set_priority_class("high");
  v1::SubmitJobResponse response;
  const grpc::Status refused = Call(*bob_, &Stub::SubmitJob, request, &response);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(refused.error_message(), HasSubstr("priority_class: high is above normal"));
  EXPECT_TRUE(Call(*admin_, &Stub::SubmitJob, request, &response).ok());
  EXPECT_EQ(response.job().spec().priority_class(), "high");
  EXPECT_TRUE(List(*admin_, {}).empty());
}

TEST_F(OwnersTest, QueueHidesEnvironmentAndShowsUseOfOwners) {
  const std::string a = Submit(*alice_, "a");
  const std::string b = Submit(*bob_, "b");
  v1::GetQueueResponse queue;
  ASSERT_TRUE(Call(*bob_, &Stub::GetQueue, v1::GetQueueRequest(), &queue).ok());
  EXPECT_EQ(queue.total(), 2u);
  ASSERT_EQ(queue.jobs_size(), 2);
  EXPECT_EQ(queue.jobs(0).job().job_id(), a);
  EXPECT_EQ(queue.jobs(0).effective_class(), "normal");
  EXPECT_TRUE(queue.jobs(0).job().spec().env().empty());
  EXPECT_EQ(queue.jobs(1).job().job_id(), b);
  ASSERT_EQ(queue.owners_size(), 2);
  EXPECT_EQ(queue.owners(1).owner(), "bob");
  EXPECT_EQ(queue.owners(1).queued_jobs(), 1u);

  v1::GetQueueRequest first;
  first.set_limit(1);
  ASSERT_TRUE(Call(*bob_, &Stub::GetQueue, first, &queue).ok());
  EXPECT_EQ(queue.jobs_size(), 1);
  EXPECT_EQ(queue.total(), 2u);
  EXPECT_NE(queue.next_page_token(), "");
}

TEST_F(OwnersTest, ValidationForecastsStart) {
  v1::SubmitJobRequest request = SubmitRequest("job");
  request.set_validate_only(true);
  v1::SubmitJobResponse response;
  ASSERT_TRUE(Call(*alice_, &Stub::SubmitJob, request, &response).ok());
  EXPECT_FALSE(response.forecast().starts_now());
  EXPECT_EQ(response.forecast().queue_position(), 1u);
  EXPECT_FALSE(response.forecast().blockers().empty());

  RawWorker worker(ChannelOf("worker-token-012345"));
  worker.SendHello(RawWorker::HelloOf("node"));
  worker.Next(v1::CoordinatorMessage::kWelcome);
  ASSERT_TRUE(Call(*alice_, &Stub::SubmitJob, request, &response).ok());
  EXPECT_TRUE(response.forecast().starts_now());
  ASSERT_EQ(response.forecast().nodes_size(), 1);
  EXPECT_EQ(response.forecast().nodes(0), "node");
  EXPECT_TRUE(List(*admin_, {}).empty());
}

TEST_F(OwnersTest, SecretsAreListedByNameAndSentToJobsOfTheirOwner) {
  EXPECT_TRUE(SetSecret(*alice_, "token", "hunter3").ok());
  EXPECT_EQ(SetSecret(*alice_, "../token", "x").error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(SetSecret(*viewer_, "token", "x").error_code(), grpc::StatusCode::PERMISSION_DENIED);
  ASSERT_EQ(ListSecrets(*alice_).secrets_size(), 1);
  EXPECT_EQ(ListSecrets(*alice_).secrets(0).name(), "token");
  EXPECT_EQ(ListSecrets(*bob_).secrets_size(), 0);
  ASSERT_EQ(ListSecrets(*admin_).secrets_size(), 1);
  EXPECT_EQ(ListSecrets(*admin_).secrets(0).owner(), "alice");

  RawWorker worker(ChannelOf("worker-token-012345"));
  worker.SendHello(RawWorker::HelloOf("node"));
  worker.Next(v1::CoordinatorMessage::kWelcome);
  v1::SubmitJobRequest request = SubmitRequest("job");
  (*request.mutable_spec()->mutable_secret_env())["TOKEN"] = "token";
  v1::SubmitJobResponse submitted;
  ASSERT_TRUE(Call(*alice_, &Stub::SubmitJob, request, &submitted).ok());
  const v1::Launch launch = worker.Next(v1::CoordinatorMessage::kLaunch).launch();
  EXPECT_EQ(launch.secrets().at("token"), "hunter3");
  const std::string shown = Get(*alice_, submitted.job().job_id()).SerializeAsString();
  EXPECT_EQ(shown.find("hunter3"), std::string::npos);
  EXPECT_NE(shown.find("token"), std::string::npos) << "its name is shown";
}

TEST_F(OwnersTest, ReportsUse) {
  Submit(*alice_, "a");
  v1::GetReportRequest request;
  v1::GetReportResponse response;
  ASSERT_TRUE(Call(*viewer_, &Stub::GetReport, request, &response).ok());
  ASSERT_EQ(response.owners_size(), 1);
  EXPECT_EQ(response.owners(0).owner(), "alice");
  EXPECT_EQ(response.owners(0).jobs_submitted(), 1u);
  request.set_days(91);
  const grpc::Status refused = Call(*viewer_, &Stub::GetReport, request, &response);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(refused.error_message(), "days is 91; the limit is 90");
}

}  // namespace
}  // namespace muster::service
