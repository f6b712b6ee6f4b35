// The limits of common/limits.h that a peer can reach over the network: values beyond them are
// refused with a message, and the coordinator keeps serving.
#include "common/limits.h"

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "common/version.h"
#include "coordinator/core/records.h"
#include "coordinator/service/coordinator_fixture.h"
#include "coordinator/service/loop/job_watchers.h"
#include "coordinator/service/loop/worker_sessions.h"
#include "coordinator/service/relay/log_relay.h"
#include "gmock/gmock.h"

namespace muster::service {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class LimitsTest : public CoordinatorFixture {
 protected:
  void TearDown() override {
    if (coordinator_ != nullptr) EXPECT_NE(Submit("still-there"), "");
  }
  grpc::Status SubmitOf(size_t command_bytes) {
    v1::SubmitJobRequest request = SubmitRequest("large");
    request.mutable_spec()->add_command(std::string(command_bytes, 'x'));
    v1::SubmitJobResponse response;
    return Call(*cluster_, &v1::ClusterService::Stub::SubmitJob, request, &response);
  }
  static std::string Beyond(size_t bound) { return std::string(bound + 1, 'x'); }
};

// -------------------------------------------------------------------------------------------------
// Client requests.

TEST_F(LimitsTest, LimitsSpecs) {
  // Before its first authenticated call, a client may not send much.
  ASSERT_TRUE(SubmitOf(1000).ok());
  EXPECT_TRUE(SubmitOf(limits::kSpecBytes - 1000).ok());
  grpc::Status status = SubmitOf(3 << 19);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(),
              MatchesRegex("spec is 15728[0-9][0-9] bytes long; the limit is 1048576"));
  // Refused before it is parsed.
  status = SubmitOf(10 << 20);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(),
              MatchesRegex(
                  "the request of SubmitJob has 10485[0-9][0-9][0-9] bytes; the limit is 2097152"));
  // gRPC itself refuses messages beyond its own limit.
  status = SubmitOf(20 << 20);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr(absl::StrCat(limits::kMessageBytes)));
}

// Many small values are short on the wire, but not in memory.
TEST_F(LimitsTest, LimitsMemoryOfSpecs) {
  ASSERT_TRUE(SubmitOf(1000).ok());
  const auto refusal = [&](const v1::SubmitJobRequest& request) {
    v1::SubmitJobResponse response;
    const grpc::Status status =
        Call(*cluster_, &v1::ClusterService::Stub::SubmitJob, request, &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    return status.error_message();
  };
  constexpr char kMessage[] =
      "the spec takes [0-9]+ bytes of memory; the limit is 8388608; use fewer values in command, "
      "env and other lists";
  v1::SubmitJobRequest arguments = SubmitRequest("many-arguments");
  for (int i = 0; i < 500'000; ++i) arguments.mutable_spec()->add_command("");
  ASSERT_LT(arguments.ByteSizeLong(), limits::kSpecBytes);
  EXPECT_THAT(refusal(arguments), MatchesRegex(kMessage));

  v1::SubmitJobRequest array = arguments;
  array.mutable_spec()->mutable_array()->set_count(2);
  EXPECT_THAT(refusal(array), MatchesRegex(kMessage));
  array.mutable_spec()->mutable_command()->DeleteSubrange(1, 450'000);
  v1::ArrayAxis& axis = *array.mutable_spec()->mutable_array()->add_matrix();
  array.mutable_spec()->mutable_array()->clear_count();
  axis.set_field("env.SEED");
  for (int i = 0; i < 10000; ++i) axis.add_values(absl::StrCat(i));
  EXPECT_THAT(refusal(array), HasSubstr("array: the specs of its 10000 tasks take "));
}

TEST_F(LimitsTest, LimitsNamesKeysAndReasons) {
  v1::SubmitJobRequest submit = SubmitRequest(std::string(limits::kNameLength + 1, 'a'));
  v1::SubmitJobResponse submitted;
  grpc::Status status = Call(*cluster_, &v1::ClusterService::Stub::SubmitJob, submit, &submitted);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr(absl::StrCat("1 to ", limits::kNameLength)));

  submit = SubmitRequest("hello");
  submit.set_idempotency_key(Beyond(limits::kIdempotencyKeyLength));
  status = Call(*cluster_, &v1::ClusterService::Stub::SubmitJob, submit, &submitted);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("the limit is 128"));

  v1::GetJobRequest get;
  get.set_job_id(Beyond(1000));
  v1::Job job;
  status = Call(*cluster_, &v1::ClusterService::Stub::GetJob, get, &job);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);

  v1::CordonNodeRequest cordon;
  cordon.set_name("node-1");
  cordon.set_reason(Beyond(limits::kCordonReasonBytes));
  v1::Node node;
  status = Call(*cluster_, &v1::ClusterService::Stub::CordonNode, cordon, &node);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("reason is 257 bytes long"));
}

TEST_F(LimitsTest, LimitsResources) {
  v1::SubmitJobResponse response;
  const auto refusal = [&](const std::function<void(v1::Resources&)>& change) {
    v1::SubmitJobRequest request = SubmitRequest("hello");
    change(*request.mutable_spec()->mutable_resources());
    const grpc::Status status =
        Call(*cluster_, &v1::ClusterService::Stub::SubmitJob, request, &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    return status.error_message();
  };
  EXPECT_THAT(refusal([](v1::Resources& resources) {
                resources.mutable_nodes()->set_min(1);
                resources.mutable_nodes()->set_max(limits::kNodes + 1);
              }),
              HasSubstr(absl::StrCat("from 1 to ", limits::kNodes)));
  EXPECT_THAT(refusal([](v1::Resources& resources) {
                resources.set_ranks_per_node(limits::kSlotsPerNode + 1);
              }),
              HasSubstr(absl::StrCat("from 1 to ", limits::kSlotsPerNode)));
  EXPECT_THAT(refusal([](v1::Resources& resources) {
                resources.mutable_nodes()->set_min(limits::kRanksPerJob / 1024 + 1);
                resources.mutable_nodes()->set_max(limits::kRanksPerJob / 1024 + 1);
                resources.set_ranks_per_node(1024);
              }),
              HasSubstr(absl::StrCat(limits::kRanksPerJob)));
}

TEST_F(LimitsTest, LimitsGracePeriods) {
  const std::string job = Submit("hello");
  const auto refusal = [&](int64_t seconds, int32_t nanos) {
    v1::CancelJobRequest request;
    request.set_job_id(job);
    request.mutable_grace_period()->set_seconds(seconds);
    request.mutable_grace_period()->set_nanos(nanos);
    v1::Job response;
    const grpc::Status status =
        Call(*cluster_, &v1::ClusterService::Stub::CancelJob, request, &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << seconds << " " << nanos;
    return status.error_message();
  };
  EXPECT_EQ(refusal(-1, 0), "grace_period is negative");
  EXPECT_EQ(refusal(0, -1), "grace_period is negative");
  EXPECT_THAT(refusal(int64_t{1} << 62, 0), HasSubstr("is not a valid time"));
  EXPECT_THAT(refusal(1, 2'000'000'000), HasSubstr("is not a valid time"));
}

class FullStoreTest : public LimitsTest {
 protected:
  void SetUp() override {}
  // Starts a coordinator on a store with `jobs` held jobs.
  void StartWith(size_t jobs) {
    std::vector<store::Mutation> writes = {core::PutSchema()};
    for (size_t i = 0; i < jobs; ++i) {
      v1::JobRecord record;
      record.set_job_id(absl::StrCat("job-", i));
      record.set_state(v1::STORED_HELD);
      record.set_queue_sequence(i + 1);
      writes.push_back(core::Put(record));
    }
    ASSERT_TRUE(store_.Commit(writes).ok());
    StartCoordinator();
  }
  int ListedWithLimit(uint32_t limit) {
    v1::ListJobsRequest request;
    request.set_limit(limit);
    v1::ListJobsResponse response;
    EXPECT_TRUE(Call(*cluster_, &v1::ClusterService::Stub::ListJobs, request, &response).ok());
    return response.jobs_size();
  }
};

TEST_F(FullStoreTest, LimitsListsOfJobs) {
  StartWith(limits::kJobsPerList + 1);
  EXPECT_EQ(ListedWithLimit(0), limits::kJobsPerList);
  EXPECT_EQ(ListedWithLimit(limits::kJobsPerList + 1), limits::kJobsPerList);
  EXPECT_EQ(ListedWithLimit(3), 3);
}

TEST_F(FullStoreTest, LimitsJobs) {
  StartWith(limits::kJobs);
  v1::SubmitJobResponse response;
  const grpc::Status status =
      Call(*cluster_, &v1::ClusterService::Stub::SubmitJob, SubmitRequest("more"), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(),
              HasSubstr(absl::StrCat("has ", limits::kJobs, " jobs that are unfinished")));
  StopCoordinator();
}

// -------------------------------------------------------------------------------------------------
// Logs.

// A store whose commits wait.
class HeldStore : public store::MemoryStore {
 public:
  absl::Status Commit(absl::Span<const store::Mutation> batch) override {
    if (held) released.WaitForNotification();
    return MemoryStore::Commit(batch);
  }

  std::atomic<bool> held = false;
  absl::Notification released;
};

TEST(LargeRequestsTest, CallerHasTwoAtATime) {
  HeldStore store;
  CoordinatorOptions options;
  options.listen = options.http = "127.0.0.1:0";
  options.access.require_token = false;
  const auto coordinator = Coordinator::Start(options, store);
  ASSERT_TRUE(coordinator.ok()) << coordinator.status();
  const auto channel = grpc::CreateChannel((*coordinator)->grpc_address().ToString(),
                                           grpc::InsecureChannelCredentials());
  const auto cluster = v1::ClusterService::NewStub(channel);
  struct Submission {
    grpc::ClientContext context;
    v1::SubmitJobRequest request;
    v1::SubmitJobResponse response;
  };
  // A connection without a call that was authenticated may not send as much.
  v1::GetVersionResponse version;
  ASSERT_TRUE(
      Call(*cluster, &v1::ClusterService::Stub::GetVersion, v1::GetVersionRequest(), &version)
          .ok());
  store.held = true;  // no submission is answered
  Submission submissions[3];
  absl::Mutex mutex;
  std::vector<grpc::Status> ended;
  for (Submission& submission : submissions) {
    submission.context.set_deadline(TestDeadline());
    submission.request.set_protocol_version(kProtocolVersion);
    submission.request.mutable_spec()->add_command(std::string(200'000, 'x'));
    cluster->async()->SubmitJob(&submission.context, &submission.request, &submission.response,
                                [&](const grpc::Status& status) {
                                  absl::MutexLock lock(&mutex);
                                  ended.push_back(status);
                                });
  }
  const auto wait_for = [&](size_t count) {
    absl::MutexLock lock(&mutex);
    const auto enough = [&] { return ended.size() >= count; };
    mutex.Await(absl::Condition(&enough));
  };
  wait_for(1);
  store.released.Notify();
  wait_for(3);
  EXPECT_EQ(ended[0].error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(ended[0].error_message(),
              HasSubstr("has 2 open requests of more than 131072 bytes, the limit for one caller"));
  EXPECT_TRUE(ended[1].ok() && ended[2].ok())
      << ended[1].error_message() << ended[2].error_message();
}

TEST_F(LimitsTest, LimitsLogTransfers) {
  const auto worker = Connect("node-1");
  const std::string job = Submit("hello");
  worker->Report(worker->Next(v1::CoordinatorMessage::kLaunch).launch(), v1::STARTED);
  AwaitState(job, v1::RUNNING);
  struct Reading {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::LogChunk>> stream;
  };
  v1::ReadLogRequest request;
  request.set_job_id(job);
  request.set_stream(v1::STDOUT);
  std::vector<std::unique_ptr<Reading>> readings;
  const auto read = [&]() -> Reading& {
    readings.push_back(std::make_unique<Reading>());
    readings.back()->stream = cluster_->ReadLog(&readings.back()->context, request);
    return *readings.back();
  };
  constexpr size_t kMax = limits::kLogTransfersPerCaller;
  for (size_t i = 0; i < kMax; ++i) read();
  AwaitCondition([&] { return coordinator_->log_transfer_count() == kMax; });
  const grpc::Status refused = read().stream->Finish();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(), HasSubstr("has 512 open log streams, the limit"));
  for (const auto& reading : readings) reading->context.TryCancel();
  AwaitCondition([&] { return coordinator_->log_transfer_count() == 0; });
  read();
  AwaitCondition([&] { return coordinator_->log_transfer_count() == 1; });
  readings.back()->context.TryCancel();
}

// -------------------------------------------------------------------------------------------------
// Worker sessions.

// Smaller excesses do not end the session; see quarantine_test.
TEST_F(LimitsTest, RejectsMessageBeyondAllLimits) {
  RawWorker worker(channel_);
  worker.SendHello(RawWorker::HelloOf("node-1"));
  worker.Next(v1::CoordinatorMessage::kWelcome);
  v1::WorkerMessage message;
  message.mutable_put_key()->set_value(Beyond(limits::kMessageBytes));
  worker.Send(message);
  EXPECT_THAT(worker.Finish().error_code(),
              AnyOf(grpc::StatusCode::RESOURCE_EXHAUSTED, grpc::StatusCode::CANCELLED));
}

class SilentSession : public WorkerSession {
 public:
  void Send(v1::CoordinatorMessage /*message*/) override {}
  void Close(absl::Status /*status*/) override {}
  size_t unread_bytes() override { return 0; }
  void CloseUnread() override {}
};

// A session whose worker does not read.
class UnreadSession : public WorkerSession {
 public:
  explicit UnreadSession(WorkerSessions& sessions) : sessions_(sessions) {}
  void Send(v1::CoordinatorMessage message) override { Set(bytes_ + message.ByteSizeLong()); }
  void Close(absl::Status /*status*/) override { Set(0); }
  size_t unread_bytes() override { return bytes_; }
  void CloseUnread() override {
    closed_ = true;
    Set(0);
  }
  bool closed() const { return closed_; }

 private:
  void Set(size_t bytes) {
    sessions_.CountUnread(bytes_, bytes);
    bytes_ = bytes;
  }

  WorkerSessions& sessions_;
  size_t bytes_ = 0;
  bool closed_ = false;
};

class IdleWatcher : public JobWatcher {
 public:
  void OnJob(std::shared_ptr<const v1::Job> /*job*/) override {}
  void OnShutdown() override {}
};

TEST(WatcherLimits, LimitsWatchersPerJobAndInTotal) {
  JobWatchers watchers;
  const auto watcher = std::make_shared<IdleWatcher>();
  const auto add = [&](size_t job) {
    return watchers.Add(JobId(absl::StrCat("job-", job)), watcher);
  };
  for (size_t i = 0; i < limits::kWatchersPerJob; ++i) ASSERT_TRUE(add(0).ok());
  EXPECT_THAT(std::string(add(0).message()), HasSubstr("job-0 has 1024 watchers, the limit"));
  for (size_t i = limits::kWatchersPerJob; i < limits::kWatchers; ++i) {
    ASSERT_TRUE(add(i / limits::kWatchersPerJob).ok());
  }
  EXPECT_EQ(watchers.size(), limits::kWatchers);
  const absl::Status refused = add(limits::kWatchers);
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("65536 watchers, the limit"));
  watchers.Remove(JobId("job-1"), watcher.get());
  EXPECT_TRUE(add(limits::kWatchers).ok());
}

TEST(WatcherLimits, LimitsUnreadBytesPerCallerAndInTotal) {
  constexpr size_t kHalf = limits::kUnreadWatchBytes / 2;
  JobWatchers watchers;
  EXPECT_TRUE(watchers.CountUnread("alice", 0, kHalf));
  EXPECT_FALSE(watchers.CountUnread("alice", kHalf, kHalf + 1));
  EXPECT_TRUE(watchers.CountUnread("alice", kHalf, kHalf));
  EXPECT_TRUE(watchers.CountUnread("bob", 0, kHalf));
  EXPECT_FALSE(watchers.CountUnread("carol", 0, 1));
  EXPECT_TRUE(watchers.CountUnread("alice", kHalf, 0));
  EXPECT_TRUE(watchers.CountUnread("carol", 0, kHalf));
}

TEST_F(LimitsTest, LimitsUnreadStatesOfWatchedJobs) {
  ASSERT_TRUE(SubmitOf(1000).ok());
  v1::SubmitJobRequest submit = SubmitRequest("huge");
  submit.mutable_spec()->add_command(std::string(1'000'000, 'x'));
  v1::SubmitJobResponse submitted;
  ASSERT_TRUE(Call(*cluster_, &v1::ClusterService::Stub::SubmitJob, submit, &submitted).ok());
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);  // the client does not receive ahead
  const auto stub = v1::ClusterService::NewStub(grpc::CreateCustomChannel(
      coordinator_->grpc_address().ToString(), grpc::InsecureChannelCredentials(), arguments));
  struct Watch {
    Watch(v1::ClusterService::Stub& stub, const std::string& job) {
      v1::WatchJobRequest request;
      request.set_job_id(job);
      context.set_deadline(TestDeadline());
      stream = stub.WatchJob(&context, request);
    }
    ~Watch() { context.TryCancel(); }
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::Job>> stream;
  };
  // Returns the error of another watch; OK if it receives the job.
  const auto watch_once = [&] {
    Watch watch(*stub, submitted.job().job_id());
    v1::Job job;
    return watch.stream->Read(&job) ? grpc::Status::OK : watch.stream->Finish();
  };
  EXPECT_TRUE(watch_once().ok());
  std::vector<std::unique_ptr<Watch>> unread;
  // Each state takes 2 MB: the job, and its serialized form.
  for (size_t i = 0; i < limits::kUnreadWatchBytes / 2 / 2'000'000 + 1; ++i) {
    unread.push_back(std::make_unique<Watch>(*stub, submitted.job().job_id()));
  }
  grpc::Status refused;
  AwaitCondition([&] {
    refused = watch_once();
    return !refused.ok();
  });
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(refused.error_message(), HasSubstr("left too many states of jobs unread"));
  unread.clear();
  AwaitCondition([&] { return watch_once().ok(); });
}

class IdleReader : public LogReader {
 public:
  void OnChunk(v1::LogChunk /*chunk*/) override {}
  void OnEnd(absl::Status /*status*/) override {}
};

TEST(LogTransferLimits, LimitsTransfersInTotal) {
  WorkerSessions sessions;
  LogRelay logs(sessions);
  const auto reader = std::make_shared<IdleReader>();
  for (size_t i = 0; i < limits::kLogTransfers; ++i) {
    ASSERT_TRUE(logs.Open(SessionId(1), reader).ok());
  }
  const absl::Status refused = logs.Open(SessionId(1), reader).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("2048 log transfers are in progress"));
}

TEST(SessionLimits, BeyondTheTotalClosesTheSessionWithMostUnread) {
  WorkerSessions sessions(10'000);
  v1::CoordinatorMessage message;
  message.mutable_key_value()->set_value(std::string(1000, 'x'));
  std::vector<std::shared_ptr<UnreadSession>> opened;
  std::vector<SessionId> ids;
  for (const int queued : {2, 4, 3}) {
    opened.push_back(std::make_shared<UnreadSession>(sessions));
    ids.push_back(*sessions.Add(opened.back()));
    for (int i = 0; i < queued; ++i) sessions.Send(ids.back(), message);
  }
  for (const auto& session : opened) EXPECT_FALSE(session->closed());
  sessions.Send(ids[0], message);
  EXPECT_TRUE(opened[1]->closed());
  // There is room again.
  for (int i = 0; i < 3; ++i) sessions.Send(ids[0], message);
  EXPECT_FALSE(opened[0]->closed());
  EXPECT_FALSE(opened[2]->closed());
}

TEST(SessionLimits, LimitsSessions) {
  WorkerSessions sessions;
  const auto session = std::make_shared<SilentSession>();
  for (size_t i = 0; i < limits::kSessions; ++i) ASSERT_TRUE(sessions.Add(session).ok());
  const absl::Status refused = sessions.Add(session).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr(absl::StrCat(limits::kSessions, " sessions")));
}

}  // namespace
}  // namespace muster::service
