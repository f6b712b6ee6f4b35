#include "cli/text/array_text.h"

#include "cli/text/job_text.h"
#include "common/time/proto_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace muster::cli {
namespace {

using ::testing::HasSubstr;

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);

v1::GetArrayResponse Sweep() {
  v1::GetArrayResponse response;
  v1::JobArray& array = *response.mutable_array();
  array.set_array_id("sweep-x7k2q");
  array.set_name("sweep");
  array.set_owner("alice");
  array.set_count(12);
  array.set_concurrency(4);
  array.set_state(v1::RUNNING);
  (*array.mutable_tasks())["SUCCEEDED"] = 4;
  (*array.mutable_tasks())["FAILED"] = 1;
  (*array.mutable_tasks())["QUEUED"] = 7;
  *array.mutable_submit_time() = ToProto(kNow - absl::Minutes(3));
  v1::Job& done = *response.add_tasks();
  done.set_job_id("sweep-x7k2q-0");
  done.set_state(v1::SUCCEEDED);
  done.mutable_summary()->set_final_loss(0.25);
  done.mutable_summary()->set_test_accuracy(0.91);
  done.mutable_summary()->add_losses(1);
  *done.mutable_start_time() = ToProto(kNow - absl::Seconds(90));
  *done.mutable_finish_time() = ToProto(kNow - absl::Seconds(10));
  v1::ArrayValue& value = *done.add_array_values();
  value.set_field("train.optimizer.learning_rate");
  value.set_value("0.1");
  v1::Job& failed = *response.add_tasks();
  failed.set_job_id("sweep-x7k2q-1");
  failed.set_array_index(1);
  failed.set_state(v1::FAILED);
  failed.set_reason("RankFailed");
  *failed.add_array_values() = value;
  failed.mutable_array_values(0)->set_value("10");
  return response;
}

TEST(ArrayTextTest, CountsTasksThatAreDone) {
  EXPECT_EQ(ArrayProgress(Sweep().array()), "5/12 done, 1 not successful");
  v1::JobArray queued;
  queued.set_count(3);
  EXPECT_EQ(ArrayProgress(queued), "0/3 done");
}

TEST(ArrayTextTest, ComparesResultsOfTasks) {
  EXPECT_EQ(ResultsTable(Sweep(), /*wide=*/false, kNow),
            "INDEX  LEARNING RATE  STATE      LOSS    ACCURACY  DURATION\n"
            "0      0.1            SUCCEEDED  0.2500  0.9100    1m20s\n"
            "1      10             FAILED     -       -         -\n");
  EXPECT_THAT(ResultsTable(Sweep(), /*wide=*/true, kNow), HasSubstr("sweep-x7k2q-1  RankFailed\n"));
}

TEST(ArrayTextTest, DescribesTheArray) {
  const std::string text = ArrayDescription(Sweep(), /*wide=*/false, kNow);
  EXPECT_THAT(text, HasSubstr("Array:         sweep-x7k2q\n"));
  EXPECT_THAT(text, HasSubstr("Tasks:         12: 7 queued, 4 succeeded, 1 failed\n"));
  EXPECT_THAT(text, HasSubstr("At a time:     4\n"));
  EXPECT_THAT(text, HasSubstr("\n\nINDEX  LEARNING RATE"));
  const nlohmann::ordered_json json = ArrayToJson(Sweep());
  EXPECT_EQ(json["array"]["array_id"], "sweep-x7k2q");
  EXPECT_EQ(json["tasks"][1]["array_index"], 1);
  EXPECT_FALSE(json["tasks"][0]["summary"].contains("losses"));
}

TEST(ArrayTextTest, IsOneRowInTheTableOfJobs) {
  v1::Job newer;
  newer.set_job_id("train-9qd3");
  *newer.mutable_submit_time() = ToProto(kNow - absl::Minutes(1));
  v1::Job older = newer;
  older.set_job_id("eval-77aab");
  *older.mutable_submit_time() = ToProto(kNow - absl::Minutes(9));
  const std::string table = JobTable({newer, older}, {Sweep().array()}, /*wide=*/true, kNow);
  EXPECT_THAT(table, HasSubstr("sweep-x7k2q[12]"));
  EXPECT_THAT(table, HasSubstr("5/12 done"));
  EXPECT_LT(table.find("train-9qd3"), table.find("sweep-x7k2q"));
  EXPECT_LT(table.find("sweep-x7k2q"), table.find("eval-77aab"));
}

}  // namespace
}  // namespace muster::cli
