// Ranks with different fingerprints are refused when they join, with a message that names both
// sides.
#include <string>
#include <utility>
#include <vector>

#include "coordinator/core/reasons.h"
#include "coordinator/core/testing/harness.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using testing::CountSent;
using testing::Harness;
using testing::KilledBy;
using testing::MakeSpec;

using Entries = std::vector<std::pair<std::string, std::string>>;

v1::RankReport Joined(uint32_t rank, const Entries& entries) {
  v1::RankReport report = Harness::MakeReport(rank, v1::JOINED);
  for (const auto& [name, value] : entries) {
    v1::FingerprintEntry& entry = *report.mutable_join()->add_fingerprint();
    entry.set_name(name);
    entry.set_value(value);
  }
  return report;
}

class FingerprintTest : public ::testing::Test {
 protected:
  void SetUp() override {
    cluster_.Join("node-1", 2);
    cluster_.Join("node-2", 2);
    job_ = cluster_.Submit(MakeSpec(2, 2));
    cluster_.Report("node-1", job_, Joined(0, usual_));
    cluster_.Report("node-1", job_, Joined(1, usual_));
    cluster_.Report("node-2", job_, Joined(2, usual_));
  }
  // Returns the job's message after rank 3 has joined with this fingerprint.
  std::string MessageAfter(const Entries& entries) {
    cluster_.Report("node-2", job_, Joined(3, entries));
    cluster_.ExitAll(job_, KilledBy(15));
    return cluster_.Get(job_).message();
  }

  const Entries usual_ = {{"muster-rank", "1.0"}, {"dataset", "A"}, {"NCCL", "2.28.9"}};
  Harness cluster_;
  std::string job_;
};

TEST_F(FingerprintTest, EqualFingerprintsContinue) {
  const Effects last = cluster_.Report("node-2", job_, Joined(3, usual_));
  EXPECT_EQ(CountSent(last, cluster_.session("node-2"), v1::CoordinatorMessage::kWorld), 1);
}

TEST_F(FingerprintTest, IgnoresOrderOfEntries) {
  const Effects last = cluster_.Report("node-2", job_, Joined(3, {usual_.rbegin(), usual_.rend()}));
  EXPECT_EQ(CountSent(last, cluster_.session("node-2"), v1::CoordinatorMessage::kWorld), 1);
}

TEST_F(FingerprintTest, MismatchFailsJobWithTwoLines) {
  const Effects last = cluster_.Report(
      "node-2", job_, Joined(3, {{"muster-rank", "1.0"}, {"dataset", "A"}, {"NCCL", "2.27.3"}}));
  for (const char* node : {"node-1", "node-2"}) {
    EXPECT_EQ(CountSent(last, cluster_.session(node), v1::CoordinatorMessage::kWorld), 0);
    EXPECT_EQ(CountSent(last, cluster_.session(node), v1::CoordinatorMessage::kStop), 1);
  }
  cluster_.ExitAll(job_, KilledBy(15));
  const v1::Job job = cluster_.Get(job_);
  EXPECT_EQ(job.state(), v1::FAILED);
  EXPECT_EQ(job.restarts(), 0u);
  EXPECT_EQ(job.reason(), reasons::kFingerprintMismatch);
  EXPECT_EQ(job.first_failure().rank(), 3u);
  EXPECT_EQ(job.first_failure().node(), "node-2");
  EXPECT_EQ(job.message(), "node node-1 (rank 0): NCCL 2.28.9\nnode node-2 (rank 3): NCCL 2.27.3");
  EXPECT_EQ(job.first_failure().message(), job.message());
}

TEST_F(FingerprintTest, TwoLinesContainAllDifferences) {
  EXPECT_EQ(MessageAfter({{"muster-rank", "1.0"}, {"dataset", "B"}, {"NCCL", "2.27.3"}}),
            "node node-1 (rank 0): dataset A; NCCL 2.28.9\n"
            "node node-2 (rank 3): dataset B; NCCL 2.27.3");
}

TEST_F(FingerprintTest, MissingEntryIsAMismatch) {
  EXPECT_EQ(MessageAfter({{"muster-rank", "1.0"}, {"dataset", "A"}}),
            "node node-1 (rank 0): NCCL 2.28.9\nnode node-2 (rank 3): no NCCL");
}

TEST_F(FingerprintTest, AdditionalEntryIsAMismatch) {
  Entries more = usual_;
  more.emplace_back("driver", "580.65.06");
  EXPECT_EQ(MessageAfter(more),
            "node node-1 (rank 0): no driver\nnode node-2 (rank 3): driver 580.65.06");
}

}  // namespace
}  // namespace muster::core
