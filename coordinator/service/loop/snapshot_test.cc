#include "coordinator/service/loop/snapshot.h"

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/core/testing/harness.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::service {
namespace {

using core::testing::Harness;
using core::testing::MakeCommandSpec;
using ::testing::SizeIs;

class SnapshotTest : public ::testing::Test {
 protected:
  std::vector<JobId> Submit(uint32_t count) {
    return cluster_.core().ListTasks(cluster_.SubmitArray(MakeCommandSpec(1), count, 0));
  }
  SteadyTime Refresh(const std::vector<JobId>& changed) {
    return publisher_.Refresh(cluster_.core(), changed, cluster_.now());
  }

  Harness cluster_;
  SnapshotPublisher publisher_{[](const core::Stats&) {}, [](const JobId&, const v1::Job*) {},
                               [this] { return cluster_.now(); }};
};

TEST_F(SnapshotTest, TakesAPartOfManyChangedJobs) {
  const std::vector<JobId> jobs = Submit(1100);
  const SteadyTime next = Refresh(jobs);
  EXPECT_THAT(publisher_.Get()->jobs, SizeIs(1024));
  ASSERT_LT(next, SteadyTime::Infinite());
  cluster_.Advance(next - cluster_.now().steady);
  EXPECT_EQ(Refresh({}), SteadyTime::Infinite());
  EXPECT_THAT(publisher_.Get()->jobs, SizeIs(1100));
}

TEST_F(SnapshotTest, KeepsTheNewestEndedJobs) {
  const std::vector<JobId> jobs = Submit(kEndedJobsShown + 3);
  for (size_t i = jobs.size() - 1; i > 0; --i) {  // the first one stays in the queue
    cluster_.Advance(absl::Seconds(1));
    ASSERT_TRUE(cluster_.Cancel(jobs[i].value()).ok());
  }
  cluster_.Advance(absl::Seconds(1));
  Refresh(jobs);
  const std::shared_ptr<const Snapshot> snapshot = publisher_.Get();
  std::set<std::string> shown;
  for (const auto& job : snapshot->jobs) shown.insert(job->job_id());
  std::set<std::string> expected;
  for (const JobId& job : jobs) expected.insert(job.value());
  for (size_t first : {jobs.size() - 1, jobs.size() - 2}) expected.erase(jobs[first].value());
  EXPECT_EQ(shown, expected);
}

}  // namespace
}  // namespace muster::service
