#include "coordinator/service/coordinator_fixture.h"

#include "common/version.h"

namespace muster::service {

RawWorker::RawWorker(const std::shared_ptr<grpc::Channel>& channel)
    : stub_(v1::WorkerService::NewStub(channel)) {
  context_.set_deadline(TestDeadline());
  stream_ = stub_->Session(&context_);
}

RawWorker::~RawWorker() {
  context_.TryCancel();
  Finish();
}

v1::Hello RawWorker::HelloOf(const std::string& name, uint64_t incarnation) {
  v1::Hello hello;
  hello.set_protocol_version(kProtocolVersion);
  hello.set_software_version(kSoftwareVersion);
  hello.set_node_name(name);
  hello.set_incarnation(incarnation);
  hello.set_metrics_address(":9100");
  for (uint32_t i = 0; i < 2; ++i) {
    v1::Slot& slot = *hello.add_slots();
    slot.set_index(i);
    slot.set_kind("cpu");
  }
  return hello;
}

void RawWorker::SendHello(const v1::Hello& hello) {
  v1::WorkerMessage message;
  *message.mutable_hello() = hello;
  Send(message);
}

void RawWorker::Report(const v1::Launch& launch, v1::RankPhase phase, int exit_code) {
  v1::WorkerMessage message;
  v1::GenerationReport& report = *message.mutable_report();
  report.set_job_id(launch.job_id());
  report.set_generation(launch.generation());
  for (const v1::RankPlacement& placement : launch.ranks()) {
    v1::RankReport& rank = *report.add_ranks();
    rank.set_rank(placement.rank());
    rank.set_phase(phase);
    rank.set_pid(1000 + placement.rank());
    if (phase == v1::JOINED) rank.mutable_join();
    if (phase == v1::EXITED) rank.mutable_exit()->set_exit_code(exit_code);
  }
  Send(message);
}

v1::CoordinatorMessage RawWorker::Next(v1::CoordinatorMessage::KindCase kind) {
  v1::CoordinatorMessage message;
  while (stream_->Read(&message)) {
    if (message.kind_case() == kind) return message;
  }
  const grpc::Status status = Finish();
  ADD_FAILURE() << "the session ended with (" << status.error_code() << ": "
                << status.error_message() << ") before message " << kind;
  return {};
}

grpc::Status RawWorker::Finish() {
  if (finished_) return grpc::Status::OK;
  finished_ = true;
  v1::CoordinatorMessage message;
  while (stream_->Read(&message)) {
  }
  return stream_->Finish();
}

void CoordinatorFixture::StartCoordinator() {
  CoordinatorOptions options;
  options.listen = "127.0.0.1:0";
  options.http = "127.0.0.1:0";
  options.access.require_token = false;
  auto coordinator = Coordinator::Start(options, store_);
  ASSERT_TRUE(coordinator.ok()) << coordinator.status();
  coordinator_ = *std::move(coordinator);
  channel_ = grpc::CreateChannel(coordinator_->grpc_address().ToString(),
                                 grpc::InsecureChannelCredentials());
  cluster_ = v1::ClusterService::NewStub(channel_);
}

v1::SubmitJobRequest CoordinatorFixture::SubmitRequest(const std::string& name) {
  v1::SubmitJobRequest request;
  request.set_protocol_version(kProtocolVersion);
  request.mutable_spec()->set_name(name);
  request.mutable_spec()->add_command("true");
  request.mutable_spec()->mutable_restart()->set_max(3);
  request.mutable_spec()->mutable_resources()->set_ranks_per_node(2);
  return request;
}

std::string CoordinatorFixture::Submit(const std::string& name) {
  v1::SubmitJobResponse response;
  const grpc::Status status =
      Call(*cluster_, &v1::ClusterService::Stub::SubmitJob, SubmitRequest(name), &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response.job().job_id();
}

v1::Job CoordinatorFixture::Get(const std::string& job) {
  v1::GetJobRequest request;
  request.set_job_id(job);
  v1::Job response;
  const grpc::Status status =
      Call(*cluster_, &v1::ClusterService::Stub::GetJob, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response;
}

std::unique_ptr<RawWorker> CoordinatorFixture::Connect(const std::string& name) {
  auto worker = std::make_unique<RawWorker>(channel_);
  worker->SendHello(RawWorker::HelloOf(name));
  worker->Next(v1::CoordinatorMessage::kWelcome);
  return worker;
}

void CoordinatorFixture::AwaitCondition(const std::function<bool()>& condition) {
  const auto deadline = TestDeadline();
  while (!condition()) {
    ASSERT_LT(std::chrono::system_clock::now(), deadline) << "timed out waiting for the condition";
    v1::GetVersionResponse response;
    ASSERT_TRUE(
        Call(*cluster_, &v1::ClusterService::Stub::GetVersion, v1::GetVersionRequest(), &response)
            .ok());
  }
}

v1::Job CoordinatorFixture::AwaitState(const std::string& job, v1::JobState state) {
  grpc::ClientContext context;
  context.set_deadline(TestDeadline());
  v1::WatchJobRequest request;
  request.set_job_id(job);
  const auto stream = cluster_->WatchJob(&context, request);
  v1::Job seen;
  while (stream->Read(&seen)) {
    if (seen.state() != state) continue;
    context.TryCancel();
    stream->Finish();
    return seen;
  }
  const grpc::Status status = stream->Finish();
  ADD_FAILURE() << job << " is " << v1::JobState_Name(seen.state()) << ", never "
                << v1::JobState_Name(state) << ": " << status.error_message();
  return seen;
}

}  // namespace muster::service
