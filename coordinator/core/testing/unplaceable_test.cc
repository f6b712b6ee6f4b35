// Jobs that do not fit on the cluster do not block others; a job that fits once others end does.
#include "coordinator/core/reasons.h"
#include "coordinator/core/testing/harness.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using testing::ExitWith;
using testing::Harness;
using ::testing::HasSubstr;
using testing::MakeCommandSpec;

class Unplaceable : public ::testing::Test {
 protected:
  void Join(std::initializer_list<const char*> nodes) {
    for (const char* node : nodes) cluster_.Join(node);
  }
  v1::Job Get(const std::string& job) const { return cluster_.Get(job); }
  v1::JobState State(const std::string& job) const { return cluster_.State(job); }

  Harness cluster_;
};

TEST_F(Unplaceable, LargeJobDoesNotBlockOthers) {
  Join({"a", "b"});
  const std::string large = cluster_.Submit(MakeCommandSpec(50));
  EXPECT_EQ(
      Get(large).unplaceable(),
      "needs 50 nodes with 1 free slot; the cluster has 2 usable nodes of that size, 48 too few");
  EXPECT_EQ(Get(large).queue_position(), 1u);
  const std::string small = cluster_.Submit(MakeCommandSpec(1));
  EXPECT_EQ(State(small), v1::STARTING);
  EXPECT_EQ(State(large), v1::QUEUED);
  EXPECT_EQ(Get(small).unplaceable(), "");
  EXPECT_THAT(Get(large).waits(0).missing(0).reason(),
              HasSubstr("needs 50 nodes with 1 free slot; 1 available; the cluster has 2 usable"));
}

TEST_F(Unplaceable, JobIsReportedWithoutNodes) {
  const std::string job = cluster_.Submit(MakeCommandSpec(1));
  EXPECT_EQ(
      Get(job).unplaceable(),
      "needs 1 node with 1 free slot; the cluster has 0 usable nodes of that size, 1 too few");
  Join({"a"});
  EXPECT_EQ(State(job), v1::STARTING);
}

TEST_F(Unplaceable, HeadThatFitsLaterBlocksOthers) {
  Join({"a", "b"});
  const std::string running = cluster_.Submit(MakeCommandSpec(1));
  const std::string large = cluster_.Submit(MakeCommandSpec(2));
  const std::string small = cluster_.Submit(MakeCommandSpec(1));
  EXPECT_EQ(Get(large).unplaceable(), "");
  EXPECT_EQ(State(small), v1::QUEUED) << "small jobs must not starve the large one";
  EXPECT_THAT(Get(small).waits(0).missing(0).reason(), HasSubstr("waiting behind job " + large));
  cluster_.ExitAll(running, ExitWith(0));
  EXPECT_EQ(State(large), v1::STARTING);
}

// One of four nodes dies, and its job returns to the head of the queue.
TEST_F(Unplaceable, JobThatLostNodeDoesNotBlockOthers) {
  Join({"a", "b", "c", "d"});
  const std::string large = cluster_.Submit(MakeCommandSpec(4));
  const std::string behind = cluster_.Submit(MakeCommandSpec(1));
  cluster_.BringUp(large);
  EXPECT_EQ(State(behind), v1::QUEUED);
  cluster_.CloseStream("d");
  cluster_.Run(absl::Seconds(11), {"a", "b", "c"});
  for (const char* node : {"a", "b", "c"}) {
    cluster_.ReportExit(node, large, static_cast<uint32_t>(*node - 'a'), testing::KilledBy(15));
  }
  EXPECT_EQ(State(large), v1::QUEUED);
  EXPECT_EQ(Get(large).queue_position(), 1u);
  EXPECT_THAT(Get(large).unplaceable(), HasSubstr("the cluster has 3 usable nodes"));
  EXPECT_EQ(State(behind), v1::STARTING);

  cluster_.Join("d", 1, 2);
  EXPECT_EQ(Get(large).unplaceable(), "");
  const std::string late = cluster_.Submit(MakeCommandSpec(1));
  EXPECT_EQ(State(late), v1::QUEUED) << "the large job can be placed once the running one ends";
  cluster_.ExitAll(behind, ExitWith(0));
  EXPECT_EQ(State(large), v1::STARTING);
}

TEST_F(Unplaceable, CordonedNodeDoesNotCount) {
  Join({"a", "b"});
  cluster_.Step(CordonNode{NodeName("b"), ""});
  const std::string large = cluster_.Submit(MakeCommandSpec(2));
  const std::string small = cluster_.Submit(MakeCommandSpec(1));
  EXPECT_EQ(State(small), v1::STARTING);
  cluster_.Step(UncordonNode{NodeName("b")});
  EXPECT_EQ(Get(large).unplaceable(), "");
}

TEST_F(Unplaceable, CordonLetsOthersPass) {
  Join({"a", "b"});
  const std::string running = cluster_.Submit(MakeCommandSpec(1));
  const std::string large = cluster_.Submit(MakeCommandSpec(2));
  const std::string small = cluster_.Submit(MakeCommandSpec(1));
  cluster_.ExitAll(running, ExitWith(0));
  ASSERT_EQ(State(large), v1::STARTING);
  cluster_.Step(CordonNode{NodeName("b"), "", /*drain=*/true});
  cluster_.ExitAll(large, testing::KilledBy(15));
  EXPECT_EQ(State(large), v1::QUEUED);
  EXPECT_EQ(State(small), v1::STARTING);
}

TEST_F(Unplaceable, NodeWithBrokenStreamCountsWhileItsLeaseRuns) {
  Join({"a", "b"});
  cluster_.CloseStream("b");
  const std::string large = cluster_.Submit(MakeCommandSpec(2));
  const std::string small = cluster_.Submit(MakeCommandSpec(1));
  EXPECT_EQ(State(small), v1::QUEUED);
  cluster_.Run(absl::Seconds(11), {"a"});
  EXPECT_EQ(State(small), v1::STARTING) << "node b is lost";
}

// After a restart of the coordinator, small jobs do not overtake while nodes reconnect.
TEST_F(Unplaceable, RecordedNodesCountUntilTheyHadTimeToReconnect) {
  Join({"a", "b"});
  const std::string running = cluster_.Submit(MakeCommandSpec(2));
  const std::string large = cluster_.Submit(MakeCommandSpec(2));
  const std::string small = cluster_.Submit(MakeCommandSpec(1));
  for (const std::string& job : {large, small}) ASSERT_TRUE(cluster_.Hold(job).ok());
  cluster_.ExitAll(running, ExitWith(0));
  cluster_.Restart();
  for (const std::string& job : {large, small}) ASSERT_TRUE(cluster_.Release(job).ok());
  cluster_.Join("a");
  EXPECT_EQ(Get(large).unplaceable(), "") << "not known yet";
  EXPECT_EQ(State(small), v1::QUEUED);
  cluster_.Run(absl::Seconds(11), {"a"});
  EXPECT_THAT(Get(large).unplaceable(), HasSubstr("1 too few"));
  EXPECT_EQ(State(small), v1::STARTING);
}

}  // namespace
}  // namespace muster::core
