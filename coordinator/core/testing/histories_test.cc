// Histories of runs in the whole core: their nodes, restarts of the coordinator, and their end.
#include "common/version.h"
#include "coordinator/core/records.h"
#include "coordinator/core/testing/harness.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using testing::ExitWith;
using testing::Harness;
using testing::MakeSpec;

class HistoriesInCore : public ::testing::Test {
 protected:
  void SetUp() override {
    v1::Hello hello = cluster_.MakeHello("a", 2);
    hello.set_software_version("9.8.7");
    for (uint32_t i = 0; i < 2; ++i) {
      v1::Slot& slot = *hello.mutable_slots(i);
      slot.set_kind("gpu");
      slot.set_uuid(i == 0 ? "GPU-0" : "GPU-1");
      slot.mutable_device()->set_name("NVIDIA H200");
      slot.mutable_device()->set_driver_version("560.1");
    }
    cluster_.Open(hello);
    job_ = cluster_.Submit(MakeSpec(1, 2));
    cluster_.BringUp(job_);
    ASSERT_EQ(cluster_.State(job_), v1::RUNNING);
  }
  void ReportStep(uint32_t rank, uint64_t step) {
    v1::RankReport report = Harness::MakeReport(rank, v1::CONNECTED);
    report.mutable_progress()->set_step(step);
    report.mutable_progress()->set_loss(1.5);
    cluster_.Report("a", job_, report);
  }
  v1::JobHistory History() {
    return *cluster_.core().GetJobHistory(JobId(job_), 0, cluster_.now());
  }

  Harness cluster_;
  std::string job_;
};

TEST_F(HistoriesInCore, HaveCurveOfRankZeroAndNodes) {
  ReportStep(1, 3);
  ReportStep(0, 4);
  const v1::JobHistory history = History();
  EXPECT_EQ(history.job().job_id(), job_);
  EXPECT_EQ(history.job().ranks_size(), 0);
  ASSERT_EQ(history.curves().points_size(), 1);
  EXPECT_EQ(history.curves().points(0).step(), 4u);
  ASSERT_EQ(history.nodes_size(), 1);
  EXPECT_EQ(history.nodes(0).software_version(), "9.8.7");
  ASSERT_EQ(history.nodes(0).devices_size(), 2);
  EXPECT_EQ(history.nodes(0).devices(0), "NVIDIA H200");
  EXPECT_EQ(history.nodes(0).driver_version(), "560.1");
  EXPECT_EQ(history.coordinator_version(), kSoftwareVersion);
}

TEST_F(HistoriesInCore, OutliveTheNodeAndTheCoordinator) {
  ReportStep(0, 4);
  cluster_.ExitAll(job_, ExitWith(0));
  ASSERT_EQ(cluster_.State(job_), v1::SUCCEEDED);
  const v1::JobHistory before = History();
  cluster_.CloseStream("a");
  cluster_.Restart();
  EXPECT_EQ(History().curves().SerializeAsString(), before.curves().SerializeAsString());
  EXPECT_EQ(History().nodes(0).SerializeAsString(), before.nodes(0).SerializeAsString());
  EXPECT_EQ(History().curves().points_size(), 1);
}

TEST_F(HistoriesInCore, AreDeletedWithTheJob) {
  cluster_.ExitAll(job_, ExitWith(0));
  ASSERT_EQ(cluster_.records().count(HistoryKey(job_)), 1u);
  cluster_.Step(RemoveJob{RequestId(99), job_});
  cluster_.Step(Tick{});
  EXPECT_EQ(cluster_.records().count(HistoryKey(job_)), 0u);
  EXPECT_FALSE(cluster_.core().GetJobHistory(JobId(job_), 0, cluster_.now()).ok());
}

TEST_F(HistoriesInCore, RecordWithoutAJobIsReported) {
  v1::HistoryRecord record;
  record.set_job_id("nobody");
  Core core(Harness::DefaultOptions());
  const std::vector<store::Record> records = {{PutSchema().key, *PutSchema().value},
                                              {HistoryKey("nobody"), record.SerializeAsString()}};
  EXPECT_EQ(core.Load(records, cluster_.now()).status().message(),
            "history record without a job: nobody");
}

}  // namespace
}  // namespace muster::core
