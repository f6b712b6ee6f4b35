// Relays execs and copies of files between a client's stream and a worker's stream, over real gRPC.
#include "coordinator/service/relay/transfers.h"

#include <memory>
#include <string>
#include <vector>

#include "common/limits.h"
#include "coordinator/service/coordinator_fixture.h"
#include "gmock/gmock.h"

namespace muster::service {
namespace {

using ::testing::HasSubstr;

v1::ExecInput Start(const std::string& job, uint32_t rank = 0) {
  v1::ExecInput input;
  input.mutable_start()->set_job_id(job);
  input.mutable_start()->set_rank(rank);
  input.mutable_start()->add_command("ps");
  return input;
}

v1::ExecInput Stdin(const std::string& data) {
  v1::ExecInput input;
  input.set_stdin_data(data);
  return input;
}

// The client's end of an exec.
class ExecClient {
 public:
  ExecClient(v1::ClusterService::Stub& stub, const v1::ExecInput& first) {
    context_.set_deadline(TestDeadline());
    stream_ = stub.Exec(&context_);
    stream_->Write(first);
  }
  bool Send(const v1::ExecInput& input) { return stream_->Write(input); }
  void HalfClose() { stream_->WritesDone(); }
  v1::ExecOutput Next() {
    v1::ExecOutput output;
    EXPECT_TRUE(stream_->Read(&output));
    return output;
  }
  grpc::Status Finish() {
    v1::ExecOutput output;
    EXPECT_FALSE(stream_->Read(&output)) << "there is more: " << output.ShortDebugString();
    return stream_->Finish();
  }
  void Cancel() { context_.TryCancel(); }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::ExecInput, v1::ExecOutput>> stream_;
};

// The worker's end of an exec.
class ExecWorker {
 public:
  ExecWorker(RawWorker& worker, uint64_t transfer) {
    context_.set_deadline(TestDeadline());
    stream_ = worker.stub().ServeExec(&context_);
    v1::ServeExecRequest request;
    request.set_transfer(transfer);
    stream_->Write(request);
  }
  bool SendOut(const std::string& data) {
    v1::ServeExecRequest request;
    request.mutable_output()->set_stdout_data(data);
    return stream_->Write(request);
  }
  grpc::Status Exit(int code) {
    v1::ServeExecRequest request;
    request.mutable_output()->set_exit_code(code);
    stream_->Write(request);
    stream_->WritesDone();
    return stream_->Finish();
  }
  v1::ExecInput Next() {
    v1::ExecInput input;
    EXPECT_TRUE(stream_->Read(&input));
    return input;
  }
  // Waits for the coordinator to end the stream.
  grpc::Status Wait() {
    v1::ExecInput input;
    while (stream_->Read(&input)) {
    }
    return stream_->Finish();
  }
  void Cancel() { context_.TryCancel(); }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::ServeExecRequest, v1::ExecInput>> stream_;
};

class TransfersTest : public CoordinatorFixture {
 protected:
  // Starts a worker and a job, and waits until the job is RUNNING.
  void StartJob() {
    worker_ = Connect("node-1");
    job_ = Submit("hello");
    launch_ = worker_->Next(v1::CoordinatorMessage::kLaunch).launch();
    worker_->Report(launch_, v1::STARTED);
    AwaitState(job_, v1::RUNNING);
  }
  v1::OpenExec NextOpenExec() {
    return worker_->Next(v1::CoordinatorMessage::kOpenExec).open_exec();
  }
  void AwaitNoTransfers() {
    AwaitCondition([this] { return coordinator_->transfer_count() == 0; });
  }
  void Refuse(uint64_t transfer, absl::StatusCode code, const std::string& message) {
    v1::WorkerMessage refusal;
    refusal.mutable_transfer_unavailable()->set_transfer(transfer);
    refusal.mutable_transfer_unavailable()->set_code(static_cast<int>(code));
    refusal.mutable_transfer_unavailable()->set_message(message);
    worker_->Send(refusal);
  }
  std::unique_ptr<grpc::ClientReader<v1::ArchiveChunk>> ReadFiles(grpc::ClientContext& context,
                                                                  const std::string& path) {
    context.set_deadline(TestDeadline());
    v1::ReadFilesRequest request;
    request.set_job_id("hello");
    request.set_rank(1);
    request.set_path(path);
    return cluster_->ReadFiles(&context, request);
  }

  std::unique_ptr<RawWorker> worker_;
  std::string job_;
  v1::Launch launch_;
};

TEST_F(TransfersTest, ExecRelaysInputOutputAndExitCode) {
  StartJob();
  ExecClient client(*cluster_, Start("hello", 1));
  const v1::OpenExec open = NextOpenExec();
  EXPECT_EQ(open.job_id(), job_);
  EXPECT_EQ(open.generation(), 1u);
  EXPECT_EQ(open.start().rank(), 1u);
  EXPECT_EQ(open.start().command(0), "ps");
  ExecWorker worker(*worker_, open.transfer());
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(client.Send(Stdin("in")));
  for (int i = 0; i < 100; ++i) EXPECT_EQ(worker.Next().stdin_data(), "in");
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(worker.SendOut("out"));
  EXPECT_TRUE(worker.Exit(7).ok());
  for (int i = 0; i < 100; ++i) EXPECT_EQ(client.Next().stdout_data(), "out");
  EXPECT_EQ(client.Next().exit_code(), 7);
  EXPECT_TRUE(client.Finish().ok());
  AwaitNoTransfers();
}

TEST_F(TransfersTest, HalfCloseOfTheClientEndsStdinOnce) {
  StartJob();
  ExecClient client(*cluster_, Start("hello"));
  ExecWorker worker(*worker_, NextOpenExec().transfer());
  client.HalfClose();
  EXPECT_TRUE(worker.Next().stdin_end());
  EXPECT_TRUE(worker.Exit(0).ok());
  EXPECT_EQ(client.Next().exit_code(), 0);
  EXPECT_TRUE(client.Finish().ok());
}

TEST_F(TransfersTest, WorkerIsStoppedWhenTheClientDisconnects) {
  StartJob();
  ExecClient client(*cluster_, Start("hello"));
  const uint64_t transfer = NextOpenExec().transfer();
  ExecWorker worker(*worker_, transfer);
  ASSERT_TRUE(worker.SendOut("x"));
  client.Next();
  client.Cancel();
  EXPECT_EQ(worker_->Next(v1::CoordinatorMessage::kCloseTransfer).close_transfer().transfer(),
            transfer);
  EXPECT_EQ(worker.Wait().error_code(), grpc::StatusCode::CANCELLED);
  AwaitNoTransfers();
}

TEST_F(TransfersTest, LateStreamOfTheWorkerIsRefused) {
  StartJob();
  ExecClient client(*cluster_, Start("hello"));
  const uint64_t transfer = NextOpenExec().transfer();
  client.Cancel();
  worker_->Next(v1::CoordinatorMessage::kCloseTransfer);
  EXPECT_EQ(ExecWorker(*worker_, transfer).Wait().error_code(), grpc::StatusCode::CANCELLED);
  // An id of another kind of transfer is as unknown as any other.
  EXPECT_EQ(ExecWorker(*worker_, 1).Wait().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(TransfersTest, ClientReceivesErrorWhenWorkerDisconnects) {
  StartJob();
  ExecClient client(*cluster_, Start("hello"));
  ExecWorker worker(*worker_, NextOpenExec().transfer());
  worker.SendOut("x");
  EXPECT_EQ(client.Next().stdout_data(), "x");  // the coordinator knows the worker's stream
  worker.Cancel();
  const grpc::Status broken = client.Finish();
  EXPECT_EQ(broken.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(broken.error_message(), HasSubstr("node node-1"));

  ExecClient second(*cluster_, Start("hello"));
  NextOpenExec();
  worker_->Cancel();
  const grpc::Status gone = second.Finish();
  EXPECT_EQ(gone.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(gone.error_message(), "node node-1 disconnected");
}

TEST_F(TransfersTest, WorkerCanRefuseItsOwnTransfersOnly) {
  StartJob();
  const auto other = Connect("node-2");
  ExecClient client(*cluster_, Start("hello"));
  const uint64_t transfer = NextOpenExec().transfer();
  v1::WorkerMessage foreign;
  foreign.mutable_transfer_unavailable()->set_transfer(transfer);
  foreign.mutable_transfer_unavailable()->set_code(5);
  other->Send(foreign);
  Refuse(transfer, absl::StatusCode::kFailedPrecondition, "it has not started");
  const grpc::Status status = client.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(status.error_message(), "it has not started");
}

TEST_F(TransfersTest, ExecNeedsALiveRank) {
  const std::string queued = Submit("queued");
  const grpc::Status waiting = ExecClient(*cluster_, Start("queued")).Finish();
  EXPECT_EQ(waiting.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(waiting.error_message(),
            "job " + queued + " is QUEUED; a command needs a running rank");
  v1::CancelJobRequest cancel;
  cancel.set_job_id(queued);
  v1::Job job;
  ASSERT_TRUE(Call(*cluster_, &v1::ClusterService::Stub::CancelJob, cancel, &job).ok());

  StartJob();
  EXPECT_EQ(ExecClient(*cluster_, Start("hello", 2)).Finish().error_code(),
            grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_EQ(ExecClient(*cluster_, Start("nobody")).Finish().error_code(),
            grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(ExecClient(*cluster_, Stdin("early")).Finish().error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(TransfersTest, InvalidMessagesEndTheStream) {
  StartJob();
  ExecClient client(*cluster_, Start("hello"));
  ExecWorker worker(*worker_, NextOpenExec().transfer());
  client.Send(Start("hello"));
  EXPECT_EQ(client.Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(worker.Wait().error_code(), grpc::StatusCode::CANCELLED);

  ExecClient second(*cluster_, Start("hello"));
  ExecWorker loud(*worker_, NextOpenExec().transfer());
  loud.SendOut(std::string(limits::kLogChunkBytes + 1, 'x'));
  EXPECT_EQ(second.Finish().error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(loud.Wait().error_code(), grpc::StatusCode::INTERNAL);
}

TEST_F(TransfersTest, CopyDeliversTheArchive) {
  StartJob();
  grpc::ClientContext context;
  const auto reader = ReadFiles(context, "out/model.pt");
  const v1::OpenFiles open = worker_->Next(v1::CoordinatorMessage::kOpenFiles).open_files();
  EXPECT_EQ(open.request().job_id(), job_);
  EXPECT_EQ(open.request().generation(), 1u);
  EXPECT_EQ(open.request().rank(), 1u);
  EXPECT_EQ(open.request().path(), "out/model.pt");
  grpc::ClientContext sending;
  sending.set_deadline(TestDeadline());
  v1::SendFilesResponse response;
  const auto writer = worker_->stub().SendFiles(&sending, &response);
  v1::SendFilesRequest request;
  request.set_transfer(open.transfer());
  for (int i = 0; i < 100; ++i) {
    request.mutable_chunk()->set_data("block");
    ASSERT_TRUE(writer->Write(request));
    request.clear_transfer();
  }
  writer->WritesDone();
  EXPECT_TRUE(writer->Finish().ok());
  v1::ArchiveChunk chunk;
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(reader->Read(&chunk));
    EXPECT_EQ(chunk.data(), "block");
  }
  EXPECT_FALSE(reader->Read(&chunk));
  EXPECT_TRUE(reader->Finish().ok());
  AwaitNoTransfers();
}

TEST_F(TransfersTest, CopyEndsWithTheWorkersError) {
  StartJob();
  grpc::ClientContext context;
  const auto reader = ReadFiles(context, "missing");
  const uint64_t transfer =
      worker_->Next(v1::CoordinatorMessage::kOpenFiles).open_files().transfer();
  Refuse(transfer, absl::StatusCode::kNotFound, "node node-1: missing");
  v1::ArchiveChunk chunk;
  EXPECT_FALSE(reader->Read(&chunk));
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(status.error_message(), "node node-1: missing");
}

TEST_F(TransfersTest, LimitsExecsAndCopiesPerCaller) {
  StartJob();
  std::vector<std::unique_ptr<ExecClient>> execs;
  for (size_t i = 0; i < limits::kTransfersPerCaller; ++i) {
    execs.push_back(std::make_unique<ExecClient>(*cluster_, Start("hello")));
    NextOpenExec();
  }
  const grpc::Status refused = ExecClient(*cluster_, Start("hello")).Finish();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(), HasSubstr("has 64 open execs, the limit for one caller"));
  // Copies are counted apart.
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::ArchiveChunk>>> copies;
  for (size_t i = 0; i <= limits::kTransfersPerCaller; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    copies.push_back(ReadFiles(*contexts.back(), "out"));
    if (i < limits::kTransfersPerCaller) worker_->Next(v1::CoordinatorMessage::kOpenFiles);
  }
  EXPECT_THAT(copies.back()->Finish().error_message(), HasSubstr("64 open copies of files"));
  for (const auto& exec : execs) exec->Cancel();
  for (const auto& context : contexts) context->TryCancel();
  AwaitNoTransfers();
}

TEST_F(TransfersTest, ShutdownEndsTransfers) {
  StartJob();
  ExecClient client(*cluster_, Start("hello"));
  ExecWorker worker(*worker_, NextOpenExec().transfer());
  ASSERT_TRUE(worker.SendOut("x"));
  client.Next();
  StopCoordinator();
  EXPECT_EQ(client.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace muster::service
