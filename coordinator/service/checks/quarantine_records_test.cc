// Quarantine of the job records that workers send for a recovery, and the jobs that corrections
// name.
#include <functional>
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "coordinator/service/checks/quarantine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "spec/spec.h"

namespace muster::service {
namespace {

using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A worker's record of a job, and its report.
void AddRecord(v1::JobRecords& records, const std::function<void(v1::Launch&)>& change = nullptr) {
  v1::Launch& launch = *records.add_launches();
  launch.set_job_id(absl::StrCat("job-", records.launches_size()));
  launch.set_generation(1);
  launch.set_node_count(1);
  launch.mutable_spec()->set_name("job");
  launch.mutable_spec()->add_command("true");
  spec::ApplyDefaults(*launch.mutable_spec());
  if (change != nullptr) change(launch);
  v1::GenerationReport& report = *records.add_reports();
  report.set_job_id(launch.job_id());
  report.set_generation(launch.generation());
}

TEST(QuarantineTest, DropsImpossibleRecords) {
  v1::WorkerMessage message;
  v1::JobRecords& records = *message.mutable_job_records();
  AddRecord(records);
  AddRecord(records);
  EXPECT_THAT(Quarantine(message).corrections, IsEmpty());
  EXPECT_EQ(records.launches_size(), 2);
  AddRecord(records, [](v1::Launch& launch) { launch.set_node_rank(1); });
  AddRecord(records, [](v1::Launch& launch) { launch.set_world_size(limits::kRanksPerJob + 1); });
  AddRecord(records, [](v1::Launch& launch) { launch.set_generation(0); });
  AddRecord(records, [](v1::Launch& launch) {
    launch.set_generation(std::numeric_limits<uint64_t>::max());
  });
  AddRecord(records, [](v1::Launch& launch) { launch.clear_spec(); });
  AddRecord(records, [](v1::Launch& launch) {
    launch.mutable_spec()->mutable_failure_timeout()->set_seconds(-1);
  });
  AddRecord(records);
  records.mutable_reports(8)->set_generation(2);
  AddRecord(records);
  const Quarantined result = Quarantine(message);
  EXPECT_THAT(result.corrections, Each(Field(&Correction::field, "job_records.launches")));
  ASSERT_EQ(result.corrections.size(), 7u);
  EXPECT_THAT(result.corrections[4].problem, HasSubstr("of job job-7 has an invalid spec"));
  EXPECT_THAT(result.corrections[5].problem, HasSubstr("failure_timeout"));
  EXPECT_THAT(result.corrections[6].problem, HasSubstr("job-9 has no report about its ranks"));
  ASSERT_EQ(records.launches_size(), 3);
  ASSERT_EQ(records.reports_size(), 3);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(records.launches(i).job_id(), records.reports(i).job_id());
  EXPECT_EQ(records.launches(2).job_id(), "job-10");
}

TEST(QuarantineTest, NamesAFewOfManyImpossibleRecords) {
  v1::WorkerMessage message;
  for (int i = 0; i < 1000; ++i) {
    AddRecord(*message.mutable_job_records(), [](v1::Launch& launch) { launch.clear_spec(); });
  }
  const Quarantined result = Quarantine(message);
  EXPECT_EQ(result.corrections.size(), 17u);
  EXPECT_THAT(result.corrections.back().problem, HasSubstr("984 more were dropped"));
}

TEST(QuarantineTest, NamesTheJobsOfCorrectedCalls) {
  v1::WorkerMessage put;
  put.mutable_put_key()->set_job_id("job-abcde");
  const Quarantined refused_put = Quarantine(put);
  ASSERT_EQ(refused_put.corrections.size(), 1u);
  EXPECT_EQ(refused_put.corrections[0].job_id, "job-abcde");
  EXPECT_EQ(refused_put.corrections[0].rank, std::nullopt);
  v1::WorkerMessage arrive;
  arrive.mutable_arrive_barrier()->set_job_id("job-abcde");
  arrive.mutable_arrive_barrier()->add_ranks(3);
  const Quarantined refused_arrival = Quarantine(arrive);
  ASSERT_EQ(refused_arrival.corrections.size(), 1u);
  EXPECT_EQ(refused_arrival.corrections[0].job_id, "job-abcde");
  EXPECT_EQ(refused_arrival.corrections[0].rank, 3u);
  v1::WorkerMessage inspection;
  v1::InspectionReport& report = *inspection.mutable_inspection();
  report.set_job_id("job-abcde");
  report.add_ranks()->set_rank(4);
  report.mutable_ranks(0)->set_cpu_ratio(-1);
  const Quarantined inspected = Quarantine(inspection);
  ASSERT_EQ(inspected.corrections.size(), 1u);
  EXPECT_EQ(inspected.corrections[0].job_id, "job-abcde");
  EXPECT_EQ(inspected.corrections[0].rank, 4u);
}

}  // namespace
}  // namespace muster::service
