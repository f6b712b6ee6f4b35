#include "cli/text/top_text.h"

#include "absl/strings/str_split.h"
#include "cli/output/words.h"
#include "common/time/proto_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

v1::Job Job(const std::string& id, uint32_t ranks) {
  v1::Job job;
  job.set_job_id(id);
  job.set_state(v1::RUNNING);
  job.mutable_progress()->set_step(117);
  job.mutable_progress()->set_total_steps(5875);
  job.mutable_progress()->set_images_per_second(41234.4);
  job.mutable_progress()->set_step_seconds(0.0031);
  for (uint32_t i = 0; i < ranks; ++i) {
    v1::RankStatus& rank = *job.add_ranks();
    rank.set_rank(i);
    rank.set_node("node-1");
    rank.set_phase(v1::CONNECTED);
    rank.mutable_progress()->set_step(117);
    rank.mutable_progress()->set_step_seconds(1.5);
  }
  return job;
}

TEST(TopTextTest, ListsJobsAndTheirRanksAndMarksTheSlowest) {
  TopFacts facts;
  facts.jobs.push_back(Job("train-x7k2", 2));
  facts.jobs[0].mutable_ranks(1)->mutable_progress()->set_step(115);
  facts.jobs[0].mutable_ranks(0)->set_memory_bytes(uint64_t{1229} << 20);
  facts.jobs[0].mutable_ranks(1)->set_memory_bytes(uint64_t{512} << 20);
  facts.queued = 3;
  EXPECT_EQ(TopText(facts, 80, 8),
            "1 active job, 2 ranks, 3 queued\n"
            "\n"
            "JOB, RANK   STEP      IMAGES/S  STEP TIME  MEMORY  NOTE\n"
            "train-x7k2  117/5875  41,234    3.1 ms     1.7G    -\n"
            "  0 node-1  117       -         1.50 s     1.2G    -\n"
            "  1 node-1  115       -         1.50 s     512M    slowest\n");
}

TEST(TopTextTest, MarksStragglersByTheirSlowdown) {
  TopFacts facts;
  facts.jobs.push_back(Job("train-x7k2", 4));
  for (const auto& [number, slowdown] : {std::pair(1, 1.21), std::pair(2, 3.4)}) {
    v1::Straggler& straggler = *facts.jobs[0].add_stragglers();
    straggler.set_rank(number);
    straggler.set_slowdown(slowdown);
  }
  // The latest value counts, and a rank that is a step behind at the moment is not marked.
  facts.jobs[0].mutable_ranks(1)->set_slowdown(1.24);
  facts.jobs[0].mutable_ranks(3)->mutable_progress()->set_step(116);
  const std::string text = TopText(facts, 80, 8);
  EXPECT_THAT(text, HasSubstr("  1 node-1  117       -         1.50 s     -       24% slow\n"));
  EXPECT_THAT(text, HasSubstr("  2 node-1  117       -         1.50 s     -       3x slow\n"));
  EXPECT_THAT(text, Not(HasSubstr("slowest")));
  // If there is room for one rank only, the slowest is shown.
  EXPECT_THAT(TopText(facts, 80, 1), HasSubstr("\n  2 node-1 "));
}

TEST(TopTextTest, ShowsTheSlowestOfManyRanks) {
  TopFacts facts;
  facts.jobs.push_back(Job("train-x7k2", 64));
  facts.jobs[0].mutable_ranks(40)->mutable_progress()->set_step(100);
  facts.more_jobs = 2;
  const std::string text = TopText(facts, 80, 4);
  EXPECT_THAT(text, StartsWith("3 active jobs, 64 ranks, 0 queued\n"));
  EXPECT_THAT(text, HasSubstr("\n  2 node-1 "));
  EXPECT_THAT(text, Not(HasSubstr("\n  3 node-1 ")));
  EXPECT_THAT(text, HasSubstr("\n  40 node-1 "));
  EXPECT_THAT(text, HasSubstr("\n  60 more "));
  EXPECT_THAT(text, HasSubstr("and 2 more jobs\n"));
}

TEST(TopTextTest, FitsSixtyColumns) {
  TopFacts facts;
  facts.jobs.push_back(Job("a-very-long-name-of-a-training-job-on-imagenet-x7k2p", 2));
  facts.jobs[0].mutable_progress()->set_step(1234567);
  facts.jobs[0].mutable_progress()->set_total_steps(9999999);
  facts.jobs[0].mutable_ranks(0)->set_node("gpu-node-of-rack-17.cluster.example");
  *facts.jobs[0].mutable_ranks(0)->mutable_last_seen() = ToProto(absl::Hours(30));
  facts.jobs.push_back(Job("starts-9qd3", 0));
  facts.jobs[1].set_state(v1::STARTING);
  facts.jobs[0].mutable_ranks(0)->set_memory_bytes(uint64_t{1023} << 30);
  facts.jobs[0].mutable_ranks(1)->set_memory_bytes(uint64_t{1023} << 30);
  const std::string text = TopText(facts, 60, 8);
  EXPECT_THAT(text, HasSubstr("1023G"));
  EXPECT_THAT(text, HasSubstr("2.0T"));
  EXPECT_THAT(text, HasSubstr("\n  0 gpu"));
  for (const auto& line : absl::StrSplit(text, '\n')) EXPECT_LE(DisplayWidth(line), 60u) << line;
  EXPECT_THAT(text, HasSubstr("...-x7k2p"));
  EXPECT_THAT(text, HasSubstr("starting"));
  EXPECT_THAT(text, HasSubstr("silent"));
}

TEST(TopTextTest, PrintsOnlyCountsWithoutJobs) {
  EXPECT_EQ(TopText({}, 60, 8), "0 active jobs, 0 ranks, 0 queued\n");
}

}  // namespace
}  // namespace muster::cli
