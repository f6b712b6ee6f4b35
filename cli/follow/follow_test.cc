#include "cli/follow/follow.h"

#include <thread>

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

}  // namespace
}  // namespace muster::cli
