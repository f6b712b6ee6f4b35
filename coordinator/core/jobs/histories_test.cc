#include "coordinator/core/jobs/histories.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "coordinator/core/records.h"
#include "coordinator/core/testing/parts.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using testing::Advance;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::Start;
using testing::Submit;

class HistoriesTest : public ::testing::Test {
 protected:
  Job& Begin(const std::string& id) {
    Job& job = Submit(jobs_, id);
    Start(jobs_, job, {"a"});
    v1::NodeEnvironmentRecord node;
    node.set_node("a");
    node.set_software_version("1.2.3");
    histories_.BeginGeneration(job, {node});
    Written();
    return job;
  }
  void Report(Job& job, uint64_t step) {
    job.status.mutable_progress()->set_step(step);
    job.status.mutable_progress()->set_loss(1);
    histories_.AddProgress(job);
  }
  // The keys of the histories written since the last call; "-" for deleted ones.
  std::vector<std::string> Written() {
    histories_.WriteChanges();
    std::vector<std::string> keys;
    for (const store::Mutation& write : context_.effects.writes) {
      if (write.key.rfind(kHistoryPrefix, 0) != 0) continue;
      keys.push_back(absl::StrCat(write.value.has_value() ? "" : "-", write.key));
      if (write.value.has_value()) records_[write.key] = *write.value;
    }
    context_.effects = Effects();
    return keys;
  }

  Context context_ = testing::MakeContext();
  Jobs jobs_{context_};
  Histories histories_{context_, /*max_bytes=*/100'000};
  std::map<std::string, std::string> records_;
};

TEST_F(HistoriesTest, ProgressIsWrittenOnceAMinute) {
  Job& job = Begin("one");
  int writes = 0;
  for (uint64_t step = 1; step <= 300; ++step) {
    Advance(context_, absl::Seconds(1));
    Report(job, step);
    writes += Written().size();
  }
  EXPECT_EQ(writes, 5);
  histories_.EndGeneration(job);
  EXPECT_THAT(Written(), ElementsAre("history/one"));
  v1::HistoryRecord record;
  ASSERT_TRUE(record.ParseFromString(records_.at("history/one")));
  EXPECT_EQ(record.curves().steps_size(), 300);
}

TEST_F(HistoriesTest, RestoredHistoryIsTheSame) {
  Job& job = Begin("one");
  Report(job, 7);
  histories_.EndGeneration(job);
  Written();
  v1::HistoryRecord record;
  ASSERT_TRUE(record.ParseFromString(records_.at("history/one")));
  Histories again(context_);
  again.Restore(job, record);
  const v1::JobHistory view = again.View(job, 0);
  EXPECT_EQ(view.SerializeAsString(), histories_.View(job, 0).SerializeAsString());
  ASSERT_EQ(view.nodes_size(), 1);
  EXPECT_EQ(view.nodes(0).software_version(), "1.2.3");
  EXPECT_EQ(view.node_count(), 1u);
  EXPECT_FALSE(view.coordinator_version().empty());
  ASSERT_EQ(view.curves().points_size(), 1);
  EXPECT_EQ(view.curves().points(0).step(), 7u);
}

TEST_F(HistoriesTest, OldestAreDeletedBeyondTheLimit) {
  Job& first = Begin("first");
  Job& second = Begin("second");
  std::vector<std::string> written;
  for (Job* const job : {&first, &second, &Begin("third"), &Begin("fourth"), &Begin("fifth")}) {
    for (uint64_t step = 1; step <= limits::kCurvePoints; ++step) Report(*job, step);
    for (std::string& key : Written()) written.push_back(std::move(key));
  }
  EXPECT_THAT(written, Contains("-history/first"));
  EXPECT_EQ(histories_.View(first, 0).curves().points_size(), 0);
  EXPECT_EQ(histories_.View(jobs_.table.at(JobId("fifth")), 0).curves().points_size(),
            static_cast<int>(limits::kCurvePoints));
  Report(first, 1000);
  EXPECT_THAT(Written(), IsEmpty()) << "a deleted history stays deleted";
}

TEST_F(HistoriesTest, NodesAreBounded) {
  Job& job = Submit(jobs_, "large");
  Start(jobs_, job, {"a"});
  histories_.BeginGeneration(job, std::vector<v1::NodeEnvironmentRecord>(1000));
  EXPECT_EQ(histories_.View(job, 0).nodes_size(), limits::kHistoryNodes);
  EXPECT_EQ(histories_.View(job, 0).node_count(), 1000u);
}

TEST_F(HistoriesTest, RemoveReturnsTheKey) {
  Job& job = Begin("one");
  EXPECT_EQ(histories_.Remove(job), "history/one");
  EXPECT_EQ(histories_.Remove(job), std::nullopt);
  EXPECT_THAT(Written(), IsEmpty());
}

}  // namespace
}  // namespace muster::core
