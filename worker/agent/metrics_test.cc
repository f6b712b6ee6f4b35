#include "worker/agent/metrics.h"

#include <map>
#include <string>

#include "common/metrics/differences.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "prometheus/text_serializer.h"
#include "worker/metric_families.h"

namespace muster::agent {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class MetricsTest : public ::testing::Test {
 protected:
  // The text of a scrape.
  std::string Text() const { return prometheus::TextSerializer().Serialize(metrics_.Collect()); }

  void Report(const v1::Progress& progress) {
    v1::RankReport report;
    report.set_rank(3);
    report.set_phase(v1::CONNECTED);
    *report.mutable_progress() = progress;
    report.set_memory_bytes(memory_bytes_);
    board_.Update("job-1", /*generation=*/1, report);
  }

  uint64_t memory_bytes_ = 0;
  ProgressBoard board_;
  WorkerStatus status_;
  const Metrics metrics_{board_, status_, /*slots=*/{{"cpu", 4}, {"gpu", 2}}};
};

TEST_F(MetricsTest, ExportsMetricsOfARank) {
  v1::Progress progress;
  progress.mutable_precision()->set_level("O0");
  progress.set_step(120);
  progress.set_loss(0.5);
  progress.set_train_accuracy(0.875);
  progress.set_test_accuracy(0.75);
  progress.set_test_loss(0.625);
  progress.set_stall_seconds(1.25);
  Report(progress);
  const std::string text = Text();
  const std::string labels = R"({job_id="job-1",rank="3"})";
  EXPECT_THAT(text, HasSubstr("muster_train_step" + labels + " 120\n"));
  EXPECT_THAT(text, HasSubstr("muster_train_loss" + labels + " 0.5\n"));
  EXPECT_THAT(text, HasSubstr("muster_train_accuracy_ratio" + labels + " 0.875\n"));
  EXPECT_THAT(text, HasSubstr("muster_test_accuracy_ratio" + labels + " 0.75\n"));
  EXPECT_THAT(text, HasSubstr("muster_test_loss" + labels + " 0.625\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE muster_loader_stall_seconds_total counter\n"));
  EXPECT_THAT(text, HasSubstr("muster_loader_stall_seconds_total" + labels + " 1.25\n"));
  EXPECT_THAT(text, HasSubstr("muster_worker_ranks{phase=\"CONNECTED\"} 1\n"));

  EXPECT_THAT(text, Not(HasSubstr("muster_train_loss_scale")));
  EXPECT_THAT(text, Not(HasSubstr("muster_train_skipped_steps_total")));

  progress.set_loss_scale(32768);
  progress.set_skipped_steps(2);
  progress.mutable_precision()->set_level("O2");
  progress.mutable_precision()->set_dtype("float16");
  progress.mutable_precision()->set_gradient_dtype("float32");
  Report(progress);
  EXPECT_THAT(Text(), HasSubstr("muster_train_loss_scale" + labels + " 32768\n"));
  EXPECT_THAT(Text(), HasSubstr("# TYPE muster_train_skipped_steps_total counter\n"));
  EXPECT_THAT(Text(), HasSubstr("muster_train_skipped_steps_total" + labels + " 2\n"));
  EXPECT_THAT(Text(), HasSubstr(R"(muster_train_precision_info{job_id="job-1",rank="3",)"
                                R"(precision="O2",dtype="float16",gradient_dtype="float32"} 1)"));

  progress.set_stall_seconds(2.5);
  Report(progress);
  EXPECT_THAT(Text(), HasSubstr("muster_loader_stall_seconds_total" + labels + " 2.5\n"));
}

TEST_F(MetricsTest, CommandsExportOnlyWhatTheyReport) {
  v1::Progress progress;
  Report(progress);
  EXPECT_THAT(Text(), Not(HasSubstr("job_id=\"job-1\"")));
  progress.set_step(3);
  Report(progress);
  EXPECT_THAT(Text(), HasSubstr("muster_train_step{job_id=\"job-1\",rank=\"3\"} 3\n"));
  EXPECT_THAT(Text(), Not(HasSubstr("muster_train_loss{")));
  EXPECT_THAT(Text(), Not(HasSubstr("_total{job_id")));
}

TEST_F(MetricsTest, TrainJobsExportResultsOnceTheyHaveThem) {
  v1::Progress progress;
  progress.mutable_precision()->set_level("O0");
  Report(progress);
  EXPECT_THAT(Text(), HasSubstr("muster_train_step{job_id=\"job-1\",rank=\"3\"} 0\n"));
  EXPECT_THAT(Text(), Not(HasSubstr("muster_train_loss{")));
  EXPECT_THAT(Text(), Not(HasSubstr("muster_test_accuracy_ratio{")));
  progress.set_step(1);
  progress.set_test_loss(2.3);
  Report(progress);
  EXPECT_THAT(Text(), HasSubstr("muster_train_loss{job_id=\"job-1\",rank=\"3\"} 0\n"));
  EXPECT_THAT(Text(), HasSubstr("muster_test_accuracy_ratio{job_id=\"job-1\",rank=\"3\"} 0\n"));
}

TEST_F(MetricsTest, ExportsTheMemoryOfARank) {
  memory_bytes_ = 1 << 20;
  Report(v1::Progress());
  EXPECT_THAT(Text(), HasSubstr("muster_rank_memory_bytes{job_id=\"job-1\",rank=\"3\"} 1048576\n"));
}

TEST_F(MetricsTest, ExportsTheFamiliesOfTheTable) {
  memory_bytes_ = 1 << 20;
  v1::Progress progress;
  progress.set_step(1);
  progress.set_test_loss(0.5);
  progress.set_loss_scale(32768);
  progress.mutable_precision()->set_level("O2");
  Report(progress);
  EXPECT_THAT(metrics::Differences(metrics_.Collect(), kWorkerFamilies), IsEmpty());
}

TEST_F(MetricsTest, ExportsWorkerMetricsWithoutRanks) {
  board_.SetSlotsInUse({{"cpu", 1}});
  const std::string text = Text();
  EXPECT_THAT(text, Not(HasSubstr("muster_train_")));
  EXPECT_THAT(text, HasSubstr("muster_worker_slots{kind=\"cpu\"} 4\n"));
  EXPECT_THAT(text, HasSubstr("muster_worker_slots{kind=\"gpu\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("muster_worker_slots_allocated{kind=\"cpu\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("muster_worker_slots_allocated{kind=\"gpu\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("muster_worker_session_up 0\n"));
}

}  // namespace
}  // namespace muster::agent
