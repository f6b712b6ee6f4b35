// Ranks that do not train the same thing are refused when they join, with both sides in words.
#include <string>

#include "coordinator/core/reasons.h"
#include "coordinator/core/testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using testing::CountSent;
using testing::Harness;
using ::testing::HasSubstr;
using testing::KilledBy;
using testing::MakeSpec;

v1::RankReport Joined(uint32_t rank, const std::string& version, const std::string& dataset) {
  v1::RankReport report = Harness::MakeReport(rank, v1::JOINED);
  const auto add = [&report](const char* name, const std::string& value) {
    v1::FingerprintEntry& entry = *report.mutable_join()->add_fingerprint();
    entry.set_name(name);
    entry.set_value(value);
  };
  add("version", version);
  if (!dataset.empty()) add("dataset", dataset);
  return report;
}

class FingerprintTest : public ::testing::Test {
 protected:
  void SetUp() override {
    cluster_.Join("node-1");
    cluster_.Join("node-2");
    job_ = cluster_.Submit(MakeSpec(2));
    cluster_.Report("node-1", job_, Joined(0, "1.0", "A"));
  }
  Harness cluster_;
  std::string job_;
};

TEST_F(FingerprintTest, EqualRanksGoOn) {
  const Effects last = cluster_.Report("node-2", job_, Joined(1, "1.0", "A"));
  EXPECT_EQ(CountSent(last, cluster_.session("node-2"), v1::CoordinatorMessage::kWorld), 1);
}

TEST_F(FingerprintTest, AnotherDatasetEndsTheJobForGood) {
  const Effects last = cluster_.Report("node-2", job_, Joined(1, "1.0", "B"));
  for (const char* node : {"node-1", "node-2"}) {
    EXPECT_EQ(CountSent(last, cluster_.session(node), v1::CoordinatorMessage::kWorld), 0);
    EXPECT_EQ(CountSent(last, cluster_.session(node), v1::CoordinatorMessage::kStop), 1);
  }
  cluster_.ExitAll(job_, KilledBy(15));
  const v1::Job job = cluster_.Get(job_);
  EXPECT_EQ(job.state(), v1::FAILED);
  EXPECT_EQ(job.restarts(), 0u);
  EXPECT_EQ(job.reason(), reasons::kFingerprintMismatch);
  EXPECT_EQ(job.first_failure().rank(), 1u);
  EXPECT_EQ(job.first_failure().node(), "node-2");
  EXPECT_THAT(
      job.message(),
      HasSubstr(
          "the ranks' dataset differs: rank 0 (node node-1) has A; rank 1 (node node-2) has B"));
}

TEST_F(FingerprintTest, SayingLessIsDifferent) {
  cluster_.Report("node-2", job_, Joined(1, "1.0", ""));
  EXPECT_EQ(cluster_.State(job_), v1::STOPPING);
  cluster_.ExitAll(job_, KilledBy(15));
  EXPECT_THAT(cluster_.Get(job_).message(), HasSubstr("has nothing"));
}

}  // namespace
}  // namespace muster::core
