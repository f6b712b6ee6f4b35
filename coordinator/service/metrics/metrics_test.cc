#include "coordinator/service/metrics/metrics.h"

#include <memory>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/metrics/differences.h"
#include "common/time/proto_time.h"
#include "coordinator/metric_families.h"
#include "coordinator/service/auth/audit_log.h"
#include "coordinator/service/metrics/grpc_metrics.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "prometheus/text_serializer.h"

namespace muster::service {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const Time kNow = {SteadyTime(absl::Hours(1)), absl::FromUnixSeconds(1700000000)};

std::string Text(const prometheus::Collectable& collectable) {
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, collectable.Collect());
  return out.str();
}

std::shared_ptr<v1::Job> MakeJob(const std::string& id, v1::JobState state) {
  auto job = std::make_shared<v1::Job>();
  job->set_job_id(id);
  job->set_state(state);
  job->mutable_spec()->set_name("a \"name\"\n");
  job->mutable_spec()->mutable_train();
  job->mutable_progress()->set_step(12);
  job->mutable_progress()->set_loss(0.5);
  job->mutable_progress()->set_train_accuracy(0.75);
  job->mutable_progress()->set_test_accuracy(0.625);
  job->mutable_progress()->set_test_loss(0.9);
  job->set_slowdown(1.25);
  *job->mutable_spec()->mutable_train()->mutable_checkpoint()->mutable_every() =
      ToProto(absl::Minutes(10));
  return job;
}

class SnapshotMetricsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    snapshot_->taken = kNow;
    v1::Node node;
    node.set_name("node-1");
    node.set_state(v1::READY);
    *node.mutable_heartbeat_age() = ToProto(absl::Milliseconds(500));
    node.set_failed_launches(2);
    *node.mutable_cool_down() = ToProto(absl::Seconds(30));
    node.add_slots()->set_job_id("job-1");
    node.add_slots()->set_unavailable("Xid 79");
    v1::Slot& returning = *node.add_slots();
    returning.set_unavailable("memory");
    returning.set_returning(true);
    snapshot_->nodes.push_back(node);
    snapshot_->jobs.push_back(MakeJob("job-1", v1::RUNNING));
    snapshot_->checkpointed["job-1"] = kNow.steady - absl::Seconds(90);
    snapshot_->waits.push_back(
        {JobId("job-1"), "barrier a \"group\"\n", kNow.steady - absl::Seconds(3), 2});
    stats_.Count("muster_jobs_submitted_total", {}, 3);
    stats_.Count("muster_jobs_finished_total", {"succeeded", "Completed"}, 2);
    stats_.Count("muster_jobs_evicted_total", {"memory"}, 6);
    stats_.Count("muster_job_restarts_total", {"NodeLost"});
    stats_.Count("muster_job_hangs_total", {}, 3);
    stats_.Count("muster_job_checkpoint_failures_total", {}, 5);
    stats_.Count("muster_quarantined_reports_total", {"progress.phase"}, 2);
    stats_.Count("muster_unkillable_ranks_total", {}, 4);
    stats_.Count("muster_stragglers_total", {"compute"}, 2);
    core::Ledger settled;
    settled.Add({v1::TIME_REDONE, "", absl::Seconds(1.5), absl::Seconds(1.5)});
    stats_.OnTimeSettled(settled);
    snapshot_->totals = stats_.Take();
    snapshot_->totals.lost_slot_seconds_by_node = {{"node-1", 7}, {"removed", 8}};
  }
  std::string Collect() const {
    return Text(SnapshotMetrics([this] { return snapshot_; }, [this] { return now_; }));
  }
  core::StatsCollector stats_;
  const std::shared_ptr<Snapshot> snapshot_ = std::make_shared<Snapshot>();
  Time now_ = kNow;
};

TEST_F(SnapshotMetricsTest, ReportsValues) {
  const std::string text = Collect();
  for (const char* line : {"muster_jobs_submitted_total 3",
                           "muster_jobs{state=\"running\"} 1",
                           "muster_jobs{state=\"queued\"} 0",
                           "muster_jobs_finished_total{state=\"succeeded\",reason=\"Completed\"} 2",
                           "muster_jobs_evicted_total{reason=\"memory\"} 6",
                           "muster_job_restarts_total{cause=\"NodeLost\"} 1",
                           "muster_job_hangs_total 3",
                           "muster_job_slot_seconds_total{cause=\"redone\"} 1.5",
                           "muster_node_lost_slot_seconds_total{node=\"node-1\"} 7",
                           "muster_stragglers_total{phase=\"compute\"} 2",
                           "muster_straggler_score_ratio{job_id=\"job-1\"} 1.25",
                           "muster_job_checkpoint_failures_total 5",
                           "muster_job_hung{job_id=\"job-1\"} 0",
                           "muster_job_checkpoint_age_seconds{job_id=\"job-1\"} 90",
                           "muster_job_checkpoint_interval_seconds{job_id=\"job-1\"} 600",
                           "muster_node_up{node=\"node-1\"} 1",
                           "muster_nodes{state=\"ready\"} 1",
                           "muster_slots 3",
                           "muster_slots_allocated 1",
                           "muster_unkillable_ranks_total 4",
                           "muster_node_failed_launches{node=\"node-1\"} 2",
                           "muster_nodes_cooling_down 1",
                           "muster_slots_unhealthy 1",
                           "muster_train_step{job_id=\"job-1\"} 12",
                           "muster_train_loss{job_id=\"job-1\"} 0.5",
                           "muster_train_accuracy_ratio{job_id=\"job-1\"} 0.75",
                           "muster_test_accuracy_ratio{job_id=\"job-1\"} 0.625"}) {
    EXPECT_THAT(text, HasSubstr(absl::StrCat(line, "\n")));
  }
}

TEST_F(SnapshotMetricsTest, ReportsHungJobsAndLostNodes) {
  const auto hung = MakeJob("job-2", v1::RUNNING);
  hung->mutable_hang();
  snapshot_->jobs.push_back(hung);
  snapshot_->nodes[0].set_state(v1::LOST);
  EXPECT_THAT(Collect(), HasSubstr("muster_job_hung{job_id=\"job-2\"} 1\n"));
  EXPECT_THAT(Collect(), HasSubstr("muster_node_up{node=\"node-1\"} 0\n"));
}

TEST_F(SnapshotMetricsTest, CheckpointAgeIsOfJobsThatWriteCheckpointsByTime) {
  now_.steady = now_.steady + absl::Seconds(10);
  EXPECT_THAT(Collect(), HasSubstr("muster_job_checkpoint_age_seconds{job_id=\"job-1\"} 100\n"));
  const auto without = [&](void (*change)(v1::CheckpointSpec&)) {
    const auto job = MakeJob("job-1", v1::RUNNING);
    change(*job->mutable_spec()->mutable_train()->mutable_checkpoint());
    snapshot_->jobs = {job};
    return Collect();
  };
  EXPECT_THAT(without([](v1::CheckpointSpec& spec) { spec.set_keep(0); }),
              Not(HasSubstr("muster_job_checkpoint_age")));
  EXPECT_THAT(without([](v1::CheckpointSpec& spec) { spec.clear_every(); }),
              Not(HasSubstr("muster_job_checkpoint_age")));
}

TEST_F(SnapshotMetricsTest, NodesThatWereRemovedHaveNoSeries) {
  EXPECT_THAT(Collect(), Not(HasSubstr("removed")));
}

TEST_F(SnapshotMetricsTest, JobsExportOnlyWhatTheyHave) {
  const auto command = MakeJob("job-2", v1::RUNNING);
  command->mutable_spec()->clear_train();
  command->mutable_progress()->Clear();
  command->mutable_progress()->set_phase("running");
  snapshot_->jobs.push_back(command);
  EXPECT_THAT(Collect(), HasSubstr("muster_job_info{job_id=\"job-2\""));
  EXPECT_THAT(Collect(), Not(::testing::ContainsRegex("(train|test)_[a-z_]+.job_id=\"job-2\"")));
  EXPECT_THAT(Collect(), Not(HasSubstr("muster_train_step{job_id=\"job-2\"")));
  command->mutable_progress()->set_step(3);
  EXPECT_THAT(Collect(), HasSubstr("muster_train_step{job_id=\"job-2\"} 3\n"));
  EXPECT_THAT(Collect(), Not(HasSubstr("muster_train_loss{job_id=\"job-2\"")));
  // A train job has a loss after its first step, and test results after its first evaluation.
  const auto train = MakeJob("job-3", v1::RUNNING);
  train->mutable_progress()->Clear();
  train->mutable_progress()->set_phase("loading-data");
  snapshot_->jobs.push_back(train);
  EXPECT_THAT(Collect(), HasSubstr("muster_train_step{job_id=\"job-3\"} 0\n"));
  EXPECT_THAT(Collect(), Not(HasSubstr("muster_train_loss{job_id=\"job-3\"")));
  train->mutable_progress()->set_step(1);
  EXPECT_THAT(Collect(), HasSubstr("muster_train_loss{job_id=\"job-3\"} 0\n"));
  EXPECT_THAT(Collect(), Not(HasSubstr("muster_test_accuracy_ratio{job_id=\"job-3\"")));
}

TEST_F(SnapshotMetricsTest, HeartbeatAgeGrowsBetweenSnapshots) {
  EXPECT_THAT(Collect(), HasSubstr("muster_node_heartbeat_age_seconds{node=\"node-1\"} 0.5\n"));
  now_.steady = now_.steady + absl::Seconds(2);
  EXPECT_THAT(Collect(), HasSubstr("muster_node_heartbeat_age_seconds{node=\"node-1\"} 2.5\n"));
}

TEST_F(SnapshotMetricsTest, ReportsLongWaits) {
  snapshot_->waits.push_back({JobId("job-2"), "rendezvous", kNow.steady - absl::Seconds(1), 4});
  snapshot_->waits.push_back({JobId("job-1"), "barrier b", kNow.steady - absl::Seconds(2), 5});
  // The oldest barrier, without the name that a program has chosen.
  const char* labels = "{job_id=\"job-1\",what=\"barrier\"}";
  EXPECT_THAT(Collect(), Not(HasSubstr("group")));
  EXPECT_THAT(Collect(), Not(HasSubstr("barrier b")));
  EXPECT_THAT(Collect(), HasSubstr(absl::StrCat("muster_wait_seconds", labels, " 3\n")));
  EXPECT_THAT(Collect(), HasSubstr(absl::StrCat("muster_wait_missing_ranks", labels, " 2\n")));
  EXPECT_THAT(Collect(), Not(HasSubstr("rendezvous")));
  now_.steady = now_.steady + absl::Milliseconds(1500);
  EXPECT_THAT(Collect(),
              HasSubstr("muster_wait_seconds{job_id=\"job-2\",what=\"rendezvous\"} 2.5\n"))
      << "grows between snapshots";
}

TEST_F(SnapshotMetricsTest, SeriesEndSomeTimeAfterTheirJob) {
  const auto job = MakeJob("job-2", v1::FAILED);
  *job->mutable_finish_time() = ToProto(kNow.wall);
  snapshot_->jobs.push_back(job);
  EXPECT_THAT(Collect(), HasSubstr("job-2"));
  EXPECT_THAT(Collect(), HasSubstr("muster_jobs{state=\"running\"} 1\n"));
  now_.wall += kEndedJobsStay;
  EXPECT_THAT(Collect(), Not(HasSubstr("job-2")));
  EXPECT_THAT(Collect(), HasSubstr("job-1"));
}

TEST_F(SnapshotMetricsTest, ExportsTheFamiliesOfTheTable) {
  Metrics metrics;
  core::Stats stats;
  for (const metrics::Family& family : kCoreFamilies) {
    core::Series series{&family, std::vector<std::string>(family.label_names().size(), "any")};
    if (family.type == MetricType::Histogram) {
      stats.seconds[std::move(series)] = {0.1};
    } else {
      snapshot_->totals.totals[std::move(series)] = 1;
    }
  }
  metrics.Observe(stats);
  GrpcMetrics grpc_metrics(*metrics.registry());
  grpc_metrics.Handled("/muster.v1.ClusterService/GetJob", grpc::StatusCode::OK,
                       absl::Milliseconds(1));
  const AuditLog audit_log({}, *metrics.registry());
  std::vector<prometheus::MetricFamily> families = metrics.registry()->Collect();
  for (const auto& family :
       SnapshotMetrics([this] { return snapshot_; }, [this] { return now_; }).Collect()) {
    families.push_back(family);
  }
  EXPECT_THAT(metrics::Differences(families, AllCoordinatorFamilies()), IsEmpty());
}

// The rules of `promtool check metrics` and of the text format.
TEST_F(SnapshotMetricsTest, FollowsFormatAndNamingRules) {
  Metrics metrics;
  stats_.Observe("muster_queue_wait_seconds", absl::Milliseconds(500));
  for (const int milliseconds : {100, 200}) {
    stats_.Observe("muster_rendezvous_duration_seconds", absl::Milliseconds(milliseconds),
                   {"join"});
  }
  metrics.Observe(stats_.Take());
  metrics.ObserveLag(absl::Milliseconds(3));
  GrpcMetrics grpc_metrics(*metrics.registry());
  grpc_metrics.Handled("/muster.v1.ClusterService/GetJob", grpc::StatusCode::NOT_FOUND,
                       absl::Milliseconds(1));
  grpc_metrics.Handled("/made.up/Method", grpc::StatusCode::UNIMPLEMENTED, absl::Milliseconds(1));
  const std::string text = Collect() + Text(*metrics.registry());
  EXPECT_THAT(text, HasSubstr("muster_queue_wait_seconds_count 1\n"));
  EXPECT_THAT(text, HasSubstr("muster_rendezvous_duration_seconds_count{phase=\"join\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("grpc_method=\"GetJob\""));
  EXPECT_THAT(text, HasSubstr("grpc_code=\"NOT_FOUND\""));
  EXPECT_THAT(text, Not(HasSubstr("made.up")));

  const std::regex sample(
      R"re(([a-z_]+)(\{[a-z_]+="([^"\\\n]|\\.)*"(,[a-z_]+="([^"\\\n]|\\.)*")*\})? \S+)re");
  std::set<std::string> typed;
  std::string type;
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    if (absl::StartsWith(line, "# ")) {
      const std::vector<std::string> words = absl::StrSplit(line, absl::MaxSplits(' ', 3));
      ASSERT_EQ(words.size(), 4) << line;
      if (words[1] != "TYPE") continue;
      type = words[3];
      EXPECT_TRUE(typed.insert(words[2]).second) << words[2] << " appears twice";
      EXPECT_EQ(absl::EndsWith(words[2], "_total"), type == "counter") << words[2];
      EXPECT_TRUE(absl::StartsWith(words[2], "muster_") || absl::StartsWith(words[2], "grpc_"));
      continue;
    }
    EXPECT_TRUE(std::regex_match(std::string(line), sample)) << line;
  }
}

}  // namespace
}  // namespace muster::service
