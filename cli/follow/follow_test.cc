#include "cli/follow/follow.h"

#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "cli/exit_code.h"
#include "cli/fake_cluster.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::cli {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

v1::Job JobIn(v1::JobState state) {
  v1::Job job;
  job.set_job_id("a-1");
  job.set_state(state);
  return job;
}

class Recorder : public FollowObserver {
 public:
  void OnJob(const v1::Job& job) override { seen.push_back(v1::JobState_Name(job.state())); }
  void OnCoordinatorAway(const absl::Status&) override {
    seen.push_back("away");
    if (on_away) on_away();
  }
  void OnCoordinatorBack() override { seen.push_back("back"); }

  std::vector<std::string> seen;
  std::function<void()> on_away;
};

class FollowTest : public ::testing::Test {
 protected:
  FollowTest() {
    cluster_.on_get = [](const v1::GetJobRequest&, v1::Job* job) {
      *job = JobIn(v1::SUCCEEDED);
      job->add_ranks();
      return grpc::Status::OK;
    };
  }
  absl::StatusOr<v1::Job> Follow(const FollowOptions& options = {}) {
    ClusterClient::Options client_options;
    client_options.address = cluster_.address();
    ClusterClient client(client_options);
    return FollowJob(client, "a-1", options, stopper_, recorder_);
  }

  FakeCluster cluster_;
  Stopper stopper_;
  Recorder recorder_;
};

TEST_F(FollowTest, FollowsUntilFinished) {
  cluster_.on_watch = [](const v1::WatchJobRequest& request, grpc::ServerContext&, auto write) {
    EXPECT_EQ(request.job_id(), "a-1");
    for (const v1::JobState state : {v1::QUEUED, v1::RUNNING, v1::SUCCEEDED}) write(JobIn(state));
    return grpc::Status::OK;
  };
  cluster_.Start();
  const absl::StatusOr<v1::Job> job = Follow();
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->ranks_size(), 1);  // in full
  EXPECT_THAT(recorder_.seen, ElementsAre("QUEUED", "RUNNING", "SUCCEEDED"));
}

// The coordinator dies and comes back on the same port: reported once, and the job is followed on.
TEST_F(FollowTest, FollowsThroughCoordinatorRestart) {
  int watches = 0;
  absl::Notification running;
  cluster_.on_watch = [&](const v1::WatchJobRequest&, grpc::ServerContext& context, auto write) {
    if (++watches == 1) {
      write(JobIn(v1::RUNNING));
      running.Notify();
      FakeCluster::WaitUntilCancelled(context);
      return grpc::Status::OK;
    }
    write(JobIn(v1::RUNNING));
    write(JobIn(v1::SUCCEEDED));
    return grpc::Status::OK;
  };
  absl::Notification away;
  recorder_.on_away = [&away] { away.Notify(); };
  cluster_.Start();
  std::thread restart([&] {
    running.WaitForNotification();
    cluster_.Stop();
    away.WaitForNotification();
    cluster_.Start();
  });
  const absl::StatusOr<v1::Job> job = Follow();
  restart.join();
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_THAT(recorder_.seen, ElementsAre("RUNNING", "away", "back", "RUNNING", "SUCCEEDED"));
}

// A stream that ends with OK before the job finishes is not its end.
TEST_F(FollowTest, ReopensAStreamThatEndsEarly) {
  int watches = 0;
  cluster_.on_watch = [&](const v1::WatchJobRequest&, grpc::ServerContext&, auto write) {
    write(JobIn(++watches < 3 ? v1::RUNNING : v1::FAILED));
    return grpc::Status::OK;
  };
  cluster_.Start();
  EXPECT_TRUE(Follow().ok());
  EXPECT_EQ(watches, 3);
}

TEST_F(FollowTest, FollowsUntilRunning) {
  cluster_.on_watch = [](const v1::WatchJobRequest&, grpc::ServerContext& context, auto write) {
    write(JobIn(v1::QUEUED));
    write(JobIn(v1::RUNNING));
    FakeCluster::WaitUntilCancelled(context);
    return grpc::Status::OK;
  };
  cluster_.Start();
  FollowOptions options;
  options.until_running = true;
  EXPECT_TRUE(Follow(options).ok());
  EXPECT_THAT(recorder_.seen, ElementsAre("QUEUED", "RUNNING"));
}

TEST_F(FollowTest, FollowsUntilAConditionHolds) {
  cluster_.on_watch = [](const v1::WatchJobRequest&, grpc::ServerContext& context, auto write) {
    for (uint64_t step = 1; step <= 3; ++step) {
      v1::Job job = JobIn(v1::RUNNING);
      job.mutable_progress()->set_step(step);
      write(job);
    }
    FakeCluster::WaitUntilCancelled(context);
    return grpc::Status::OK;
  };
  cluster_.Start();
  FollowOptions options;
  options.until = [](const v1::Job& job) { return job.progress().step() == 2; };
  EXPECT_TRUE(Follow(options).ok());
  EXPECT_EQ(recorder_.seen.size(), 2u);
}

TEST_F(FollowTest, ReturnsDeadlineExceededOrCancelled) {
  cluster_.on_watch = [](const v1::WatchJobRequest&, grpc::ServerContext& context, auto write) {
    write(JobIn(v1::QUEUED));
    FakeCluster::WaitUntilCancelled(context);
    return grpc::Status::OK;
  };
  cluster_.Start();
  FollowOptions options;
  options.timeout = absl::Milliseconds(50);
  EXPECT_EQ(Follow(options).status().code(), absl::StatusCode::kDeadlineExceeded);
  stopper_.Stop();
  EXPECT_EQ(Follow().status().code(), absl::StatusCode::kCancelled);
}

TEST_F(FollowTest, TimesOutWhileCoordinatorIsUnreachable) {
  cluster_.Start();
  cluster_.Stop();
  FollowOptions options;
  options.timeout = absl::Milliseconds(100);
  EXPECT_EQ(Follow(options).status().code(), absl::StatusCode::kDeadlineExceeded);
  // Reported at most once; a slow machine may not have tried at all.
  EXPECT_THAT(recorder_.seen, AnyOf(IsEmpty(), ElementsAre("away")));
}

TEST_F(FollowTest, ReturnsNotFoundForUnknownJob) {
  cluster_.on_watch = [](const v1::WatchJobRequest&, grpc::ServerContext&, auto) {
    return grpc::Status(grpc::StatusCode::NOT_FOUND, "no such job");
  };
  cluster_.Start();
  EXPECT_EQ(Follow().status(), absl::NotFoundError("no such job"));
}

// Tasks 1 and 2 fail.
v1::Job Task(const std::string& id) {
  v1::Job job;
  job.set_job_id(id);
  const int index = id.back() - '0';
  job.set_array_index(index);
  job.set_state(index == 0 ? v1::SUCCEEDED : v1::FAILED);
  job.set_exit_code(index == 0 ? 0 : 6 + index);
  return job;
}

TEST(ArrayWaitTest, WaitsForAllTasksAndReturnsTheFirstFailure) {
  FakeCluster cluster;
  cluster.on_get = [](const v1::GetJobRequest& request, v1::Job* job) {
    *job = Task(request.job_id());
    return grpc::Status::OK;
  };
  cluster.on_watch = [](const v1::WatchJobRequest& request, grpc::ServerContext&,
                        const FakeCluster::Writer<v1::Job>& write) {
    write(Task(request.job_id()));
    return grpc::Status::OK;
  };
  v1::GetArrayResponse array;
  array.mutable_array()->set_array_id("sweep");
  for (const char* id : {"sweep-0", "sweep-1", "sweep-2"}) *array.add_tasks() = Task(id);
  cluster.on_get_array = [&](const v1::GetArrayRequest&, v1::GetArrayResponse* response) {
    *response = array;
    response->mutable_array()->set_state(v1::FAILED);
    return grpc::Status::OK;
  };
  cluster.Start();
  ClusterClient::Options options;
  options.address = cluster.address();
  ClusterClient client(options);
  Console console(std::cout, std::cerr, {});
  QuietObserver observer(console);
  Stopper stopper;
  std::vector<std::string> ended;
  const absl::StatusOr<ArrayResult> result =
      WaitForArray(client, array, {}, stopper, observer,
                   [&](const v1::Job& job) { ended.push_back(job.job_id()); });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 7);
  EXPECT_EQ(result->array.array().state(), v1::FAILED);
  EXPECT_THAT(ended, ElementsAre("sweep-0", "sweep-1", "sweep-2"));
}

v1::Job Running(uint64_t step, uint64_t checkpoint) {
  v1::Job job;
  job.set_job_id("job-1");
  job.set_state(v1::RUNNING);
  job.set_generation(2);
  job.mutable_progress()->set_step(step);
  job.mutable_checkpoint()->set_dir("/c");
  job.mutable_checkpoint()->set_step(checkpoint);
  return job;
}

TEST(CheckpointWaitTest, WaitsForTheStepAtTheTimeOfTheRequest) {
  const v1::Job requested = Running(40, 20);
  EXPECT_FALSE(*IsCheckpointWritten(requested, Running(60, 30)));
  EXPECT_TRUE(*IsCheckpointWritten(requested, Running(60, 40)));
  EXPECT_TRUE(*IsCheckpointWritten(requested, Running(60, 41)));
  EXPECT_TRUE(*IsCheckpointWritten(Running(40, 40), Running(40, 40)));
  // Before the first step.
  EXPECT_FALSE(*IsCheckpointWritten(Running(0, 0), Running(0, 0)));
  EXPECT_TRUE(*IsCheckpointWritten(Running(0, 0), Running(3, 2)));
}

TEST(CheckpointWaitTest, FailsWithTheCheckpoint) {
  v1::Job requested = Running(40, 20);
  requested.mutable_checkpoint()->set_failures(1);
  v1::Job now = requested;
  EXPECT_FALSE(*IsCheckpointWritten(requested, now));
  now.mutable_checkpoint()->set_failures(2);
  now.mutable_checkpoint()->set_failed_step(41);
  now.mutable_checkpoint()->set_failure("no space left on device");
  const absl::Status failed = IsCheckpointWritten(requested, now).status();
  EXPECT_EQ(failed,
            absl::AbortedError("the checkpoint of step 41 cannot be written to /c: no space "
                               "left on device"));
}

TEST(CheckpointWaitTest, FailsIfTheTrainingEndsOrRestartsBefore) {
  v1::Job now = Running(40, 20);
  now.set_state(v1::CANCELLED);
  EXPECT_THAT(std::string(IsCheckpointWritten(Running(40, 20), now).status().message()),
              HasSubstr("job job-1 cancelled without a checkpoint of step 40 or later"));
  now = Running(5, 20);
  now.set_generation(3);
  EXPECT_THAT(std::string(IsCheckpointWritten(Running(40, 20), now).status().message()),
              HasSubstr("and started again"));
  // A checkpoint that is written on the way out counts.
  now.mutable_checkpoint()->set_step(44);
  EXPECT_TRUE(*IsCheckpointWritten(Running(40, 20), now));
}

}  // namespace

}  // namespace muster::cli
