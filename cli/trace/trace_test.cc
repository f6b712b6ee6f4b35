#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/trace/rank_trace.h"
#include "cli/trace/trace_json.h"
#include "common/time/proto_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::cli {
namespace {

using nlohmann::ordered_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kOrigin = 1'800'000'000;
constexpr double kNowSeconds = 100;

class TraceTest : public ::testing::Test {
 protected:
  TraceTest() {
    job_.set_job_id("train-x7k2p");
    job_.mutable_spec()->mutable_train();
    job_.set_generation(1);
    *job_.mutable_submit_time() = ToProto(At(0));
  }

  static absl::Time At(double seconds) {
    return absl::UnixEpoch() + absl::Seconds(kOrigin + seconds);
  }
  void AddEvent(double seconds, uint64_t generation, const std::string& type) {
    v1::JobEvent& event = events_.emplace_back();
    *event.mutable_time() = ToProto(At(seconds));
    event.set_generation(generation);
    event.set_type(type);
    event.set_message("message of " + type);
  }
  void StartGeneration(double seconds, uint64_t generation) {
    AddEvent(seconds, generation, "Placed");
    AddEvent(seconds + 1, generation, "WorldSent");
    AddEvent(seconds + 2, generation, "Running");
  }
  // A rank that starts half a second after its placement and steps 3 seconds after it.
  RankTrace& AddRank(uint64_t generation, uint32_t rank, const std::string& node, double placed) {
    RankTrace& trace = ranks_.emplace_back();
    trace.generation = generation;
    trace.rank = rank;
    trace.node = node;
    trace.phases = {{"loading-data", kOrigin + placed + 0.5},
                    {"connecting", kOrigin + placed + 0.75},
                    {"training", kOrigin + placed + 2}};
    trace.steps = {{1,
                    kOrigin + placed + 3,
                    0.5,
                    {{"data wait", 0.1}, {"compute", 0.25}, {"exposed communication", 0.1}}},
                   {2, kOrigin + placed + 3.5, 0.5, {{"compute", 0.5}}}};
    return trace;
  }
  ordered_json Trace() const { return TraceJson(job_, events_, ranks_, At(kNowSeconds)); }

  // (name, begin, end) in seconds of the spans of a thread, in the order of the file.
  struct Span {
    std::string name;
    double begin;
    double end;
  };
  static std::vector<Span> SpansOf(const ordered_json& trace, int process, int thread) {
    std::vector<Span> spans;
    for (const ordered_json& event : trace["traceEvents"]) {
      if (event["ph"] != "X" || event["pid"] != process || event["tid"] != thread) continue;
      const double begin = event["ts"].get<double>() / 1e6;
      spans.push_back({event["name"], begin, begin + event["dur"].get<double>() / 1e6});
    }
    return spans;
  }
  static std::vector<std::string> TextsOf(const std::vector<Span>& spans) {
    std::vector<std::string> texts;
    for (const Span& span : spans) {
      texts.push_back(absl::StrFormat("%s %g-%g", span.name, span.begin, span.end));
    }
    return texts;
  }
  static std::map<int, std::string> ProcessNames(const ordered_json& trace) {
    std::map<int, std::string> names;
    for (const ordered_json& event : trace["traceEvents"]) {
      if (event["name"] == "process_name") names[event["pid"]] = event["args"]["name"];
    }
    return names;
  }

  v1::Job job_;
  std::vector<v1::JobEvent> events_;
  std::vector<RankTrace> ranks_;
};

TEST_F(TraceTest, StatesFollowEachOtherFromSubmissionToEnd) {
  AddEvent(0, 0, "Submitted");
  StartGeneration(5, 1);
  AddRank(1, 0, "node-1", 5);
  AddEvent(20, 1, "Stopping");
  AddEvent(21, 1, "Finished");
  *job_.mutable_finish_time() = ToProto(At(21));
  EXPECT_THAT(TextsOf(SpansOf(Trace(), 1, 1)),
              ElementsAre("queued 0-5", "launch and join 5-6", "connect 6-7", "first step 7-8",
                          "training 8-20", "stopping 20-21"));
}

TEST_F(TraceTest, RecoveryLastsUntilTheFirstStepOfTheNextGeneration) {
  job_.set_generation(2);
  AddEvent(0, 0, "Submitted");
  StartGeneration(1, 1);
  AddRank(1, 0, "node-1", 1);
  AddEvent(10, 1, "RankFailed");
  AddEvent(10.5, 1, "FirstFailure");
  AddEvent(11, 1, "Requeued");
  StartGeneration(12, 2);
  AddRank(2, 0, "node-1", 12);
  const ordered_json trace = Trace();
  EXPECT_THAT(TextsOf(SpansOf(trace, 1, 2)), ElementsAre("recovery to generation 2 10-15"));
  EXPECT_THAT(TextsOf(SpansOf(trace, 1, 1)),
              ElementsAre("queued 0-1", "launch and join 1-2", "connect 2-3", "first step 3-4",
                          "training 4-10", "failed 10-11", "queued 11-12", "launch and join 12-13",
                          "connect 13-14", "first step 14-15", "training 15-100"));
  for (const ordered_json& event : trace["traceEvents"]) {
    if (event["name"] != "recovery to generation 2") continue;
    EXPECT_EQ(event["args"]["failure"], "message of FirstFailure");
    EXPECT_EQ(event["args"]["verdict_after_seconds"], 0.5);
    EXPECT_EQ(event["args"]["placed_after_seconds"], 2.0);
    EXPECT_EQ(event["args"]["first_step_after_seconds"], 5.0);
  }
}

TEST_F(TraceTest, NodesAreProcessesAndRanksThreadsWithNestedSteps) {
  AddEvent(0, 0, "Submitted");
  StartGeneration(1, 1);
  AddRank(1, 0, "node-1", 1);
  AddRank(1, 1, "node-2", 1);
  AddEvent(10, 1, "Finished");
  *job_.mutable_finish_time() = ToProto(At(10));
  const ordered_json trace = Trace();
  EXPECT_EQ(ProcessNames(trace),
            (std::map<int, std::string>{
                {1, "coordinator: train-x7k2p"}, {2, "node node-1"}, {3, "node node-2"}}));
  EXPECT_THAT(TextsOf(SpansOf(trace, 3, 2)),
              ElementsAre("loading-data 1.5-1.75", "connecting 1.75-3", "training 3-10",
                          "step 1 3.5-4", "data wait 3.5-3.6", "compute 3.6-3.85",
                          "exposed communication 3.85-3.95", "step 2 4-4.5", "compute 4-4.5"));
}

TEST_F(TraceTest, PartsNeverLeaveTheirStep) {
  AddEvent(0, 0, "Submitted");
  StartGeneration(1, 1);
  RankTrace& rank = AddRank(1, 0, "node-1", 1);
  // More than the step: its parts overlap on the device.
  rank.steps[0].parts = {{"compute", 0.4}, {"exposed communication", 0.4}};
  // Begins before its predecessor has ended, by rounding.
  rank.steps[1].seconds = 0.6;
  const std::vector<Span> spans = SpansOf(Trace(), 2, 1);
  std::vector<Span> open;
  for (const Span& span : spans) {
    while (!open.empty() && open.back().end <= span.begin) open.pop_back();
    if (!open.empty()) EXPECT_LE(span.end, open.back().end) << span.name;
    open.push_back(span);
  }
}

TEST_F(TraceTest, ClocksAreShiftedOnlyWhereTheyContradictTheOrder) {
  AddEvent(0, 0, "Submitted");
  StartGeneration(10, 1);
  AddRank(1, 0, "good", 10);
  AddRank(1, 1, "behind", 10 - 7);  // starts 6.5 s before its placement
  AddRank(1, 2, "ahead", 10 + 30);  // connects 29.75 s after all have joined
  const ordered_json corrections = Trace()["otherData"]["clock_corrections_seconds"];
  EXPECT_EQ(corrections["good"], 0.0);
  EXPECT_NEAR(corrections["behind"].get<double>(), 6.5, 1e-6);
  EXPECT_NEAR(corrections["ahead"].get<double>(), -29.75, 1e-6);
  EXPECT_EQ(SpansOf(Trace(), 3, 2)[0].begin, 10);
}

TEST_F(TraceTest, RanksOfCommandJobsHaveWhatTheCoordinatorKnows) {
  job_.mutable_spec()->clear_train();
  AddEvent(0, 0, "Submitted");
  AddEvent(1, 1, "Placed");
  AddEvent(2, 1, "Running");
  AddEvent(9, 1, "Finished");
  *job_.mutable_finish_time() = ToProto(At(9));
  v1::RankStatus& rank = *job_.add_ranks();
  rank.set_rank(0);
  rank.set_node("node-1");
  rank.mutable_exit()->set_exit_code(3);
  *rank.mutable_exit()->mutable_time() = ToProto(At(8));
  const ordered_json trace = Trace();
  EXPECT_THAT(TextsOf(SpansOf(trace, 1, 1)),
              ElementsAre("queued 0-1", "launch and join 1-2", "running 2-9"));
  EXPECT_THAT(TextsOf(SpansOf(trace, 2, 1)), ElementsAre("process 1-8"));
}

TEST_F(TraceTest, FollowsTheFormat) {
  AddEvent(0, 0, "Submitted");
  StartGeneration(1, 1);
  AddRank(1, 0, "node-1", 1);
  const ordered_json trace = Trace();
  EXPECT_EQ(trace["displayTimeUnit"], "ms");
  for (const ordered_json& event : trace["traceEvents"]) {
    ASSERT_TRUE(event["name"].is_string() && event["pid"].is_number() && event["tid"].is_number());
    const std::string kind = event["ph"];
    if (kind == "X") {
      EXPECT_TRUE(event["ts"].is_number_integer()) << event;
      EXPECT_GE(event["dur"].get<int64_t>(), 0) << event;
    } else if (kind == "i") {
      EXPECT_EQ(event["s"], "t");
    } else {
      EXPECT_EQ(kind, "M");
    }
  }
}

TEST(RankTraceTest, ReadsLinesAndIgnoresWhatItDoesNotKnow) {
  const absl::StatusOr<RankTrace> trace = ParseRankTrace(
      "{\"generation\":2,\"rank\":3,\"node\":\"node-1\"}\n"
      "{\"phase\":\"training\",\"time\":1800000000.5}\n"
      "{\"step\":7,\"end\":1800000001.25,\"seconds\":0.5,\"data_wait\":0.1,\"compute\":0.3,"
      "\"communication\":0.05}\n"
      "{\"step\":\"seven\"}\n"
      "{\"later\":1}\n"
      "nonsense\n"
      "{\"step\":8,\"end\":18000");
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->generation, 2u);
  EXPECT_EQ(trace->rank, 3u);
  EXPECT_EQ(trace->node, "node-1");
  ASSERT_EQ(trace->phases.size(), 1u);
  EXPECT_EQ(trace->phases[0].start, 1800000000.5);
  ASSERT_EQ(trace->steps.size(), 1u);
  EXPECT_EQ(trace->steps[0].number, 7u);
  ASSERT_EQ(trace->steps[0].parts.size(), 3u);
  EXPECT_EQ(trace->steps[0].parts[2].name, "exposed communication");
}

TEST(RankTraceTest, RejectsOtherFiles) {
  for (const char* text : {"", "hello\n", "{\"phase\":\"training\",\"time\":1}\n", "[1]\n"}) {
    EXPECT_FALSE(ParseRankTrace(text).ok()) << text;
  }
}

std::string TarEntry(const std::string& contents, char type) {
  std::string header(512, '\0');
  header.replace(0, 4, "name");
  header.replace(124, 11, absl::StrFormat("%011o", contents.size()));
  header[156] = type;
  return header + contents + std::string((512 - contents.size() % 512) % 512, '\0');
}

TEST(FirstFileOfTest, SkipsOtherEntries) {
  const std::string archive =
      TarEntry("long name", 'L') + TarEntry("text", '0') + std::string(1024, '\0');
  EXPECT_EQ(FirstFileOf(archive).value(), "text");
  EXPECT_FALSE(FirstFileOf(std::string(1024, '\0')).ok());
  EXPECT_FALSE(FirstFileOf("short").ok());
  EXPECT_FALSE(FirstFileOf(TarEntry("text", '0').substr(0, 514)).ok());
}

}  // namespace
}  // namespace muster::cli
