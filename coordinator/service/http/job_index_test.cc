#include "coordinator/service/http/job_index.h"

#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/time/proto_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::service {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

class JobIndexTest : public ::testing::Test {
 protected:
  static v1::Job MakeJob(const std::string& id, v1::JobState state) {
    v1::Job job;
    job.set_job_id(id);
    job.set_owner("Alice");
    job.set_state(state);
    return job;
  }
  // Later calls put newer jobs.
  v1::Job Put(const std::string& id, v1::JobState state) {
    v1::Job job = MakeJob(id, state);
    *job.mutable_submit_time() = ToProto(absl::FromUnixSeconds(++time_));
    index_.Put(job);
    return job;
  }
  std::vector<std::string> Ids(const JobIndex::Query& query) const {
    std::vector<std::string> ids;
    for (const JobIndex::Row& row : index_.Find(query)->rows) ids.push_back(row.id);
    return ids;
  }

  JobIndex index_;
  int64_t time_ = 1'700'000'000;
};

TEST_F(JobIndexTest, ActiveJobsComeFirstAndThenTheNewest) {
  Put("ended", v1::FAILED);
  Put("old", v1::RUNNING);
  Put("waiting", v1::QUEUED);
  Put("new", v1::STARTING);
  EXPECT_THAT(Ids({"", "", 0, 10}), ElementsAre("new", "old", "waiting", "ended"));
  EXPECT_THAT(
      index_.Find({"", "", 0, 10})->states,
      ElementsAre(Pair("failed", 1), Pair("queued", 1), Pair("running", 1), Pair("starting", 1)));
}

TEST_F(JobIndexTest, SelectsByTextAndState) {
  Put("train-a", v1::RUNNING);
  Put("train-b", v1::SUCCEEDED);
  Put("eval-c", v1::SUCCEEDED);
  EXPECT_THAT(Ids({"train", "", 0, 10}), ElementsAre("train-a", "train-b"));
  EXPECT_THAT(Ids({"alice", "ended", 0, 10}), ElementsAre("eval-c", "train-b"));
  EXPECT_THAT(Ids({"", "running,failed", 0, 10}), ElementsAre("train-a"));
  EXPECT_THAT(Ids({"nothing", "", 0, 10}), IsEmpty());
  EXPECT_THAT(Ids({"", "nonsense", 0, 10}), IsEmpty());
}

TEST_F(JobIndexTest, WindowIsPartOfTheSelection) {
  for (int i = 0; i < 25; ++i) Put(absl::StrCat("job-", i), v1::QUEUED);
  EXPECT_THAT(Ids({"", "", 10, 2}), ElementsAre("job-14", "job-13"));
  EXPECT_THAT(Ids({"", "", 24, 10}), ElementsAre("job-0"));
  EXPECT_THAT(Ids({"", "", 1000, 10}), IsEmpty());
  EXPECT_EQ(index_.Find({"", "", 10, 2})->total, 25u);
}

TEST_F(JobIndexTest, FindsAllOfManyJobs) {
  for (int i = 0; i < 2000; ++i) {
    Put(absl::StrCat(i % 2 == 0 ? "even-" : "odd-", i), v1::QUEUED);
  }
  const auto window = index_.Find({"even", "", 990, 20});
  EXPECT_EQ(window->total, 1000u);
  ASSERT_EQ(window->rows.size(), 10u);
  EXPECT_EQ(window->rows[0].id, "even-18");
  EXPECT_EQ(window->rows[9].id, "even-0");
}

TEST_F(JobIndexTest, FindsJobsWhileOthersChange) {
  for (int i = 0; i < 1500; ++i) Put(absl::StrCat("stable-", i), v1::RUNNING);
  std::thread core([this] {
    for (int i = 0; i < 2000; ++i) Put(absl::StrCat("other-", i % 10), v1::QUEUED);
  });
  for (int i = 0; i < 50; ++i) EXPECT_EQ(index_.Find({"stable", "", 0, 10})->total, 1500u);
  core.join();
}

TEST_F(JobIndexTest, ChangedJobMovesAndGetsAnotherRow) {
  v1::Job job = Put("a", v1::RUNNING);
  Put("b", v1::RUNNING);
  const auto before = index_.Find({"", "", 0, 10});
  job.set_state(v1::SUCCEEDED);
  index_.Put(job);
  const auto after = index_.Find({"", "", 0, 10});
  ASSERT_EQ(after->rows.size(), 2u);
  EXPECT_EQ(after->rows[0].id, "b");
  EXPECT_EQ(after->rows[0].json, before->rows[0].json)
      << "the row of b has not been rendered again";
  EXPECT_EQ(nlohmann::json::parse(*after->rows[1].json)["state"], "succeeded");
  index_.Erase(JobId("a"));
  EXPECT_THAT(Ids({"", "", 0, 10}), ElementsAre("b"));
  EXPECT_EQ(index_.Find({"", "", 0, 10})->states.count("succeeded"), 0u);
}

TEST_F(JobIndexTest, PagesWithTheSameQueryShareAWindow) {
  Put("a", v1::RUNNING);
  const auto window = index_.Find({"", "", 0, 10});
  EXPECT_EQ(index_.Find({"", "", 0, 10}), window);
  EXPECT_NE(index_.Find({"", "", 0, 9}), window);
  Put("b", v1::RUNNING);
  EXPECT_NE(index_.Find({"", "", 0, 10}), window);
}

}  // namespace
}  // namespace muster::service
