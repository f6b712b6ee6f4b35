#include "worker/agent/generation/worker_stops.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/synchronization/notification.h"
#include "common/time/proto_time.h"
#include "gtest/gtest.h"
#include "worker/agent/rank/progress_board.h"

namespace muster::agent {
namespace {

// The generations have not been started, so a stop ends them at once.
class WorkerStopsTest : public ::testing::Test {
 protected:
  WorkerStopsTest() {
    context_.loop = &loop_;
    context_.progress = &board_;
    context_.send = [](const v1::WorkerMessage&) {};
    context_.on_rank_exited = [](const std::string&, uint64_t, uint32_t) {};
    stops_ = std::make_unique<WorkerStops>(loop_, generations_);
  }
  ~WorkerStopsTest() override {
    loop_.RunAndWait([this] {
      stops_.reset();
      generations_.clear();
    });
  }

  Generation& Add(const std::string& job_id,
                  std::optional<absl::Duration> stop_after = std::nullopt) {
    v1::Launch launch;
    launch.set_job_id(job_id);
    launch.set_generation(1);
    launch.add_ranks()->set_rank(1);
    if (stop_after.has_value()) {
      *launch.mutable_spec()->mutable_on_lost_coordinator()->mutable_stop_after() =
          ToProto(*stop_after);
    }
    auto& generation = generations_[{job_id, 1}];
    generation = std::make_unique<Generation>(context_, std::move(launch), SecretValues(), [this] {
      loop_.Post([this] { stops_->CheckAllStopped(); });
    });
    return *generation;
  }

  EventLoop loop_{"test"};
  ProgressBoard board_;
  GenerationContext context_;
  Generations generations_;  // used on the loop
  std::unique_ptr<WorkerStops> stops_;
};

TEST_F(WorkerStopsTest, StopsAllGenerations) {
  absl::Notification done;
  loop_.RunAndWait([&] {
    Add("a");
    Add("b");
    EXPECT_FALSE(stops_->stopping());
    stops_->StopAll(/*grace=*/std::nullopt, [&] { done.Notify(); });
    EXPECT_TRUE(stops_->stopping());
    EXPECT_TRUE(generations_.at({"a", 1})->over());
    EXPECT_TRUE(generations_.at({"b", 1})->over());
    EXPECT_FALSE(done.HasBeenNotified());
  });
  done.WaitForNotification();
}

TEST_F(WorkerStopsTest, WaitsForTheCoordinatorToStopRanks) {
  absl::Notification done;
  loop_.RunAndWait([&] {
    Add("a");
    stops_->AwaitEnd(absl::Hours(1), [&] { done.Notify(); });
  });
  loop_.RunAndWait([&] {
    EXPECT_TRUE(stops_->stopping());
    EXPECT_FALSE(done.HasBeenNotified());
    generations_.at({"a", 1})->Stop(v1::StopGeneration());
  });
  done.WaitForNotification();
}

TEST_F(WorkerStopsTest, StopsAllGenerationsAfterItsPatience) {
  absl::Notification done;
  loop_.RunAndWait([&] {
    Add("a");
    stops_->AwaitEnd(absl::ZeroDuration(), [&] { done.Notify(); });
  });
  done.WaitForNotification();
}

TEST_F(WorkerStopsTest, StopsJobsThatMayNotRunWithoutACoordinator) {
  absl::Notification later;
  loop_.RunAndWait([&] {
    Add("stops", absl::ZeroDuration());
    Add("waits", absl::Hours(1));
    Add("continues");
    stops_->OnCoordinatorLost();
    // After the timer of "stops".
    loop_.RunAfter(absl::Milliseconds(1), [&] { later.Notify(); });
  });
  later.WaitForNotification();
  loop_.RunAndWait([&] {
    EXPECT_TRUE(generations_.at({"stops", 1})->over());
    EXPECT_FALSE(generations_.at({"waits", 1})->over());
    EXPECT_FALSE(generations_.at({"continues", 1})->over());
  });
}

TEST_F(WorkerStopsTest, StopsNoJobOnceTheCoordinatorHasReconnected) {
  absl::Notification later;
  loop_.RunAndWait([&] {
    Add("stops", absl::ZeroDuration());
    stops_->OnCoordinatorLost();
    stops_->OnCoordinatorConnected();
    loop_.RunAfter(absl::Milliseconds(1), [&] { later.Notify(); });
  });
  later.WaitForNotification();
  loop_.RunAndWait([&] { EXPECT_FALSE(generations_.at({"stops", 1})->over()); });
}

}  // namespace
}  // namespace muster::agent
