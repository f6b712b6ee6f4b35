// Relays logs from a worker's stream to a client's stream, over real gRPC.
#include <memory>
#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "coordinator/service/coordinator_fixture.h"
#include "gmock/gmock.h"

namespace muster::service {
namespace {

using ::testing::HasSubstr;

// The client side: a ReadLog stream.
class LogReading {
 public:
  LogReading(v1::ClusterService::Stub& stub, const std::string& job, bool follow,
             uint64_t offset = 0, bool accept_tail = false) {
    context_.set_deadline(TestDeadline());
    v1::ReadLogRequest request;
    request.set_job_id(job);
    request.set_stream(v1::STDOUT);
    request.set_rank(1);
    request.set_follow(follow);
    request.set_offset(offset);
    request.set_accept_tail(accept_tail);
    stream_ = stub.ReadLog(&context_, request);
  }
  v1::LogChunk Next() {
    v1::LogChunk chunk;
    EXPECT_TRUE(stream_->Read(&chunk));
    return chunk;
  }
  grpc::Status Finish() {
    v1::LogChunk chunk;
    EXPECT_FALSE(stream_->Read(&chunk)) << "there is more: " << chunk.data();
    return stream_->Finish();
  }
  void Cancel() { context_.TryCancel(); }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::LogChunk>> stream_;
};

// The worker side: a SendLog stream.
class LogSending {
 public:
  LogSending(RawWorker& worker, uint64_t transfer) : transfer_(transfer) {
    context_.set_deadline(TestDeadline());
    stream_ = worker.stub().SendLog(&context_, &response_);
  }
  bool Send(uint64_t offset, const std::string& data, bool end = false, int lines = 1) {
    v1::SendLogRequest request;
    if (first_) request.set_transfer(transfer_);
    first_ = false;
    request.mutable_chunk()->set_offset(offset);
    request.mutable_chunk()->set_data(data);
    request.mutable_chunk()->set_end(end);
    for (int i = 0; i < lines; ++i) request.mutable_chunk()->add_lines()->set_offset(offset + i);
    return stream_->Write(request);
  }
  grpc::Status Finish() {
    stream_->WritesDone();
    return stream_->Finish();
  }
  // Waits for the coordinator to end the stream.
  grpc::Status Wait() { return stream_->Finish(); }
  void Cancel() { context_.TryCancel(); }

 private:
  const uint64_t transfer_;
  bool first_ = true;
  grpc::ClientContext context_;
  v1::SendLogResponse response_;
  std::unique_ptr<grpc::ClientWriter<v1::SendLogRequest>> stream_;
};

class ReadLogTest : public CoordinatorFixture {
 protected:
  // Starts a worker and a job, and waits until the job is RUNNING.
  void StartJob() {
    worker_ = Connect("node-1");
    job_ = Submit("hello");
    launch_ = worker_->Next(v1::CoordinatorMessage::kLaunch).launch();
    worker_->Report(launch_, v1::STARTED);
    AwaitState(job_, v1::RUNNING);
  }
  void RefuseLog(uint64_t transfer, grpc::StatusCode code, const std::string& text) {
    v1::WorkerMessage message;
    v1::LogUnavailable& refusal = *message.mutable_log_unavailable();
    refusal.set_transfer(transfer);
    refusal.set_code(static_cast<int>(code));
    refusal.set_message(text);
    worker_->Send(message);
  }
  v1::OpenLog NextOpenLog() { return worker_->Next(v1::CoordinatorMessage::kOpenLog).open_log(); }
  void EndJob() {
    worker_->Report(launch_, v1::EXITED);
    AwaitState(job_, v1::SUCCEEDED);
  }
  void AwaitNoTransfers() {
    AwaitCondition([this] { return coordinator_->log_transfer_count() == 0; });
  }

  std::unique_ptr<RawWorker> worker_;
  std::string job_;
  v1::Launch launch_;
};

TEST_F(ReadLogTest, DeliversBytesInOrder) {
  StartJob();
  LogReading reading(*cluster_, "hello", /*follow=*/false, /*offset=*/3);
  const v1::OpenLog open = NextOpenLog();
  EXPECT_EQ(open.request().job_id(), job_);
  EXPECT_EQ(open.request().generation(), 1);
  EXPECT_EQ(open.request().rank(), 1);
  EXPECT_EQ(open.request().offset(), 3);
  LogSending sending(*worker_, open.transfer());
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(sending.Send(3 + 5 * i, "line\n"));
  EXPECT_TRUE(sending.Finish().ok());
  for (int i = 0; i < 100; ++i) {
    const v1::LogChunk chunk = reading.Next();
    EXPECT_EQ(chunk.offset(), 3 + 5 * i);
    EXPECT_EQ(chunk.data(), "line\n");
    EXPECT_EQ(chunk.generation(), 1);
    ASSERT_EQ(chunk.lines_size(), 1);
    EXPECT_EQ(chunk.lines(0).offset(), chunk.offset());
  }
  EXPECT_TRUE(reading.Finish().ok());
  EXPECT_EQ(coordinator_->log_transfer_count(), 0);
}

TEST_F(ReadLogTest, FollowEndsWithJob) {
  StartJob();
  LogReading reading(*cluster_, job_, /*follow=*/true);
  LogSending sending(*worker_, NextOpenLog().transfer());
  ASSERT_TRUE(sending.Send(0, "one\n"));
  EXPECT_EQ(reading.Next().data(), "one\n");
  EndJob();
  ASSERT_TRUE(sending.Send(4, "two\n", /*end=*/true));
  EXPECT_TRUE(sending.Finish().ok());
  EXPECT_TRUE(reading.Next().end());
  EXPECT_TRUE(reading.Finish().ok());
}

TEST_F(ReadLogTest, FollowOfQueuedJobWaitsForStart) {
  const std::string id = Submit("hello");
  LogReading refused(*cluster_, id, /*follow=*/false);
  const grpc::Status status = refused.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("has not started"));

  LogReading reading(*cluster_, id, /*follow=*/true);
  AwaitCondition([this] { return coordinator_->watcher_count() == 1; });
  worker_ = Connect("node-1");
  LogSending sending(*worker_, NextOpenLog().transfer());
  ASSERT_TRUE(sending.Send(0, "one\n"));
  EXPECT_EQ(reading.Next().data(), "one\n");
  EXPECT_EQ(coordinator_->watcher_count(), 0);
}

TEST_F(ReadLogTest, FollowOfJobThatNeverStartsEndsWithJob) {
  const std::string id = Submit("hello");
  LogReading reading(*cluster_, id, /*follow=*/true);
  v1::CancelJobRequest cancel;
  cancel.set_job_id(id);
  v1::Job job;
  ASSERT_TRUE(Call(*cluster_, &v1::ClusterService::Stub::CancelJob, cancel, &job).ok());
  EXPECT_TRUE(reading.Finish().ok());
}

TEST_F(ReadLogTest, FollowContinuesWithNextGeneration) {
  StartJob();
  LogReading reading(*cluster_, job_, /*follow=*/true, /*offset=*/2);
  const v1::OpenLog first = NextOpenLog();
  worker_->Report(launch_, v1::EXITED, /*exit_code=*/1);
  LogSending sending(*worker_, first.transfer());
  ASSERT_TRUE(sending.Send(2, "one\n", /*end=*/true));
  EXPECT_TRUE(sending.Finish().ok());
  EXPECT_EQ(reading.Next().generation(), 1);
  const v1::OpenLog second = NextOpenLog();
  EXPECT_EQ(second.request().generation(), 2);
  EXPECT_EQ(second.request().offset(), 0);
  LogSending again(*worker_, second.transfer());
  ASSERT_TRUE(again.Send(0, "two\n"));
  EXPECT_EQ(reading.Next().generation(), 2);
}

TEST_F(ReadLogTest, CancelledReadStopsWorkerStream) {
  StartJob();
  LogReading reading(*cluster_, job_, /*follow=*/true);
  const v1::OpenLog open = NextOpenLog();
  LogSending sending(*worker_, open.transfer());
  ASSERT_TRUE(sending.Send(0, "one\n"));
  EXPECT_EQ(reading.Next().data(), "one\n");
  reading.Cancel();
  EXPECT_EQ(worker_->Next(v1::CoordinatorMessage::kCloseLog).close_log().transfer(),
            open.transfer());
  EXPECT_EQ(sending.Wait().error_code(), grpc::StatusCode::CANCELLED);
  AwaitNoTransfers();
}

TEST_F(ReadLogTest, SlowReaderHoldsBackWorker) {
  StartJob();
  LogReading reading(*cluster_, job_, /*follow=*/true);
  LogSending sending(*worker_, NextOpenLog().transfer());
  // More than the flow-control windows of both streams hold: the writes can only finish if the
  // client reads.
  constexpr int kChunks = 1000;
  const std::string data(64 << 10, 'x');
  absl::Notification written;
  std::thread writer([&] {
    for (uint64_t i = 0; i < kChunks; ++i) EXPECT_TRUE(sending.Send(i * data.size(), data));
    written.Notify();
    EXPECT_TRUE(sending.Finish().ok());
  });
  EXPECT_FALSE(written.WaitForNotificationWithTimeout(absl::Milliseconds(300)));
  // Other calls are not affected.
  EXPECT_EQ(Get(job_).state(), v1::RUNNING);
  for (uint64_t i = 0; i < kChunks; ++i) ASSERT_EQ(reading.Next().offset(), i * data.size());
  writer.join();
}

TEST_F(ReadLogTest, ReturnsUnavailableForLostWorker) {
  StartJob();
  LogReading broken(*cluster_, job_, /*follow=*/true);
  LogSending sending(*worker_, NextOpenLog().transfer());
  ASSERT_TRUE(sending.Send(0, "one\n"));
  EXPECT_EQ(broken.Next().data(), "one\n");
  sending.Cancel();
  EXPECT_EQ(broken.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);

  LogReading unopened(*cluster_, job_, /*follow=*/true);
  NextOpenLog();
  worker_->Cancel();
  EXPECT_EQ(unopened.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  AwaitNoTransfers();
}

TEST_F(ReadLogTest, ReturnsErrorOfWorker) {
  StartJob();
  LogReading reading(*cluster_, job_, /*follow=*/false);
  RefuseLog(NextOpenLog().transfer(), grpc::StatusCode::NOT_FOUND, "no such log");
  const grpc::Status status = reading.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(status.error_message(), "no such log");
}

TEST_F(ReadLogTest, SendsTheKeptEndOfALostLogIfAccepted) {
  StartJob();
  const auto read = [&](bool accept_tail, bool follow = false) {
    return LogReading(*cluster_, job_, follow, /*offset=*/0, accept_tail);
  };
  // Without an end of this log, the node's error is passed on.
  LogReading before = read(/*accept_tail=*/true);
  RefuseLog(NextOpenLog().transfer(), grpc::StatusCode::NOT_FOUND, "no such log");
  EXPECT_EQ(before.Finish().error_message(), "no such log");

  v1::WorkerMessage message;
  v1::LogTail& tail = *message.mutable_log_tail();
  tail.set_job_id(job_);
  tail.set_generation(1);
  tail.set_rank(1);
  tail.mutable_stdout_end()->set_offset(900);
  tail.mutable_stdout_end()->set_data("the end\n");
  worker_->Send(message);
  LogReading refused = read(/*accept_tail=*/false);
  RefuseLog(NextOpenLog().transfer(), grpc::StatusCode::NOT_FOUND, "no such log");
  EXPECT_EQ(refused.Finish().error_code(), grpc::StatusCode::NOT_FOUND);
  LogReading deleted = read(/*accept_tail=*/true);
  RefuseLog(NextOpenLog().transfer(), grpc::StatusCode::NOT_FOUND, "no such log");
  v1::LogChunk chunk = deleted.Next();
  EXPECT_EQ(chunk.offset(), 900u);
  EXPECT_EQ(chunk.data(), "the end\n");
  EXPECT_EQ(chunk.generation(), 1u);
  EXPECT_TRUE(chunk.end());
  EXPECT_THAT(chunk.notice(), HasSubstr("node node-1 no longer has the log"));
  EXPECT_TRUE(deleted.Finish().ok());

  worker_->Cancel();
  EXPECT_EQ(read(/*accept_tail=*/false).Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  LogReading gone = read(/*accept_tail=*/true);
  chunk = gone.Next();
  EXPECT_EQ(chunk.data(), "the end\n");
  EXPECT_THAT(chunk.notice(), HasSubstr("node node-1 is not connected"));
  EXPECT_TRUE(gone.Finish().ok());
  AwaitNoTransfers();
}

TEST_F(ReadLogTest, RejectsUnrequestedStreams) {
  StartJob();
  LogSending unknown(*worker_, 4711);
  unknown.Send(0, "one\n");
  EXPECT_EQ(unknown.Wait().error_code(), grpc::StatusCode::CANCELLED);

  LogReading reading(*cluster_, job_, /*follow=*/false);
  const uint64_t transfer = NextOpenLog().transfer();
  LogSending large(*worker_, transfer);
  large.Send(0, std::string((64 << 10) + 1, 'x'));
  EXPECT_EQ(large.Wait().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(reading.Finish().error_code(), grpc::StatusCode::INTERNAL);
}

TEST_F(ReadLogTest, RejectsMoreLinesThanBytes) {
  StartJob();
  LogReading reading(*cluster_, job_, /*follow=*/false);
  LogSending sending(*worker_, NextOpenLog().transfer());
  sending.Send(0, "one\n", /*end=*/false, /*lines=*/5);
  EXPECT_EQ(sending.Wait().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(reading.Finish().error_code(), grpc::StatusCode::INTERNAL);
}

TEST_F(ReadLogTest, RejectsUnknownRanksAndStreams) {
  StartJob();
  v1::ReadLogRequest request;
  request.set_job_id(job_);
  const auto status_of = [&] {
    grpc::ClientContext context;
    context.set_deadline(TestDeadline());
    return cluster_->ReadLog(&context, request)->Finish();
  };
  EXPECT_EQ(status_of().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  request.set_stream(v1::STDERR);
  request.set_rank(17);
  EXPECT_EQ(status_of().error_code(), grpc::StatusCode::OUT_OF_RANGE);
  request.set_rank(0);
  request.set_generation(9);
  EXPECT_EQ(status_of().error_code(), grpc::StatusCode::NOT_FOUND);
}

}  // namespace
}  // namespace muster::service
