// The services over real gRPC with the real core; the worker is a raw stream.
#include "coordinator/service/coordinator.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/limits.h"
#include "common/version.h"
#include "coordinator/service/coordinator_fixture.h"
#include "gmock/gmock.h"
#include "grpcpp/generic/generic_stub.h"

namespace muster::service {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using Stub = v1::ClusterService::Stub;

using JobsTest = CoordinatorFixture;

TEST_F(JobsTest, SubmitDefaultsTheSpecAndNamesTheJob) {
  v1::SubmitJobResponse response;
  ASSERT_TRUE(Call(*cluster_, &Stub::SubmitJob, SubmitRequest("hello"), &response).ok());
  EXPECT_THAT(response.job().job_id(), MatchesRegex("hello-[0-9a-z]{5}"));
  EXPECT_EQ(response.job().state(), v1::QUEUED);
  EXPECT_EQ(response.job().spec().failure_timeout().seconds(), 30);
  EXPECT_FALSE(response.already_existed());
  EXPECT_EQ(Get("hello").job_id(), response.job().job_id());
}

TEST_F(JobsTest, SubmitRejectsInvalidSpecs) {
  const auto refused = [this](const v1::SubmitJobRequest& request) {
    v1::SubmitJobResponse response;
    return Call(*cluster_, &Stub::SubmitJob, request, &response);
  };
  v1::SubmitJobRequest request = SubmitRequest("hello");
  request.set_protocol_version(0);
  EXPECT_EQ(refused(request).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  request.set_protocol_version(kProtocolVersion + 1);
  EXPECT_EQ(refused(request).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  request = SubmitRequest("Not A Name");
  EXPECT_EQ(refused(request).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  request = SubmitRequest("hello");
  request.clear_spec();
  EXPECT_EQ(refused(request).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(JobsTest, ValidateOnlyQueuesNothing) {
  v1::SubmitJobRequest request = SubmitRequest("hello");
  request.set_validate_only(true);
  v1::SubmitJobResponse response;
  ASSERT_TRUE(Call(*cluster_, &Stub::SubmitJob, request, &response).ok());
  EXPECT_EQ(response.job().spec().grace_period().seconds(), 30);
  v1::ListJobsResponse jobs;
  ASSERT_TRUE(Call(*cluster_, &Stub::ListJobs, v1::ListJobsRequest(), &jobs).ok());
  EXPECT_EQ(jobs.jobs_size(), 0);
}

TEST_F(JobsTest, SameIdempotencyKeyReturnsSameJob) {
  v1::SubmitJobRequest request = SubmitRequest("hello");
  request.set_idempotency_key("key");
  v1::SubmitJobResponse first, second;
  ASSERT_TRUE(Call(*cluster_, &Stub::SubmitJob, request, &first).ok());
  ASSERT_TRUE(Call(*cluster_, &Stub::SubmitJob, request, &second).ok());
  EXPECT_EQ(first.job().job_id(), second.job().job_id());
  EXPECT_TRUE(second.already_existed());
}

TEST_F(JobsTest, SameIdempotencyKeyWithAnotherSpecIsRefused) {
  v1::SubmitJobRequest request = SubmitRequest("hello");
  request.set_idempotency_key("key");
  for (const char* name : {"A", "B", "C", "D"})
    (*request.mutable_spec()->mutable_env())[name] = "1";
  v1::SubmitJobResponse first, second;
  ASSERT_TRUE(Call(*cluster_, &Stub::SubmitJob, request, &first).ok());
  // The order in which a map is filled makes no difference.
  request.mutable_spec()->clear_env();
  for (const char* name : {"D", "C", "B", "A"})
    (*request.mutable_spec()->mutable_env())[name] = "1";
  ASSERT_TRUE(Call(*cluster_, &Stub::SubmitJob, request, &second).ok());
  EXPECT_TRUE(second.already_existed());
  request.mutable_spec()->set_priority(5);
  const grpc::Status refused = Call(*cluster_, &Stub::SubmitJob, request, &second);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_THAT(refused.error_message(), HasSubstr(first.job().job_id()));
}

TEST_F(JobsTest, RemovesFinishedJobs) {
  const std::string id = Submit("hello");
  v1::RemoveJobRequest remove;
  remove.set_job_id("hello");
  v1::RemoveJobResponse removed;
  EXPECT_EQ(Call(*cluster_, &Stub::RemoveJob, remove, &removed).error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
  v1::CancelJobRequest cancel;
  cancel.set_job_id(id);
  v1::Job job;
  ASSERT_TRUE(Call(*cluster_, &Stub::CancelJob, cancel, &job).ok());
  ASSERT_TRUE(Call(*cluster_, &Stub::RemoveJob, remove, &removed).ok());
  EXPECT_EQ(Call(*cluster_, &Stub::RemoveJob, remove, &removed).error_code(),
            grpc::StatusCode::NOT_FOUND);
}

TEST_F(JobsTest, RemovesDisconnectedNodes) {
  auto worker = Connect("node-1");
  v1::RemoveNodeRequest remove;
  remove.set_name("node-1");
  v1::RemoveNodeResponse removed;
  EXPECT_EQ(Call(*cluster_, &Stub::RemoveNode, remove, &removed).error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
  worker.reset();
  AwaitCondition([&] { return Call(*cluster_, &Stub::RemoveNode, remove, &removed).ok(); });
  v1::ListNodesResponse nodes;
  ASSERT_TRUE(Call(*cluster_, &Stub::ListNodes, v1::ListNodesRequest(), &nodes).ok());
  EXPECT_EQ(nodes.nodes_size(), 0);
}

TEST_F(JobsTest, RejectsUnknownAndMalformedJobs) {
  v1::GetJobRequest request;
  v1::Job job;
  EXPECT_EQ(Call(*cluster_, &Stub::GetJob, request, &job).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  request.set_job_id("nobody");
  EXPECT_EQ(Call(*cluster_, &Stub::GetJob, request, &job).error_code(),
            grpc::StatusCode::NOT_FOUND);
  v1::CancelJobRequest cancel;
  cancel.set_job_id("nobody");
  EXPECT_EQ(Call(*cluster_, &Stub::CancelJob, cancel, &job).error_code(),
            grpc::StatusCode::NOT_FOUND);
  grpc::ClientContext context;
  v1::WatchJobRequest watch;
  watch.set_job_id("nobody");
  const auto stream = cluster_->WatchJob(&context, watch);
  EXPECT_FALSE(stream->Read(&job));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(JobsTest, HoldReleaseAndCancelAddEvents) {
  const std::string id = Submit("hello");
  v1::Job job;
  v1::HoldJobRequest hold;
  hold.set_job_id(id);
  ASSERT_TRUE(Call(*cluster_, &Stub::HoldJob, hold, &job).ok());
  EXPECT_EQ(job.state(), v1::HELD);
  v1::ReleaseJobRequest release;
  release.set_job_id("hello");
  ASSERT_TRUE(Call(*cluster_, &Stub::ReleaseJob, release, &job).ok());
  EXPECT_EQ(job.state(), v1::QUEUED);
  v1::CancelJobRequest cancel;
  cancel.set_job_id(id);
  cancel.mutable_grace_period()->set_seconds(-1);
  EXPECT_EQ(Call(*cluster_, &Stub::CancelJob, cancel, &job).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  cancel.clear_grace_period();
  ASSERT_TRUE(Call(*cluster_, &Stub::CancelJob, cancel, &job).ok());
  EXPECT_EQ(job.state(), v1::CANCELLED);

  v1::ListEventsRequest list;
  list.set_job_id(id);
  v1::ListEventsResponse events;
  ASSERT_TRUE(Call(*cluster_, &Stub::ListEvents, list, &events).ok());
  ASSERT_GT(events.events_size(), 1);
  list.set_after_sequence(events.events(0).sequence());
  v1::ListEventsResponse later;
  ASSERT_TRUE(Call(*cluster_, &Stub::ListEvents, list, &later).ok());
  EXPECT_EQ(later.events_size(), events.events_size() - 1);

  v1::ListJobsResponse jobs;
  ASSERT_TRUE(Call(*cluster_, &Stub::ListJobs, v1::ListJobsRequest(), &jobs).ok());
  EXPECT_EQ(jobs.jobs_size(), 0);
  v1::ListJobsRequest all;
  all.set_include_finished(true);
  ASSERT_TRUE(Call(*cluster_, &Stub::ListJobs, all, &jobs).ok());
  EXPECT_EQ(jobs.jobs_size(), 1);
}

TEST_F(JobsTest, RunsFromSubmitToSucceeded) {
  const auto worker = Connect("node-1");
  const std::string id = Submit("hello");
  const v1::Launch launch = worker->Next(v1::CoordinatorMessage::kLaunch).launch();
  EXPECT_EQ(launch.job_id(), id);
  EXPECT_EQ(launch.generation(), 1);
  EXPECT_EQ(launch.ranks_size(), 2);
  EXPECT_EQ(launch.spec().command(0), "true");
  worker->Report(launch, v1::STARTED);
  AwaitState(id, v1::RUNNING);
  const v1::Job running = Get(id);
  ASSERT_EQ(running.ranks_size(), 2);
  EXPECT_EQ(running.ranks(1).node(), "node-1");
  worker->Report(launch, v1::EXITED);
  const v1::Job job = AwaitState(id, v1::SUCCEEDED);
  EXPECT_EQ(job.exit_code(), 0);
  EXPECT_EQ(worker->Next(v1::CoordinatorMessage::kForget).forget().job_id(), id);
}

TEST_F(JobsTest, WatchEndsWithJob) {
  const std::string id = Submit("hello");
  grpc::ClientContext context;
  context.set_deadline(TestDeadline());
  v1::WatchJobRequest watch;
  watch.set_job_id(id);
  const auto stream = cluster_->WatchJob(&context, watch);
  v1::Job job;
  ASSERT_TRUE(stream->Read(&job));
  EXPECT_EQ(job.state(), v1::QUEUED);
  v1::CancelJobRequest cancel;
  cancel.set_job_id(id);
  v1::Job cancelled;
  ASSERT_TRUE(Call(*cluster_, &Stub::CancelJob, cancel, &cancelled).ok());
  ASSERT_TRUE(stream->Read(&job));
  EXPECT_EQ(job.state(), v1::CANCELLED);
  EXPECT_FALSE(stream->Read(&job));
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(coordinator_->watcher_count(), 0);
}

TEST_F(JobsTest, CancelledWatchLeavesNoWatcher) {
  const std::string id = Submit("hello");
  grpc::ClientContext context;
  v1::WatchJobRequest watch;
  watch.set_job_id(id);
  const auto stream = cluster_->WatchJob(&context, watch);
  v1::Job job;
  ASSERT_TRUE(stream->Read(&job));
  EXPECT_EQ(coordinator_->watcher_count(), 1);
  context.TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  AwaitCondition([this] { return coordinator_->watcher_count() == 0; });
}

TEST_F(JobsTest, LimitsWatchers) {
  const std::string id = Submit("hello");
  v1::WatchJobRequest watch;
  watch.set_job_id(id);
  struct Watch {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::Job>> stream;
  };
  std::vector<std::unique_ptr<Watch>> watches;
  v1::Job job;
  for (size_t i = 0; i < limits::kWatchersPerJob; ++i) {
    watches.push_back(std::make_unique<Watch>());
    watches.back()->stream = cluster_->WatchJob(&watches.back()->context, watch);
    ASSERT_TRUE(watches.back()->stream->Read(&job));
  }
  grpc::ClientContext context;
  const auto refused = cluster_->WatchJob(&context, watch);
  EXPECT_EQ(refused->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  watches.clear();
  AwaitCondition([this] { return coordinator_->watcher_count() == 0; });
}

TEST_F(JobsTest, AcknowledgedJobsSurviveRestart) {
  const std::string id = Submit("hello");
  StopCoordinator();
  StartCoordinator();
  EXPECT_EQ(Get(id).state(), v1::QUEUED);
}

TEST_F(JobsTest, ShutdownEndsAllStreams) {
  const auto worker = Connect("node-1");
  const std::string id = Submit("hello");
  worker->Next(v1::CoordinatorMessage::kLaunch);
  grpc::ClientContext context;
  context.set_deadline(TestDeadline());
  v1::WatchJobRequest watch;
  watch.set_job_id(id);
  const auto stream = cluster_->WatchJob(&context, watch);
  v1::Job job;
  ASSERT_TRUE(stream->Read(&job));
  StopCoordinator();
  while (stream->Read(&job)) {
  }
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(worker->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

using SessionsTest = CoordinatorFixture;

TEST_F(SessionsTest, WelcomesWorkersAndListsNodes) {
  RawWorker worker(channel_);
  worker.SendHello(RawWorker::HelloOf("node-1"));
  const v1::Welcome welcome = worker.Next(v1::CoordinatorMessage::kWelcome).welcome();
  EXPECT_NE(welcome.coordinator_incarnation(), 0);
  EXPECT_EQ(welcome.lease().seconds(), 10);
  EXPECT_EQ(welcome.observed_address(), "127.0.0.1");
  v1::WorkerMessage heartbeat;
  heartbeat.mutable_heartbeat()->set_sequence(7);
  worker.Send(heartbeat);
  EXPECT_EQ(worker.Next(v1::CoordinatorMessage::kHeartbeatAck).heartbeat_ack().sequence(), 7);
  v1::ListNodesResponse nodes;
  ASSERT_TRUE(Call(*cluster_, &Stub::ListNodes, v1::ListNodesRequest(), &nodes).ok());
  ASSERT_EQ(nodes.nodes_size(), 1);
  EXPECT_EQ(nodes.nodes(0).name(), "node-1");
  EXPECT_EQ(nodes.nodes(0).state(), v1::READY);
  EXPECT_EQ(nodes.nodes(0).address(), "127.0.0.1");
  EXPECT_EQ(nodes.nodes(0).slots_size(), 2);
}

TEST_F(SessionsTest, MessagesWithoutIdentityEndSessionWithStatus) {
  const auto ends_with = [this](const std::function<void(RawWorker&)>& speak) {
    RawWorker worker(channel_);
    speak(worker);
    return worker.Finish();
  };
  v1::WorkerMessage heartbeat;
  heartbeat.mutable_heartbeat();
  grpc::Status status = ends_with([&](RawWorker& w) { w.Send(heartbeat); });
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("not Hello"));

  v1::Hello other = RawWorker::HelloOf("node-1");
  other.set_protocol_version(99);
  status = ends_with([&](RawWorker& w) { w.SendHello(other); });
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("uses protocol 99"));

  // The coordinator keeps serving.
  EXPECT_NE(Submit("hello"), "");
}

TEST_F(SessionsTest, ClosesSessionOfWorkerThatDoesNotRead) {
  const auto worker = Connect("node-1");
  Submit("hello");
  const v1::Launch launch = worker->Next(v1::CoordinatorMessage::kLaunch).launch();
  v1::WorkerMessage message;
  v1::PutKey& put = *message.mutable_put_key();
  put.set_job_id(launch.job_id());
  put.set_generation(launch.generation());
  put.set_key("key");
  put.set_value(std::string(limits::kValueBytes, 'x'));
  ASSERT_TRUE(worker->Send(message));
  v1::GetKey& get = *message.mutable_get_key();
  get.set_job_id(launch.job_id());
  get.set_generation(launch.generation());
  get.set_key("key");
  // Each reply has 64 KiB.
  size_t sent = 0;
  while (worker->Send(message)) ++sent;
  EXPECT_GT(sent, limits::kSessionQueueBytes / limits::kValueBytes);
  EXPECT_THAT(worker->Finish().error_code(),
              AnyOf(grpc::StatusCode::RESOURCE_EXHAUSTED, grpc::StatusCode::CANCELLED));
}

TEST_F(SessionsTest, RejectsNameOfLiveWorker) {
  const auto first = Connect("node-1");
  RawWorker second(channel_);
  second.SendHello(RawWorker::HelloOf("node-1", 2));
  EXPECT_EQ(second.Finish().error_code(), grpc::StatusCode::ALREADY_EXISTS);
}

TEST_F(SessionsTest, BrokenStreamMakesNodeSuspect) {
  const auto worker = Connect("node-1");
  worker->Cancel();
  AwaitCondition([this] {
    v1::ListNodesResponse nodes;
    EXPECT_TRUE(Call(*cluster_, &Stub::ListNodes, v1::ListNodesRequest(), &nodes).ok());
    return nodes.nodes(0).state() == v1::SUSPECT;
  });
}

TEST_F(JobsTest, RequeueStopsAndRestartsRanks) {
  const auto worker = Connect("node-1");
  const std::string id = Submit("hello");
  const v1::Launch launch = worker->Next(v1::CoordinatorMessage::kLaunch).launch();
  v1::RequeueJobRequest requeue;
  requeue.set_job_id("hello");
  v1::Job job;
  ASSERT_TRUE(Call(*cluster_, &Stub::RequeueJob, requeue, &job).ok());
  EXPECT_EQ(job.state(), v1::STOPPING);
  EXPECT_EQ(job.reason(), "RequeuedByUser");
  EXPECT_EQ(worker->Next(v1::CoordinatorMessage::kStop).stop().job_id(), id);
  worker->Report(launch, v1::EXITED, /*exit_code=*/143);
  EXPECT_EQ(worker->Next(v1::CoordinatorMessage::kLaunch).launch().generation(), 2);
  v1::CancelJobRequest cancel;
  cancel.set_job_id(id);
  ASSERT_TRUE(Call(*cluster_, &Stub::CancelJob, cancel, &job).ok());
  EXPECT_EQ(Call(*cluster_, &Stub::RequeueJob, requeue, &job).error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(JobsTest, CheckpointNeedsARunningTraining) {
  const auto worker = Connect("node-1");
  Submit("hello");
  worker->Next(v1::CoordinatorMessage::kLaunch);
  v1::CheckpointJobRequest request;
  request.set_job_id("hello");
  v1::Job job;
  const grpc::Status refused = Call(*cluster_, &Stub::CheckpointJob, request, &job);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(refused.error_message(), HasSubstr("runs a command"));
  request.set_job_id("unknown");
  EXPECT_EQ(Call(*cluster_, &Stub::CheckpointJob, request, &job).error_code(),
            grpc::StatusCode::NOT_FOUND);
}

TEST_F(SessionsTest, CordonDrainAndUncordonReturnNode) {
  const auto worker = Connect("node-1");
  const std::string id = Submit("hello");
  const v1::Launch launch = worker->Next(v1::CoordinatorMessage::kLaunch).launch();
  v1::Node node;
  v1::CordonNodeRequest cordon;
  cordon.set_name("node-1");
  cordon.set_reason("bad fan");
  ASSERT_TRUE(Call(*cluster_, &Stub::CordonNode, cordon, &node).ok());
  EXPECT_TRUE(node.cordoned());
  EXPECT_EQ(node.cordon_reason(), "bad fan");
  EXPECT_EQ(node.slots(0).job_id(), id) << "its ranks keep running";
  v1::DrainNodeRequest drain;
  drain.set_name("node-1");
  ASSERT_TRUE(Call(*cluster_, &Stub::DrainNode, drain, &node).ok());
  worker->Next(v1::CoordinatorMessage::kStop);
  worker->Report(launch, v1::EXITED, /*exit_code=*/143);
  EXPECT_EQ(AwaitState(id, v1::QUEUED).reason(), "NodeDrained");
  StopCoordinator();
  StartCoordinator();
  v1::GetNodeRequest get;
  get.set_name("node-1");
  ASSERT_TRUE(Call(*cluster_, &Stub::GetNode, get, &node).ok());
  EXPECT_TRUE(node.cordoned()) << "the acknowledged cordon survives";
  v1::UncordonNodeRequest uncordon;
  uncordon.set_name("node-1");
  ASSERT_TRUE(Call(*cluster_, &Stub::UncordonNode, uncordon, &node).ok());
  EXPECT_FALSE(node.cordoned());
}

TEST_F(SessionsTest, RejectsUnknownAndMalformedNodes) {
  const auto cordon = [this](const std::string& name, const std::string& reason) {
    v1::CordonNodeRequest request;
    request.set_name(name);
    request.set_reason(reason);
    v1::Node node;
    return Call(*cluster_, &Stub::CordonNode, request, &node).error_code();
  };
  EXPECT_EQ(cordon("node-1", ""), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(cordon("", ""), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(cordon("no name", ""), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(cordon("node-1", std::string(limits::kCordonReasonBytes + 1, 'x')),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(SessionsTest, LeavingWorkerGetsNoMoreRanks) {
  const auto worker = Connect("node-1");
  v1::WorkerMessage message;
  message.mutable_leaving();
  worker->Send(message);
  AwaitCondition([this] {
    v1::GetNodeRequest get;
    get.set_name("node-1");
    v1::Node node;
    EXPECT_TRUE(Call(*cluster_, &Stub::GetNode, get, &node).ok());
    return node.leaving();
  });
  EXPECT_EQ(Get(Submit("hello")).state(), v1::QUEUED);
}

using ServerTest = CoordinatorFixture;

// Calls a method by name with serialized messages.
grpc::Status RawCall(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                     const std::string& request, std::string* response) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(TestDeadline());
  grpc::Slice slice(request);
  grpc::ByteBuffer request_bytes(&slice, 1);
  grpc::ByteBuffer response_bytes;
  grpc::Status status;
  absl::Notification done;
  stub.UnaryCall(&context, method, grpc::StubOptions(), &request_bytes, &response_bytes,
                 [&](grpc::Status result) {
                   status = result;
                   done.Notify();
                 });
  done.WaitForNotification();
  if (status.ok() && response_bytes.TrySingleSlice(&slice).ok()) {
    response->assign(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return status;
}

TEST_F(ServerTest, HealthReturnsServing) {
  std::string response;
  const grpc::Status status = RawCall(channel_, "/grpc.health.v1.Health/Check", "", &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response, "\x08\x01");  // HealthCheckResponse{status: SERVING}
}

TEST_F(ServerTest, ReflectionListsServices) {
  // ServerReflectionRequest{list_services: ""}
  std::string response;
  const grpc::Status status =
      RawCall(channel_, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
              std::string("\x3a\x00", 2), &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_THAT(response, HasSubstr("muster.v1.ClusterService"));
  EXPECT_THAT(response, HasSubstr("muster.v1.WorkerService"));
}

TEST_F(ServerTest, MalformedRequestsGetStatus) {
  std::string response;
  EXPECT_FALSE(
      RawCall(channel_, "/muster.v1.ClusterService/SubmitJob", "\xff\xff\xff", &response).ok());
  EXPECT_EQ(RawCall(channel_, "/muster.v1.ClusterService/Nonsense", "", &response).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_NE(Submit("hello"), "");
}

TEST_F(ServerTest, NamesAddressInUse) {
  store::MemoryStore store;
  CoordinatorOptions options;
  options.listen = coordinator_->grpc_address().ToString();
  options.http = "127.0.0.1:0";
  const absl::Status status = Coordinator::Start(options, store).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(status.message()), HasSubstr(options.listen));
}

}  // namespace
}  // namespace muster::service
