// The life cycle of jobs: the effect of each event in each state, and the messages to the nodes.
#include <algorithm>
#include <csignal>

#include "common/limits.h"
#include "common/time/proto_time.h"
#include "coordinator/core/jobs/job.h"
#include "coordinator/core/reasons.h"
#include "coordinator/core/testing/harness.h"
#include "coordinator/core/testing/totals.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using ::testing::Contains;
using testing::CountSent;
using ::testing::ElementsAre;
using testing::ExitWith;
using testing::FindSent;
using testing::Harness;
using ::testing::HasSubstr;
using testing::MakeCommandSpec;
using testing::MakeSpec;
using Message = v1::CoordinatorMessage;

const std::vector<v1::JobState> kStates = {v1::QUEUED,  v1::HELD,      v1::STARTING,
                                           v1::RUNNING, v1::STOPPING,  v1::SUCCEEDED,
                                           v1::FAILED,  v1::CANCELLED, v1::TIMED_OUT};

TEST(JobTable, HasOnlyTheseTransitions) {
  const std::set<std::pair<v1::JobState, v1::JobState>> table = {
      {v1::QUEUED, v1::HELD},        {v1::HELD, v1::QUEUED},       {v1::QUEUED, v1::STARTING},
      {v1::STARTING, v1::RUNNING},   {v1::STARTING, v1::STOPPING}, {v1::RUNNING, v1::STOPPING},
      {v1::STOPPING, v1::SUCCEEDED}, {v1::STOPPING, v1::FAILED},   {v1::STOPPING, v1::CANCELLED},
      {v1::STOPPING, v1::TIMED_OUT}, {v1::STOPPING, v1::STARTING}, {v1::STOPPING, v1::QUEUED},
      {v1::QUEUED, v1::CANCELLED},   {v1::HELD, v1::CANCELLED},    {v1::QUEUED, v1::FAILED},
      {v1::HELD, v1::FAILED}};
  for (const v1::JobState from : kStates) {
    for (const v1::JobState to : kStates) {
      EXPECT_EQ(IsAllowed(from, to), table.count({from, to}) == 1)
          << v1::JobState_Name(from) << " to " << v1::JobState_Name(to);
    }
  }
}

// A one-rank job on node "a", taken to each state by the shortest path.
std::string MakeJobIn(Harness& cluster, v1::JobState state) {
  v1::JobSpec spec = MakeSpec(1);
  spec.mutable_restart()->set_max(0);
  *spec.mutable_time_limit() = ToProto(absl::Minutes(10));
  if (state != v1::QUEUED && state != v1::HELD) cluster.Join("a");
  const std::string job = cluster.Submit(spec);
  switch (state) {
    case v1::HELD:
      EXPECT_TRUE(cluster.Hold(job).ok());
      break;
    case v1::RUNNING:
      cluster.BringUp(job);
      break;
    case v1::STOPPING:
      EXPECT_TRUE(cluster.Cancel(job).ok());
      break;
    case v1::SUCCEEDED:
      cluster.ExitAll(job, ExitWith(0));
      break;
    case v1::FAILED:
      cluster.ExitAll(job, ExitWith(3));
      break;
    case v1::CANCELLED:
      EXPECT_TRUE(cluster.Cancel(job).ok());
      cluster.ExitAll(job, testing::KilledBy(SIGTERM));
      break;
    case v1::TIMED_OUT:
      cluster.BringUp(job);
      cluster.Run(absl::Minutes(11), {"a"});
      cluster.ExitAll(job, ExitWith(0));
      break;
    default:
      break;
  }
  EXPECT_EQ(cluster.State(job), state);
  return job;
}

struct Row {
  v1::JobState from;
  v1::JobState after_cancel, after_hold, after_release, after_clean_exit, after_bad_exit,
      after_lost_node, after_time_limit, after_requeue;
};

class Transitions : public ::testing::TestWithParam<Row> {};

TEST_P(Transitions, Cancel) {
  Harness cluster;
  const std::string job = MakeJobIn(cluster, GetParam().from);
  const absl::StatusOr<v1::Job> reply = cluster.Cancel(job);
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply->state(), GetParam().after_cancel);
  EXPECT_EQ(cluster.State(job), GetParam().after_cancel);
}

TEST_P(Transitions, Hold) {
  Harness cluster;
  const std::string job = MakeJobIn(cluster, GetParam().from);
  const bool allowed = GetParam().from == v1::QUEUED || GetParam().from == v1::HELD;
  EXPECT_EQ(cluster.Hold(job).status().code(),
            allowed ? absl::StatusCode::kOk : absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(cluster.State(job), GetParam().after_hold);
}

TEST_P(Transitions, Release) {
  Harness cluster;
  const std::string job = MakeJobIn(cluster, GetParam().from);
  const bool allowed = GetParam().from == v1::QUEUED || GetParam().from == v1::HELD;
  EXPECT_EQ(cluster.Release(job).status().code(),
            allowed ? absl::StatusCode::kOk : absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(cluster.State(job), GetParam().after_release);
}

TEST_P(Transitions, Requeue) {
  Harness cluster;
  const std::string job = MakeJobIn(cluster, GetParam().from);
  const bool allowed = GetParam().from == v1::QUEUED || GetParam().from == v1::STARTING ||
                       GetParam().from == v1::RUNNING;
  EXPECT_EQ(cluster.Requeue(job).status().code(),
            allowed ? absl::StatusCode::kOk : absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(cluster.State(job), GetParam().after_requeue);
}

TEST_P(Transitions, CleanExit) {
  Harness cluster;
  const std::string job = MakeJobIn(cluster, GetParam().from);
  cluster.ExitAll(job, ExitWith(0));
  EXPECT_EQ(cluster.State(job), GetParam().after_clean_exit);
}

TEST_P(Transitions, BadExit) {
  Harness cluster;
  const std::string job = MakeJobIn(cluster, GetParam().from);
  cluster.ExitAll(job, ExitWith(3));
  EXPECT_EQ(cluster.State(job), GetParam().after_bad_exit);
}

TEST_P(Transitions, LostNode) {
  Harness cluster;
  const std::string job = MakeJobIn(cluster, GetParam().from);
  if (cluster.StateOf("a") == v1::NODE_STATE_UNSPECIFIED) cluster.Join("idle", 0);
  cluster.Run(absl::Seconds(30));
  EXPECT_EQ(cluster.State(job), GetParam().after_lost_node);
}

TEST_P(Transitions, TimeLimit) {
  Harness cluster;
  const std::string job = MakeJobIn(cluster, GetParam().from);
  std::vector<std::string> alive;
  if (cluster.StateOf("a") == v1::READY) alive = {"a"};
  if (GetParam().from == v1::STARTING) {
    // No phase of the rendezvous times out before that.
    cluster.Run(absl::Seconds(50), alive);
    cluster.ReportPhaseOfAll(job, v1::STARTED);
    cluster.Run(absl::Seconds(50), alive);
    cluster.ReportPhaseOfAll(job, v1::JOINED);
    cluster.Advance(absl::Minutes(9));
    if (!alive.empty()) cluster.SendHeartbeat("a");
    cluster.Step(Tick{});
  } else {
    cluster.Run(absl::Minutes(11), alive);
  }
  EXPECT_EQ(cluster.State(job), GetParam().after_time_limit);
}

INSTANTIATE_TEST_SUITE_P(
    Table, Transitions,
    ::testing::Values(Row{v1::QUEUED, v1::CANCELLED, v1::HELD, v1::QUEUED, v1::QUEUED, v1::QUEUED,
                          v1::QUEUED, v1::QUEUED, v1::QUEUED},
                      Row{v1::HELD, v1::CANCELLED, v1::HELD, v1::QUEUED, v1::HELD, v1::HELD,
                          v1::HELD, v1::HELD, v1::HELD},
                      Row{v1::STARTING, v1::STOPPING, v1::STARTING, v1::STARTING, v1::SUCCEEDED,
                          v1::FAILED, v1::QUEUED, v1::STOPPING, v1::STOPPING},
                      Row{v1::RUNNING, v1::STOPPING, v1::RUNNING, v1::RUNNING, v1::SUCCEEDED,
                          v1::FAILED, v1::QUEUED, v1::STOPPING, v1::STOPPING},
                      // Its rank is abandoned before the time limit.
                      Row{v1::STOPPING, v1::STOPPING, v1::STOPPING, v1::STOPPING, v1::CANCELLED,
                          v1::CANCELLED, v1::CANCELLED, v1::CANCELLED, v1::STOPPING},
                      Row{v1::SUCCEEDED, v1::SUCCEEDED, v1::SUCCEEDED, v1::SUCCEEDED, v1::SUCCEEDED,
                          v1::SUCCEEDED, v1::SUCCEEDED, v1::SUCCEEDED, v1::SUCCEEDED},
                      Row{v1::FAILED, v1::FAILED, v1::FAILED, v1::FAILED, v1::FAILED, v1::FAILED,
                          v1::FAILED, v1::FAILED, v1::FAILED},
                      Row{v1::CANCELLED, v1::CANCELLED, v1::CANCELLED, v1::CANCELLED, v1::CANCELLED,
                          v1::CANCELLED, v1::CANCELLED, v1::CANCELLED, v1::CANCELLED},
                      Row{v1::TIMED_OUT, v1::TIMED_OUT, v1::TIMED_OUT, v1::TIMED_OUT, v1::TIMED_OUT,
                          v1::TIMED_OUT, v1::TIMED_OUT, v1::TIMED_OUT, v1::TIMED_OUT}),
    [](const auto& info) { return v1::JobState_Name(info.param.from); });

TEST(Lifecycle, TrainJobFromSubmitToSuccess) {
  Harness cluster;
  cluster.Join("node-1");
  const std::string job = cluster.Submit(MakeSpec(2));
  EXPECT_EQ(cluster.State(job), v1::QUEUED);
  EXPECT_EQ(cluster.Get(job).queue_position(), 1u);

  const Effects placed = cluster.Join("node-2");
  EXPECT_EQ(cluster.State(job), v1::STARTING);
  const Message* launch = FindSent(placed, cluster.session("node-2"), Message::kLaunch);
  ASSERT_NE(launch, nullptr);
  EXPECT_EQ(launch->launch().generation(), 1u);
  EXPECT_EQ(launch->launch().world_size(), 2u);
  EXPECT_EQ(launch->launch().node_rank(), 1u);
  ASSERT_EQ(launch->launch().ranks_size(), 1);
  EXPECT_EQ(launch->launch().ranks(0).rank(), 1u);
  EXPECT_NE(FindSent(placed, cluster.session("node-1"), Message::kLaunch), nullptr);
  const bool recorded =
      std::any_of(placed.writes.begin(), placed.writes.end(), [&](const store::Mutation& write) {
        return write.key == "generation/" + job + "/0000000001";
      });
  EXPECT_TRUE(recorded) << "the rank map must be on disk before Launch is sent";

  cluster.ReportPhaseOfAll(job, v1::STARTED);
  EXPECT_EQ(cluster.State(job), v1::STARTING);
  v1::RankReport joined = Harness::MakeReport(0, v1::JOINED);
  const Effects first = cluster.Report("node-1", job, joined);
  EXPECT_EQ(CountSent(first, cluster.session("node-1"), Message::kWorld), 0);
  joined.set_rank(1);
  joined.mutable_join()->set_has_checkpoint(true);
  joined.mutable_join()->set_checkpoint_step(40);
  joined.mutable_join()->set_layout_digest("y");
  const Effects last = cluster.Report("node-2", job, joined);
  for (const char* node : {"node-1", "node-2"}) {
    const Message* world = FindSent(last, cluster.session(node), Message::kWorld);
    ASSERT_NE(world, nullptr) << node;
    EXPECT_EQ(world->world().resume_rank(), 1u);
    EXPECT_EQ(world->world().resume_step(), 40u);
    EXPECT_TRUE(world->world().canonical_layout());
    EXPECT_EQ(world->world().node_count(), 2u);
    EXPECT_EQ(world->world().ranks_on_node_size(), 1);
    EXPECT_EQ(world->world().master_address(), "10.0.0.1");
  }
  cluster.ReportPhase("node-1", job, 0, v1::CONNECTED);
  EXPECT_EQ(cluster.State(job), v1::STARTING);
  cluster.ReportPhase("node-2", job, 1, v1::CONNECTED);
  EXPECT_EQ(cluster.State(job), v1::RUNNING);

  v1::RankReport done = Harness::MakeReport(0, v1::EXITED);
  done.mutable_exit();
  done.mutable_summary()->set_steps(7);
  *done.mutable_summary()->mutable_first_step_time() =
      ToProto(cluster.now().wall + absl::Seconds(3));
  cluster.Report("node-1", job, done);
  EXPECT_EQ(cluster.State(job), v1::RUNNING);
  EXPECT_FALSE(cluster.Get(job).has_summary());
  const Effects finished = cluster.ReportExit("node-2", job, 1, ExitWith(0));
  const v1::Job over = cluster.Get(job);
  EXPECT_EQ(over.state(), v1::SUCCEEDED);
  EXPECT_EQ(over.exit_code(), 0);
  EXPECT_EQ(over.summary().steps(), 7u);
  EXPECT_DOUBLE_EQ(over.summary().seconds_to_first_step(), 3.0);
  EXPECT_EQ(CountSent(finished, cluster.session("node-1"), Message::kForget), 1);
  EXPECT_EQ(CountSent(finished, cluster.session("node-2"), Message::kForget), 1);
  EXPECT_TRUE(
      FindSent(finished, cluster.session("node-1"), Message::kForget)->forget().job_ended());
  for (const v1::Node& node : cluster.core().ListNodes(cluster.now())) {
    EXPECT_EQ(node.slots(0).job_id(), "");
  }
}

TEST(Lifecycle, CommandJobRunsWhenStartedAndRanksMayJoin) {
  Harness cluster;
  cluster.Join("a");
  cluster.Join("b");
  const std::string job = cluster.Submit(MakeCommandSpec(2));
  cluster.ReportPhaseOfAll(job, v1::STARTED);
  EXPECT_EQ(cluster.State(job), v1::RUNNING);
  cluster.ReportPhase("a", job, 0, v1::JOINED);
  const Effects last = cluster.ReportPhase("b", job, 1, v1::JOINED);
  EXPECT_EQ(CountSent(last, cluster.session("a"), Message::kWorld), 1);
  EXPECT_EQ(CountSent(last, cluster.session("b"), Message::kWorld), 1);
  cluster.ExitAll(job, ExitWith(0));
  EXPECT_EQ(cluster.State(job), v1::SUCCEEDED);
}

TEST(Lifecycle, CommandThatExitsBeforeItsStartIsReported) {
  Harness cluster;
  cluster.Join("a");
  cluster.Join("b");
  const std::string job = cluster.Submit(MakeCommandSpec(2));
  cluster.ReportExit("a", job, 0, ExitWith(0));
  EXPECT_EQ(cluster.State(job), v1::STARTING);
  cluster.ReportExit("b", job, 1, ExitWith(0));
  EXPECT_EQ(cluster.State(job), v1::SUCCEEDED);
}

TEST(Lifecycle, HeadOfTheQueueBlocksAndPriorityGoesFirst) {
  Harness cluster;
  cluster.Join("a");
  cluster.Join("b");
  cluster.Submit(MakeSpec(1));
  const std::string large = cluster.Submit(MakeSpec(2));
  const std::string small = cluster.Submit(MakeSpec(1));
  EXPECT_EQ(cluster.State(small), v1::QUEUED);
  EXPECT_EQ(cluster.Get(small).queue_position(), 2u);
  v1::JobSpec urgent_spec = MakeSpec(1);
  urgent_spec.set_priority(5);
  const std::string urgent = cluster.Submit(urgent_spec);
  EXPECT_EQ(cluster.State(urgent), v1::STARTING);
  cluster.ExitAll(urgent, ExitWith(0));
  EXPECT_EQ(cluster.State(small), v1::QUEUED);
  ASSERT_TRUE(cluster.Hold(large).ok());
  EXPECT_EQ(cluster.State(small), v1::STARTING);
}

TEST(Lifecycle, QueuedJobNamesEveryBlocker) {
  Harness cluster;
  cluster.Join("node-a");
  cluster.Join("node-b");
  const std::string running = cluster.Submit(MakeSpec(1));
  const std::string queued = cluster.Submit(MakeSpec(2));
  const v1::Job job = cluster.Get(queued);
  ASSERT_EQ(job.waits_size(), 1);
  EXPECT_EQ(job.waits(0).what(), "resources");
  ASSERT_EQ(job.waits(0).missing_size(), 2);
  EXPECT_EQ(job.waits(0).missing(0).reason(), "needs 2 nodes with 1 free slot; 1 available");
  EXPECT_EQ(job.waits(0).missing(1).node(), "node-a");
  EXPECT_EQ(job.waits(0).missing(1).reason(), "0 of 1 slots free (job " + running + " rank 0)");
}

TEST(Lifecycle, QueuedJobReportsTooSmallCluster) {
  Harness cluster;
  cluster.Join("node-a");
  cluster.Join("node-b");
  cluster.Join("node-c");
  cluster.CloseStream("node-c");
  const std::string job = cluster.Submit(MakeSpec(4));
  const auto need = [&] { return cluster.Get(job).waits(0).missing(0).reason(); };
  EXPECT_EQ(need(),
            "needs 4 nodes with 1 free slot; 2 available; the cluster has 3 usable nodes of that "
            "size, 1 too few");
  cluster.Run(absl::Seconds(20), {"node-a", "node-b"});
  EXPECT_EQ(need(),
            "needs 4 nodes with 1 free slot; 2 available; the cluster has 2 usable nodes of that "
            "size, 2 too few");
}

TEST(Lifecycle, RestartWithCapacityStartsTheNextGeneration) {
  Harness cluster;
  cluster.Join("a", 2);
  const std::string job = cluster.Submit(MakeSpec(1, 2));
  cluster.BringUp(job);
  const Effects failed = cluster.ReportExit("a", job, 1, testing::KilledBy(SIGKILL));
  const Message* stop = FindSent(failed, cluster.session("a"), Message::kStop);
  ASSERT_NE(stop, nullptr);
  EXPECT_TRUE(stop->stop().abort());
  EXPECT_EQ(stop->stop().reason(), reasons::kRankKilled);
  EXPECT_EQ(cluster.State(job), v1::STOPPING);
  v1::ExitInfo stopped = testing::KilledBy(SIGTERM);
  stopped.set_stopped_by_worker(true);
  const Effects restarted = cluster.ReportExit("a", job, 0, stopped);
  const v1::Job again = cluster.Get(job);
  EXPECT_EQ(again.state(), v1::STARTING);
  EXPECT_EQ(again.generation(), 2u);
  EXPECT_EQ(again.restarts(), 1u);
  EXPECT_EQ(again.first_failure().reason(), reasons::kRankKilled);
  EXPECT_EQ(again.first_failure().rank(), 1u);
  EXPECT_EQ(again.first_failure().exit().signal(), SIGKILL);
  EXPECT_EQ(CountSent(restarted, cluster.session("a"), Message::kForget), 1);
  const Message* forget = FindSent(restarted, cluster.session("a"), Message::kForget);
  const Message* launch = FindSent(restarted, cluster.session("a"), Message::kLaunch);
  ASSERT_NE(launch, nullptr);
  EXPECT_LT(forget, launch);
  EXPECT_FALSE(forget->forget().job_ended());  // generation 2 may need what this one has left
  EXPECT_EQ(launch->launch().generation(), 2u);
  EXPECT_EQ(launch->launch().restarts(), 1u);
}

TEST(Lifecycle, RestartWithoutCapacityQueuesAtHead) {
  Harness cluster;
  cluster.Join("a");
  cluster.Join("b");
  const std::string job = cluster.Submit(MakeSpec(2));
  const std::string other = cluster.Submit(MakeSpec(2));
  cluster.BringUp(job);
  cluster.Run(absl::Seconds(11), {"a"});
  cluster.ExitAll(job, ExitWith(1));
  const v1::Job queued = cluster.Get(job);
  EXPECT_EQ(queued.state(), v1::QUEUED);
  EXPECT_EQ(queued.reason(), reasons::kNodeLost);
  EXPECT_EQ(queued.queue_position(), 1u);
  EXPECT_THAT(queued.message(), HasSubstr("b: LOST"));
  EXPECT_EQ(cluster.Get(other).queue_position(), 2u);
  cluster.Join("b", 1, /*incarnation=*/2);
  EXPECT_EQ(cluster.State(job), v1::STARTING);
  EXPECT_EQ(cluster.Get(job).generation(), 2u);
}

TEST(Lifecycle, ReportsSkippedSteps) {
  Harness cluster;
  cluster.Join("a", 2);
  const std::string job = cluster.Submit(MakeSpec(1, 2));
  const auto report = [&](uint32_t rank, uint64_t skipped) {
    v1::RankReport progress = Harness::MakeReport(rank, v1::CONNECTED);
    progress.mutable_progress()->set_step(10 + skipped);
    progress.mutable_progress()->set_loss_scale(512);
    progress.mutable_progress()->set_skipped_steps(skipped);
    cluster.Report("a", job, progress);
  };
  const auto events = [&] {
    const std::vector<std::string> types = cluster.EventTypes(job);
    return std::count(types.begin(), types.end(), events::kLossScaleLowered);
  };
  report(0, 0);
  EXPECT_EQ(events(), 0);
  // All ranks skip the same steps; rank 0 reports them.
  report(1, 3);
  EXPECT_EQ(events(), 0);
  report(0, 3);
  report(0, 3);
  EXPECT_EQ(events(), 1);
  report(0, 5);
  EXPECT_EQ(events(), 1) << "the number has not doubled yet";
  report(0, 6);
  EXPECT_EQ(events(), 2);
  report(0, 2);
  EXPECT_EQ(events(), 2) << "restarted from a checkpoint";
}

TEST(Lifecycle, ReportsLostOutput) {
  Harness cluster;
  cluster.Join("a", 2);
  const std::string job = cluster.Submit(MakeSpec(1, 2));
  const auto report = [&](uint32_t rank, uint64_t lines, bool exits) {
    v1::RankReport lost = Harness::MakeReport(rank, exits ? v1::EXITED : v1::STARTED);
    lost.mutable_lost_output()->set_lines(lines);
    lost.mutable_lost_output()->set_bytes(100 * lines);
    lost.mutable_lost_output()->set_reason("No space left on device");
    cluster.Report("a", job, lost);
  };
  const auto events = [&] {
    std::vector<std::string> messages;
    const auto all = cluster.core().ListEvents(JobId(job), 0);
    for (const v1::JobEvent& event : *all) {
      if (event.type() == events::kLogLinesLost) messages.push_back(event.message());
    }
    return messages;
  };
  report(1, 12, false);
  report(1, 13, false);
  report(0, 1, false);
  const char kFirst[] =
      "rank 1 on a: 12 lines (1200 bytes) of its logs have been lost: No space left on device";
  EXPECT_THAT(events(), ElementsAre(kFirst)) << "once per node while the ranks run";
  EXPECT_THAT(cluster.Get(job).warnings(),
              ElementsAre("rank 1: node a could not store all output, so logs lack lines: No space "
                          "left on device"));
  cluster.Restart();
  cluster.Join("a", 2);
  report(0, 1, true);
  report(1, 1447, true);
  report(1, 1447, true);
  EXPECT_THAT(
      events(),
      ElementsAre(
          kFirst, "rank 0 on a: 1 line (100 bytes) of its logs are lost: No space left on device",
          "rank 1 on a: 1447 lines (144700 bytes) of its logs are lost: No space left on device"));
}

TEST(Lifecycle, NonRetryableFailureKeepsItsExitCode) {
  Harness cluster;
  cluster.Join("a", 2);
  const std::string job = cluster.Submit(MakeSpec(1, 2));
  v1::RankReport report = Harness::MakeReport(1, v1::STARTED);
  report.mutable_failure()->set_code(static_cast<int>(absl::StatusCode::kNotFound));
  report.mutable_failure()->set_message("/data: no such directory");
  report.mutable_failure()->set_not_retryable(true);
  cluster.Report("a", job, report);
  EXPECT_EQ(cluster.State(job), v1::STOPPING);
  cluster.ReportExit("a", job, 1, ExitWith(66));
  cluster.ReportExit("a", job, 0, ExitWith(1));
  const v1::Job failed = cluster.Get(job);
  EXPECT_EQ(failed.state(), v1::FAILED);
  EXPECT_EQ(failed.exit_code(), 66);
  EXPECT_THAT(failed.message(), HasSubstr("rank 1 on a exited with code 66: /data: no such"));
}

TEST(Lifecycle, CancelWhileStoppingForARestart) {
  Harness cluster;
  cluster.Join("a", 2);
  const std::string job = cluster.Submit(MakeSpec(1, 2));
  cluster.ReportExit("a", job, 0, ExitWith(3));
  EXPECT_EQ(cluster.State(job), v1::STOPPING);
  ASSERT_TRUE(cluster.Cancel(job).ok());
  cluster.ExitAll(job, ExitWith(0));
  const v1::Job cancelled = cluster.Get(job);
  EXPECT_EQ(cancelled.state(), v1::CANCELLED);
  EXPECT_EQ(cancelled.reason(), reasons::kCancelledByUser);
  EXPECT_EQ(cancelled.exit_code(), 1);
  EXPECT_EQ(cancelled.first_failure().exit().exit_code(), 3);
}

TEST(Lifecycle, CancelledRanksDoNotCountAsFailure) {
  Harness cluster;
  cluster.Join("a");
  const std::string job = cluster.Submit(MakeSpec(1));
  cluster.BringUp(job);
  ASSERT_TRUE(cluster.Cancel(job).ok());
  v1::ExitInfo exit = testing::KilledBy(SIGTERM);
  exit.set_stopped_by_worker(true);
  cluster.ExitAll(job, exit);
  EXPECT_EQ(cluster.State(job), v1::CANCELLED);
  EXPECT_FALSE(cluster.Get(job).has_first_failure());
}

TEST(Lifecycle, ShorterGracePeriodReplacesLonger) {
  Harness cluster;
  cluster.Join("a");
  const std::string job = cluster.Submit(MakeSpec(1));
  ASSERT_TRUE(cluster.Cancel(job).ok());
  const Effects effects = cluster.Step(CancelJob{RequestId(900), job, absl::Seconds(1)});
  const Message* stop = FindSent(effects, cluster.session("a"), Message::kStop);
  ASSERT_NE(stop, nullptr);
  EXPECT_EQ(FromProto(stop->stop().grace_period()), absl::Seconds(1));
}

TEST(Lifecycle, TimeLimitExitCodeIs124) {
  Harness cluster;
  const std::string job = MakeJobIn(cluster, v1::TIMED_OUT);
  EXPECT_EQ(cluster.Get(job).exit_code(), 124);
  EXPECT_EQ(cluster.Get(job).reason(), reasons::kTimeLimit);
}

TEST(Lifecycle, RendezvousTimeoutNamesMissingRanks) {
  Harness cluster;
  cluster.Join("a");
  cluster.Join("b");
  const std::string job = cluster.Submit(MakeSpec(2));
  cluster.ReportPhase("a", job, 0, v1::STARTED);
  const v1::Job waiting = cluster.Get(job);
  ASSERT_EQ(waiting.waits_size(), 1);
  EXPECT_EQ(waiting.waits(0).what(), "rendezvous");
  ASSERT_EQ(waiting.waits(0).missing_size(), 1);
  EXPECT_EQ(waiting.waits(0).missing(0).rank(), 1u);
  EXPECT_EQ(waiting.waits(0).missing(0).node(), "b");
  cluster.Run(absl::Seconds(61), {"a", "b"});
  EXPECT_EQ(cluster.State(job), v1::STOPPING);
  const v1::FirstFailure failure = cluster.Get(job).first_failure();
  EXPECT_EQ(failure.reason(), reasons::kRendezvousTimedOut);
  EXPECT_EQ(failure.rank(), 1u);
  EXPECT_THAT(failure.message(),
              HasSubstr("rendezvous timed out after 60.0 s, waiting for rank 1 (node b, phase "
                        "PLACED, no report for 60.0 s)"));
}

TEST(Lifecycle, IdempotencyKeyReturnsSameJob) {
  Harness cluster;
  const std::string job = cluster.Submit(MakeSpec(1), "key");
  EXPECT_EQ(cluster.Submit(MakeSpec(2), "key"), job);
  cluster.Restart();
  EXPECT_EQ(cluster.Submit(MakeSpec(3), "key"), job);
  const Effects effects =
      cluster.Step(SubmitJob{RequestId(901), JobId("other"), MakeSpec(1), "key"});
  ASSERT_EQ(effects.replies.size(), 1u);
  EXPECT_TRUE(effects.replies[0].already_existed);
}

TEST(Lifecycle, RejectsDuplicateJobId) {
  Harness cluster;
  const std::string job = cluster.Submit(MakeSpec(1));
  const Effects effects = cluster.Step(SubmitJob{RequestId(902), JobId(job), MakeSpec(1), ""});
  ASSERT_EQ(effects.replies.size(), 1u);
  EXPECT_EQ(effects.replies[0].job.status().code(), absl::StatusCode::kAborted);
}

TEST(Lifecycle, ElasticJobUsesLargestWorldThatFits) {
  Harness cluster;
  for (const char* node : {"a", "b", "c"}) cluster.Join(node);
  v1::JobSpec spec = MakeSpec(1);
  spec.mutable_resources()->mutable_nodes()->set_max(8);
  const std::string job = cluster.Submit(spec);
  EXPECT_EQ(cluster.Get(job).ranks_size(), 3);
}

TEST(Lifecycle, UnknownJobsAreNotFound) {
  Harness cluster;
  EXPECT_EQ(cluster.Cancel("nope").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(cluster.Hold("nope").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(cluster.Release("nope").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(cluster.core().ResolveJob("nope").status().code(), absl::StatusCode::kNotFound);
}

TEST(Lifecycle, JobsAreFoundByUniquePrefix) {
  Harness cluster;
  const std::string one = cluster.Submit(MakeSpec(1));
  EXPECT_EQ(cluster.core().ResolveJob("jo")->value(), one);
  cluster.Submit(MakeSpec(1));
  EXPECT_EQ(cluster.core().ResolveJob("jo").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(cluster.core().ResolveJob(one)->value(), one);
}

TEST(Lifecycle, RecordsEventsInOrder) {
  Harness cluster;
  cluster.Join("a");
  const std::string job = cluster.Submit(MakeSpec(1));
  cluster.BringUp(job);
  cluster.ExitAll(job, ExitWith(0));
  EXPECT_THAT(cluster.EventTypes(job),
              ElementsAre(events::kSubmitted, events::kPlaced, events::kWorldSent, events::kRunning,
                          events::kStopping, events::kFinished));
  const auto later = cluster.core().ListEvents(JobId(job), 4);
  ASSERT_TRUE(later.ok());
  EXPECT_EQ(later->size(), 2u);
}

TEST(Lifecycle, StatsCountEvents) {
  Harness cluster;
  cluster.Join("a");
  const std::string job = cluster.Submit(MakeSpec(1));
  cluster.BringUp(job);
  cluster.ExitAll(job, ExitWith(3));
  cluster.BringUp(job);
  cluster.ExitAll(job, ExitWith(0));
  const Stats stats = cluster.core().TakeStats();
  EXPECT_EQ(testing::TotalOf(stats, "muster_jobs_submitted_total"), 1);
  EXPECT_EQ(testing::TotalOf(stats, "muster_jobs_finished_total",
                             {"succeeded", std::string(reasons::kCompleted)}),
            1);
  EXPECT_EQ(
      testing::TotalOf(stats, "muster_job_restarts_total", {std::string(reasons::kRankFailed)}), 1);
  EXPECT_EQ(testing::SamplesOf(stats, "muster_queue_wait_seconds").size(), 2u);
  for (const char* phase : {"launch", "join", "communicators"}) {
    EXPECT_EQ(testing::SamplesOf(stats, "muster_rendezvous_duration_seconds", {phase}).size(), 2u);
  }
  EXPECT_EQ(testing::SamplesOf(stats, "muster_recovery_duration_seconds").size(), 1u);
  EXPECT_TRUE(cluster.core().TakeStats().seconds.empty());
}

}  // namespace
}  // namespace muster::core
