// Replays the worker's side of a session of the previous protocol version to a coordinator of this
// build, which must answer as the recorded coordinator did.
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_replace.h"
#include "coordinator/service/coordinator_fixture.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "tests/compatibility/replay.h"

namespace muster::compatibility {
namespace {

using ::google::protobuf::util::MessageDifferencer;
using ::testing::IsEmpty;

// The stream of a recorded worker, with its call's metadata.
class RecordedWorker {
 public:
  RecordedWorker(const std::shared_ptr<grpc::Channel>& channel,
                 const std::map<std::string, std::string>& metadata)
      : stub_(v1::WorkerService::NewStub(channel)) {
    for (const auto& [key, value] : metadata) context_.AddMetadata(key, value);
    context_.set_deadline(service::TestDeadline());
    stream_ = stub_->Session(&context_);
  }
  ~RecordedWorker() {
    context_.TryCancel();
    Finish();
  }

  void Send(const v1::WorkerMessage& message) { stream_->Write(message); }
  // Returns the next message that does not depend on time; nothing at the end of the stream.
  std::optional<v1::CoordinatorMessage> Next() {
    v1::CoordinatorMessage message;
    while (stream_->Read(&message)) {
      if (!message.has_heartbeat_ack() && !message.has_wait_notice()) return message;
    }
    return std::nullopt;
  }
  grpc::Status Finish() {
    if (!status_.has_value()) {
      while (Next().has_value()) {
      }
      status_ = stream_->Finish();
    }
    return *status_;
  }

 private:
  std::unique_ptr<v1::WorkerService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::WorkerMessage, v1::CoordinatorMessage>> stream_;
  std::optional<grpc::Status> status_;
};

class ReplayToCoordinator : public service::CoordinatorFixture {
 protected:
  void Send(const Entry& entry) {
    if (entry.worker->has_hello()) {
      // The recorded coordinator was restarted, too.
      if (worker_ != nullptr) {
        StopCoordinator();
        StartCoordinator();
      }
      worker_ = std::make_unique<RecordedWorker>(channel_, entry.metadata);
    }
    worker_->Send(Rename(*entry.worker, ids_));
  }

  void Expect(const v1::CoordinatorMessage& recorded) {
    if (recorded.has_launch()) ASSERT_NO_FATAL_FAILURE(Submit(recorded.launch()));
    if (recorded.has_stop()) ASSERT_NO_FATAL_FAILURE(Cancel(recorded.stop().job_id()));
    std::optional<v1::CoordinatorMessage> sent = worker_->Next();
    if (!sent.has_value()) {
      const grpc::Status status = worker_->Finish();
      FAIL() << "the session ended with " << status.error_code() << ": " << status.error_message();
    }
    if (recorded.has_welcome()) {
      ASSERT_TRUE(sent->has_welcome()) << sent->ShortDebugString();
      EXPECT_EQ(sent->welcome().protocol_version(), kPreviousVersion);
      EXPECT_THAT(sent->welcome().conflict(), IsEmpty());
      return;
    }
    // The present coordinator may set more fields.
    MessageDifferencer differencer;
    differencer.set_scope(MessageDifferencer::PARTIAL);
    std::string differences;
    differencer.ReportDifferencesToString(&differences);
    // They name the user.
    differencer.IgnoreField(v1::Launch::descriptor()->FindFieldByName("owner"));
    differencer.IgnoreField(v1::StopGeneration::descriptor()->FindFieldByName("message"));
    ASSERT_TRUE(differencer.Compare(recorded, Rename(*sent, recorded_ids_))) << differences;
  }

  std::map<std::string, v1::Job> FinishedJobs() {
    std::map<std::string, v1::Job> jobs;
    for (const auto& [recorded, id] : ids_) {
      const v1::Job job = Get(id);
      jobs[job.spec().name()] = job;
    }
    return jobs;
  }

 private:
  using Ids = std::map<std::string, std::string>;

  // Ids of jobs of the same name have the same length, so the encoding stays valid.
  template <typename Message>
  static Message Rename(const Message& message, const Ids& ids) {
    Message renamed;
    EXPECT_TRUE(renamed.ParseFromString(absl::StrReplaceAll(message.SerializeAsString(), ids)));
    return renamed;
  }

  void Submit(const v1::Launch& launch) {
    v1::SubmitJobRequest request;
    request.set_protocol_version(kPreviousVersion);
    *request.mutable_spec() = launch.spec();
    v1::SubmitJobResponse response;
    const grpc::Status status =
        service::Call(*cluster_, &v1::ClusterService::Stub::SubmitJob, request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    const std::string& id = response.job().job_id();
    ASSERT_EQ(id.size(), launch.job_id().size());
    ids_[launch.job_id()] = id;
    recorded_ids_[id] = launch.job_id();
  }

  void Cancel(const std::string& recorded) {
    v1::CancelJobRequest request;
    request.set_job_id(ids_[recorded]);
    v1::Job job;
    const grpc::Status status =
        service::Call(*cluster_, &v1::ClusterService::Stub::CancelJob, request, &job);
    ASSERT_TRUE(status.ok()) << status.error_message();
  }

  std::unique_ptr<RecordedWorker> worker_;
  Ids ids_;           // of this coordinator, by recorded id
  Ids recorded_ids_;  // by id of this coordinator
};

TEST_F(ReplayToCoordinator, ServesWorkerOfPreviousVersion) {
  for (const Entry& entry : PreviousTranscript()) {
    SCOPED_TRACE(absl::StrCat(TranscriptPath(), ":", entry.line));
    if (entry.worker.has_value()) {
      Send(entry);
    } else {
      ASSERT_NO_FATAL_FAILURE(Expect(*entry.coordinator));
    }
  }
  std::map<std::string, v1::Job> jobs = FinishedJobs();
  ASSERT_EQ(jobs.size(), 4u);
  for (const auto& [name, job] : jobs) {
    EXPECT_EQ(job.generation(), 1u) << name;
    EXPECT_THAT(job.warnings(), IsEmpty()) << name;
  }
  EXPECT_EQ(jobs["command"].state(), v1::SUCCEEDED);
  EXPECT_EQ(jobs["command"].progress().step(), 20u);
  EXPECT_EQ(jobs["training"].state(), v1::SUCCEEDED);
  EXPECT_EQ(jobs["training"].summary().steps(), 10u);
  EXPECT_EQ(jobs["training"].summary().losses_size(), 10);
  EXPECT_EQ(jobs["training"].checkpoint().step(), 10u);
  EXPECT_EQ(jobs["failing"].state(), v1::FAILED);
  EXPECT_EQ(jobs["failing"].exit_code(), 3);
  EXPECT_EQ(jobs["failing"].first_failure().reason(), "RankFailed");
  EXPECT_EQ(jobs["cancelled"].state(), v1::CANCELLED);
  EXPECT_GE(jobs["cancelled"].progress().step(), 6u);
}

}  // namespace
}  // namespace muster::compatibility
