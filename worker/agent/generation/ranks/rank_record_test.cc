#include "worker/agent/generation/ranks/rank_record.h"

#include "gtest/gtest.h"

namespace muster::agent {
namespace {

TEST(MergeReport, PassesOnEveryChangeOfTheCheckpointStatusOnce) {
  v1::ReportRequest request;
  v1::RankReport report;
  EXPECT_FALSE(MergeReport(request, report));
  request.mutable_checkpoint()->set_dir("/checkpoints");
  EXPECT_TRUE(MergeReport(request, report));
  EXPECT_FALSE(MergeReport(request, report));
  request.mutable_checkpoint()->set_step(10);
  EXPECT_TRUE(MergeReport(request, report));
  request.mutable_checkpoint()->set_failures(1);
  EXPECT_TRUE(MergeReport(request, report));
  EXPECT_FALSE(MergeReport(request, report));
  EXPECT_EQ(report.checkpoint().step(), 10);
  EXPECT_EQ(report.checkpoint().failures(), 1);
}

}  // namespace
}  // namespace muster::agent
