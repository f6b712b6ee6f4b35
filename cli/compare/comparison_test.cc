#include "cli/compare/comparison.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/compare/comparison_text.h"
#include "cli/output/words.h"
#include "common/time/proto_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::cli {
namespace {

using nlohmann::ordered_json;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::Not;

const absl::Time kSubmitted = absl::FromUnixSeconds(1'800'000'000);
const absl::Time kNow = kSubmitted + absl::Hours(1);

v1::JobHistory History(const std::string& id, double learning_rate) {
  v1::JobHistory history;
  v1::Job& job = *history.mutable_job();
  job.set_job_id(id);
  job.set_state(v1::SUCCEEDED);
  job.mutable_spec()->set_name("digits");
  job.mutable_spec()->mutable_train()->mutable_optimizer()->set_learning_rate(learning_rate);
  *job.mutable_submit_time() = ToProto(kSubmitted);
  *job.mutable_start_time() = ToProto(kSubmitted + absl::Seconds(2));
  *job.mutable_finish_time() = ToProto(kSubmitted + absl::Seconds(62));
  v1::TrainSummary& summary = *job.mutable_summary();
  summary.set_steps(100);
  summary.set_final_loss(0.5);
  summary.set_test_accuracy(0.8);
  summary.set_images_per_second(1000);
  summary.set_median_step_seconds(0.032);
  v1::Goodput& goodput = *job.mutable_goodput();
  *goodput.mutable_slots_held_time() = ToProto(absl::Seconds(60));
  goodput.set_goodput_ratio(0.9);
  v1::Goodput::Cause& cause = *goodput.add_causes();
  cause.set_cause("productive");
  *cause.mutable_wall_time() = ToProto(absl::Seconds(54));
  v1::NodeEnvironment& node = *history.add_nodes();
  node.set_node("node-1");
  node.set_software_version("0.1.0");
  node.add_devices("NVIDIA H200");
  node.add_devices("NVIDIA H200");
  history.set_node_count(1);
  history.set_coordinator_version("0.1.0");
  return history;
}

void AddPoint(v1::JobHistory& history, uint64_t step, double loss, double test_accuracy = 0) {
  v1::CurvePoint& point = *history.mutable_curves()->add_points();
  point.set_step(step);
  point.set_loss(loss);
  point.set_test_accuracy(test_accuracy);
}

std::vector<ordered_json> ValuesOf(const std::vector<ComparedRow>& rows, const std::string& name) {
  for (const ComparedRow& row : rows) {
    if (row.name == name) return row.values;
  }
  return {};
}

std::vector<std::string> Differing(const std::vector<ComparedRow>& rows) {
  std::vector<std::string> names;
  for (const ComparedRow& row : rows) {
    if (row.Differs()) names.push_back(row.name);
  }
  return names;
}

Comparison CompareTwo(const v1::JobHistory& a, const v1::JobHistory& b, size_t curve_steps = 8) {
  return Compare({a, b}, curve_steps, kNow);
}

TEST(ComparisonTest, FindsFieldsOfTheSpecThatDiffer) {
  v1::JobHistory b = History("b", 0.2);
  b.mutable_job()->mutable_spec()->mutable_train()->mutable_model()->set_name("mlp");
  (*b.mutable_job()->mutable_spec()->mutable_env())["SEED"] = "1";
  const Comparison comparison = CompareTwo(History("a", 0.1), b);
  EXPECT_EQ(ValuesOf(comparison.spec, "train.optimizer.learning_rate"),
            (std::vector<ordered_json>{0.1, 0.2}));
  EXPECT_EQ(ValuesOf(comparison.spec, "train.model.name")[1], "mlp");
  EXPECT_THAT(Differing(comparison.spec), Not(testing::Contains("name")));
  EXPECT_THAT(Differing(CompareTwo(b, b).spec), ElementsAre());
}

TEST(ComparisonTest, EnvironmentSumsUpNodes) {
  v1::JobHistory b = History("b", 0.1);
  v1::NodeEnvironment& other = *b.add_nodes();
  other.set_node("node-2");
  other.set_software_version("0.2.0");
  other.add_devices("NVIDIA H200");
  b.set_node_count(2);
  const Comparison comparison = CompareTwo(History("a", 0.1), b);
  EXPECT_EQ(ValuesOf(comparison.environment, "gpus"),
            (std::vector<ordered_json>{"2 x NVIDIA H200", "3 x NVIDIA H200"}));
  EXPECT_EQ(ValuesOf(comparison.environment, "worker_version")[1], "0.1.0, 0.2.0");
  EXPECT_EQ(ValuesOf(comparison.environment, "nodes"), (std::vector<ordered_json>{1, 2}));
  // No job has a driver.
  EXPECT_THAT(ValuesOf(comparison.environment, "driver_version"), ElementsAre());
}

TEST(ComparisonTest, ResultsOfRunningJobsAreThoseOfTheLatestReport) {
  v1::JobHistory running = History("b", 0.1);
  running.mutable_job()->clear_summary();
  running.mutable_job()->clear_finish_time();
  running.mutable_job()->set_state(v1::RUNNING);
  running.mutable_job()->mutable_progress()->set_step(40);
  running.mutable_job()->mutable_progress()->set_loss(0.75);
  const Comparison comparison = CompareTwo(History("a", 0.1), running);
  EXPECT_EQ(ValuesOf(comparison.results, "steps"), (std::vector<ordered_json>{100, 40}));
  EXPECT_EQ(ValuesOf(comparison.results, "final_loss"), (std::vector<ordered_json>{0.5, 0.75}));
  EXPECT_EQ(ValuesOf(comparison.results, "test_accuracy")[1], ordered_json());
  EXPECT_EQ(ValuesOf(comparison.results, "duration_seconds"),
            (std::vector<ordered_json>{60.0, 3598.0}));
  EXPECT_EQ(ValuesOf(comparison.seconds_by_cause, "productive")[0], 54.0);
}

TEST(ComparisonTest, CurvesAreComparedAtEqualStepsThatBothHaveReached) {
  v1::JobHistory a = History("a", 0.1);
  AddPoint(a, 10, 2);
  AddPoint(a, 20, 1);
  AddPoint(a, 40, 0.5, 0.8);
  v1::JobHistory b = History("b", 0.1);
  AddPoint(b, 15, 3);
  AddPoint(b, 35, 1);
  AddPoint(b, 95, 0.25);
  const std::vector<CurveRow> curves = CompareTwo(a, b, 3).curves;
  ASSERT_EQ(curves.size(), 3u);
  EXPECT_EQ(curves[0].step, 15u);
  EXPECT_THAT(curves[0].loss, ElementsAre(1.5, 3.0));
  EXPECT_EQ(curves[1].step, 27u);
  EXPECT_EQ(curves[2].step, 40u);
  EXPECT_EQ(curves[2].loss[0], 0.5);
  EXPECT_THAT(curves[2].test_accuracy, ElementsAre(ordered_json(0.8), ordered_json()));
}

TEST(ComparisonTest, CurvesWithoutCommonStepsAreNotCompared) {
  v1::JobHistory a = History("a", 0.1);
  AddPoint(a, 10, 2);
  v1::JobHistory b = History("b", 0.1);
  AddPoint(b, 15, 3);
  EXPECT_TRUE(CompareTwo(a, b).curves.empty());
}

TEST(ComparisonTest, JsonHasValuesPerJob) {
  const ordered_json json =
      ComparisonJson(CompareTwo(History("a", 0.1), History("b", 0.2)), /*with_equal=*/false);
  EXPECT_EQ(json["jobs"], ordered_json({"a", "b"}));
  ASSERT_EQ(json["spec"].size(), 1u) << json["spec"];
  EXPECT_EQ(json["spec"][0]["field"], "train.optimizer.learning_rate");
  EXPECT_EQ(json["spec"][0]["values"], ordered_json({0.1, 0.2}));
  EXPECT_TRUE(json["environment"].empty());
  EXPECT_GT(ComparisonJson(CompareTwo(History("a", 0.1), History("b", 0.2)), true)["spec"].size(),
            1u);
}

TEST(ComparisonTextTest, ShowsDifferencesAndChanges) {
  v1::JobHistory b = History("digits-b", 0.2);
  b.mutable_job()->mutable_summary()->set_images_per_second(1100);
  AddPoint(b, 5, 0.5);
  const std::string text =
      ComparisonText(CompareTwo(History("digits-a", 0.1), b), /*with_equal=*/false, 80);
  EXPECT_THAT(text, HasSubstr("A  digits-a  digits  SUCCEEDED\n"));
  EXPECT_THAT(text, HasSubstr("train.optimizer.learning_rate  0.1  0.2\n"));
  EXPECT_THAT(text, HasSubstr("Environment\nno differences\n"));
  EXPECT_THAT(text, testing::ContainsRegex("images/s +1000 +1100 +\\+10.0 %\n"));
  EXPECT_THAT(text, testing::ContainsRegex("test accuracy +80.00 % +80.00 % +\\+0.0 %\n"));
  EXPECT_THAT(text, HasSubstr("Time by cause\nCAUSE       A"));
  EXPECT_THAT(text, HasSubstr("Loss at equal steps\n"));
}

TEST(ComparisonTextTest, NamesOnlyTheFilesThatDiffer) {
  const auto add = [](v1::JobHistory& history, const std::string& path, char digest) {
    v1::FileSpec& file = *history.mutable_job()->mutable_spec()->add_files();
    file.set_path(path);
    file.set_sha256(std::string(64, digest));
  };
  v1::JobHistory a = History("a", 0.1), b = History("b", 0.1);
  for (v1::JobHistory* history : {&a, &b}) add(*history, "same.py", '5');
  add(a, "train.py", 'a');
  add(b, "train.py", 'b');
  for (int i = 0; i < 7; ++i) add(b, absl::StrCat("conf/", i), 'c');
  const Comparison comparison = CompareTwo(a, b);
  const std::string text = ComparisonText(comparison, /*with_equal=*/false, 1000);
  EXPECT_THAT(text, HasSubstr("files  train.py aaaaaaaa  conf/0 cccccccc, conf/1 cccccccc, "
                              "conf/2 cccccccc, conf/3 cccccccc, conf/4 cccccccc, 3 more\n"));
  EXPECT_THAT(text, Not(HasSubstr("same.py")));
  EXPECT_THAT(ComparisonText(CompareTwo(a, a), /*with_equal=*/true, 1000),
              testing::ContainsRegex("files +2 files +2 files\n"));
  const ordered_json json = ComparisonJson(comparison, /*with_equal=*/false);
  EXPECT_EQ(json["spec"][0]["values"][1].size(), 9u) << "complete";
}

TEST(ComparisonTextTest, FitsTheWidth) {
  std::vector<v1::JobHistory> histories;
  for (size_t i = 0; i < kMaxComparedJobs; ++i) {
    v1::JobHistory history = History(absl::StrCat("a-long-name-of-a-job-", i, "-x7k2p"), 0.1);
    for (size_t word = 0; word <= i; ++word) {
      history.mutable_job()->mutable_spec()->add_command(absl::StrCat("/a/path/to/programs/", i));
    }
    history.mutable_nodes(0)->set_node("größer-" + std::string(60, static_cast<char>('a' + i)));
    histories.push_back(history);
  }
  const std::string text = ComparisonText(Compare(histories, 8, kNow), /*with_equal=*/true, 80);
  std::vector<size_t> widths;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    widths.push_back(DisplayWidth(line));
  }
  EXPECT_THAT(widths, Each(Le(80u))) << text;
}

TEST(CutToWidthTest, CutsAfterSeparatorsAndNeverInsideCharacters) {
  EXPECT_THAT(CutToWidth("/data/runs/one", 11), ElementsAre("/data/runs/", "one"));
  EXPECT_THAT(CutToWidth("abcdefgh", 3), ElementsAre("abc", "def", "gh"));
  EXPECT_THAT(CutToWidth("ääää", 3), ElementsAre("äää", "ä"));
  EXPECT_THAT(CutToWidth("", 3), ElementsAre());
  EXPECT_THAT(CutToWidth("a\x1b[2J", 20), ElementsAre("a\\x1b[2J"));
}

}  // namespace
}  // namespace muster::cli
