// Setting the wall clock changes nothing. A cluster whose wall clock is set before every action
// does the same as one whose wall clock is right.
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/time/proto_time.h"
#include "coordinator/core/steady_clock.h"
#include "coordinator/core/testing/harness.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using testing::ExitWith;
using testing::Harness;
using testing::KilledBy;
using testing::MakeCommandSpec;

constexpr absl::Duration kYear = absl::Hours(365 * 24);

v1::JobSpec Limited(uint32_t nodes, absl::Duration limit) {
  v1::JobSpec spec = MakeCommandSpec(nodes);
  *spec.mutable_time_limit() = ToProto(limit);
  return spec;
}

// Reconnects the nodes with the ranks that they run.
void Reconnect(Harness& cluster) {
  for (const std::string node : {"a", "b"}) {
    v1::Hello hello = cluster.MakeHello(node, 1);
    for (const v1::Job& job : cluster.core().ListJobs({}, cluster.now())) {
      const v1::Job detailed = cluster.Get(job.job_id());
      for (const v1::RankStatus& rank : detailed.ranks()) {
        if (rank.node() != node || rank.phase() == v1::EXITED) continue;
        *hello.add_inventory() =
            cluster.MakeInventory(job.job_id(), {Harness::MakeReport(rank.rank(), v1::STARTED)});
      }
    }
    cluster.Open(hello);
  }
}

void Restart(Harness& cluster) {
  cluster.Restart();
  Reconnect(cluster);
}

// Returns what depends on the clock, without dates.
std::string Outcome(Harness& cluster) {
  std::string text = absl::StrCat(
      "next ", absl::FormatDuration(cluster.core().NextDeadline() - cluster.now().steady), "\n");
  v1::ListJobsRequest all;
  all.set_include_finished(true);
  for (const v1::Job& listed : cluster.core().ListJobs(all, cluster.now())) {
    const v1::Job job = cluster.Get(listed.job_id());
    absl::StrAppend(&text, job.job_id(), " ", v1::JobState_Name(job.state()), " ", job.message(),
                    " ", job.queue_position(), " ", job.generation(), " ",
                    job.goodput().ShortDebugString(), " ");
    for (const v1::Wait& wait : job.waits()) absl::StrAppend(&text, wait.ShortDebugString(), " ");
    if (job.has_estimated_start_time()) {
      absl::StrAppend(
          &text, "starts in ",
          absl::FormatDuration(FromProto(job.estimated_start_time()) - cluster.now().wall));
    }
    absl::StrAppend(&text, "\n");
  }
  for (const v1::Node& node : cluster.core().ListNodes(cluster.now())) {
    absl::StrAppend(&text, node.ShortDebugString(), "\n");
  }
  v1::GetReportResponse report = cluster.core().GetReport(7, cluster.now());
  const absl::Duration reported = cluster.now().wall - FromProto(report.since());
  report.clear_since();
  absl::StrAppend(&text, report.ShortDebugString(), absl::FormatDuration(reported));
  for (const v1::OwnerUse& use : cluster.core().ListOwnerUse(cluster.now())) {
    absl::StrAppend(&text, use.ShortDebugString());
  }
  return text;
}

class WallClock : public ::testing::TestWithParam<absl::Duration> {
 protected:
  // Does the same to both clusters, and compares them.
  void Do(const std::string& what, const std::function<void(Harness&)>& act) {
    back_ = !back_;
    set_.StepWallClock(back_ ? GetParam() : -GetParam());
    act(right_);
    act(set_);
    EXPECT_EQ(Outcome(set_), Outcome(right_)) << what;
  }
  void Run(absl::Duration time) {
    Do(absl::StrCat("run ", absl::FormatDuration(time)), [time](Harness& cluster) {
      cluster.Run(time, {"a", "b"});
    });
  }
  // Submits the same job to both.
  std::string Submit(const v1::JobSpec& spec) {
    std::string job;
    Do("submit", [&](Harness& cluster) { job = cluster.Submit(spec); });
    return job;
  }

  Harness right_;
  Harness set_;
  bool back_ = false;
};

TEST_P(WallClock, ChangesNothing) {
  Do("join", [](Harness& cluster) {
    cluster.Join("a");
    cluster.Join("b");
  });
  Run(absl::Seconds(20));  // heartbeats
  const std::string long_job = Submit(Limited(1, absl::Minutes(10)));
  Do("start", [&](Harness& cluster) { cluster.BringUp(long_job); });
  const std::string queued = Submit(Limited(2, absl::Minutes(1)));
  const std::string short_job = Submit(Limited(1, absl::Minutes(5)));
  Do("start", [&](Harness& cluster) { cluster.BringUp(short_job); });
  Run(absl::Minutes(3));
  Do("restart", Restart);
  Run(absl::Minutes(1));
  EXPECT_EQ(set_.State(short_job), v1::RUNNING);
  Run(absl::Minutes(2));
  EXPECT_EQ(set_.State(short_job), v1::STOPPING) << "its time limit has passed";
  Do("end", [&](Harness& cluster) { cluster.ExitAll(short_job, KilledBy(9)); });
  EXPECT_EQ(set_.State(short_job), v1::TIMED_OUT);

  // A job that fails at once is restarted after delays.
  v1::JobSpec failing = Limited(1, absl::Minutes(2));
  failing.mutable_restart()->set_max(10);
  const std::string delayed = Submit(failing);
  for (int i = 0; i < 6; ++i) {
    Do("fail", [&](Harness& cluster) {
      if (cluster.State(delayed) == v1::STARTING) cluster.BringUp(delayed);
      if (cluster.State(delayed) == v1::RUNNING) cluster.ExitAll(delayed, ExitWith(1));
    });
    Run(absl::Seconds(2));
    if (i == 4) Do("restart", Restart);
  }
  EXPECT_EQ(set_.State(delayed), v1::QUEUED);
  Do("hold", [&](Harness& cluster) { EXPECT_TRUE(cluster.Hold(delayed).ok()); });
  Run(absl::Seconds(30));
  Do("release", [&](Harness& cluster) { EXPECT_TRUE(cluster.Release(delayed).ok()); });
  Do("cancel", [&](Harness& cluster) {
    EXPECT_TRUE(cluster.Cancel(delayed).ok());
    cluster.ExitAll(delayed, KilledBy(15));
  });

  // The first job is moved away from its node, and has a minute for it.
  Do("drain", [&](Harness& cluster) {
    CordonNode cordon{NodeName("a"), "maintenance"};
    cordon.drain = true;
    cordon.deadline = absl::Minutes(1);
    cluster.Step(cordon);
  });
  Run(absl::Seconds(20));
  Do("restart", Restart);
  Run(absl::Seconds(20));
  Do("end", [&](Harness& cluster) {
    cluster.ExitAll(long_job, KilledBy(15));
    cluster.Step(UncordonNode{NodeName("a")});
  });
  Do("cancel", [&](Harness& cluster) { EXPECT_TRUE(cluster.Cancel(queued).ok()); });
  Run(absl::Minutes(2));
  // A node that is silent is lost on time.
  Do("silence", [](Harness& cluster) { cluster.Run(absl::Seconds(9), {"a"}); });
  EXPECT_NE(set_.StateOf("b"), v1::LOST);
  Do("silence", [](Harness& cluster) { cluster.Run(absl::Seconds(2), {"a"}); });
  EXPECT_EQ(set_.StateOf("b"), v1::LOST);
  EXPECT_EQ(set_.StateOf("a"), v1::READY);
}

INSTANTIATE_TEST_SUITE_P(Steps, WallClock,
                         ::testing::Values(absl::Hours(1), -absl::Hours(1), 10 * kYear,
                                           -10 * kYear));

// The machine reboots with a wall clock that is wrong.
TEST(Reboot, WallClockCountsWithinBounds) {
  for (const absl::Duration step : {absl::Hours(1), 10 * kYear, -10 * kYear}) {
    Harness cluster;
    cluster.Join("a");
    cluster.Join("b");
    const std::string job = cluster.Submit(Limited(1, absl::Hours(48)));
    cluster.BringUp(job);
    cluster.Run(absl::Minutes(1), {"a", "b"});
    cluster.Advance(absl::Minutes(4));
    cluster.StepWallClock(step);
    cluster.Reboot();
    Reconnect(cluster);
    const double charged = cluster.core().GetReport(7, cluster.now()).total().cpu_slot_seconds();
    const absl::Duration expected = step < absl::ZeroDuration() ? absl::ZeroDuration()
                                    : step == absl::Hours(1)    ? absl::Minutes(64)
                                                                : kLongestDowntime;
    EXPECT_NEAR(charged, absl::ToDoubleSeconds(absl::Minutes(1) + expected), 60) << step;
    cluster.Run(absl::Minutes(1), {"a", "b"});
    EXPECT_EQ(cluster.State(job), v1::RUNNING);
  }
}

}  // namespace
}  // namespace muster::core
