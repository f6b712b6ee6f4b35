#include "coordinator/core/jobs/log_tails.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "coordinator/core/testing/parts.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class LogTailsTest : public ::testing::Test {
 protected:
  Job& Submit(const std::string& id, uint64_t generation = 1) {
    Job& job = testing::Submit(jobs_, id);
    job.status.set_generation(generation);
    context_.effects = Effects();
    return job;
  }
  static v1::LogTail Tail(const Job& job, uint32_t rank, const std::string& data,
                          uint64_t generation = 1) {
    v1::LogTail tail;
    tail.set_job_id(job.status.job_id());
    tail.set_generation(generation);
    tail.set_rank(rank);
    tail.mutable_stdout_end()->set_data(data);
    return tail;
  }
  // "+KEY" for each record that was written since the last call, "-KEY" for each deleted one.
  std::vector<std::string> Writes() {
    std::vector<std::string> keys;
    for (const store::Mutation& write : context_.effects.writes) {
      keys.push_back(absl::StrCat(write.value.has_value() ? "+" : "-", write.key));
    }
    context_.effects = Effects();
    return keys;
  }
  bool Has(const Job& job, uint32_t rank, uint64_t generation = 1) const {
    return jobs_.log_tails.Find(job, Generation(generation), Rank(rank)) != nullptr;
  }

  Context context_ = testing::MakeContext();
  Jobs jobs_{context_};
  LogTails& tails_ = jobs_.log_tails;
};

TEST_F(LogTailsTest, StoresEachTailOnce) {
  const Job& job = Submit("a");
  tails_.Add(job, Tail(job, 3, "first")).IgnoreError();
  tails_.Add(job, Tail(job, 3, "second")).IgnoreError();
  EXPECT_THAT(Writes(), ElementsAre("+log/a/0000000001/0000000003"));
  EXPECT_EQ(tails_.Find(job, Generation(1), Rank(3))->stdout_end().data(), "first");
  EXPECT_FALSE(Has(job, 2));
  EXPECT_FALSE(Has(Submit("b"), 3));
}

TEST_F(LogTailsTest, KeepsNoticeOfLostOutput) {
  const Job& job = Submit("a");
  v1::LogTail tail = Tail(job, 1, "x");
  tail.mutable_stdout_end()->set_notice("2 lines (30 bytes) could not be stored");
  EXPECT_TRUE(tails_.Add(job, tail).ok());
  EXPECT_EQ(tails_.Find(job, Generation(1), Rank(1))->stdout_end().notice(),
            tail.stdout_end().notice());
}

TEST_F(LogTailsTest, IgnoresTailsBeyondTheLimits) {
  const Job& job = Submit("a");
  EXPECT_TRUE(absl::IsInvalidArgument(
      tails_.Add(job, Tail(job, 0, std::string(limits::kLogTailBytes + 1, 'x')))));
  v1::LogTail lines = Tail(job, 1, "x");
  for (size_t i = 0; i <= limits::kLogTailLines; ++i) lines.mutable_stderr_end()->add_lines();
  EXPECT_TRUE(absl::IsInvalidArgument(tails_.Add(job, lines)));
  v1::LogTail notice = Tail(job, 1, "x");
  notice.mutable_stdout_end()->set_notice(std::string(513, 'x'));
  EXPECT_TRUE(absl::IsInvalidArgument(tails_.Add(job, notice)));
  EXPECT_THAT(Writes(), IsEmpty());
}

TEST_F(LogTailsTest, LimitsTheSizeOfAGeneration) {
  const Job& job = Submit("a");
  const std::string data(limits::kLogTailBytes, 'x');
  for (uint32_t rank = 0; rank < 200; ++rank) tails_.Add(job, Tail(job, rank, data)).IgnoreError();
  const size_t stored = Writes().size();
  EXPECT_GT(stored, 100u);
  EXPECT_LE(stored * data.size(), limits::kLogTailBytesPerGeneration);
  tails_.Add(job, Tail(job, 0, data, /*generation=*/2)).IgnoreError();
  EXPECT_TRUE(Has(job, 0, 2));
}

TEST_F(LogTailsTest, KeepsTheNewestGenerationsOfAJob) {
  Job& job = Submit("a");
  for (uint64_t generation = 1; generation <= limits::kLogTailGenerations + 1; ++generation) {
    job.status.set_generation(generation);
    tails_.Add(job, Tail(job, 0, "x", generation)).IgnoreError();
    tails_.Add(job, Tail(job, 1, "x", generation)).IgnoreError();
  }
  EXPECT_FALSE(Has(job, 0, 1));
  EXPECT_TRUE(Has(job, 0, 2));
  const std::vector<std::string> writes = Writes();
  EXPECT_THAT(std::vector<std::string>(writes.end() - 4, writes.end()),
              ElementsAre("+log/a/0000000005/0000000000", "-log/a/0000000001/0000000000",
                          "-log/a/0000000001/0000000001", "+log/a/0000000005/0000000001"));
  tails_.Add(job, Tail(job, 2, "late", 1)).IgnoreError();
  EXPECT_THAT(Writes(), IsEmpty());
}

TEST_F(LogTailsTest, DeletesThoseOfTheOldestJobsBeyondTheTotal) {
  const std::string data(limits::kLogTailBytes, 'x');
  const size_t tails = limits::kLogTailBytesInTotal / limits::kLogTailBytes;
  // The names are in the opposite order of the jobs' ages.
  for (size_t i = 0; i < tails; ++i) {
    const Job& job = Submit(absl::StrCat("job-", 10'000 - i));
    tails_.Add(job, Tail(job, 0, data)).IgnoreError();
    Writes();
  }
  EXPECT_FALSE(Has(*jobs_.table.Find(JobId("job-10000")), 0));
  EXPECT_TRUE(Has(*jobs_.table.Find(JobId(absl::StrCat("job-", 10'001 - tails))), 0));
}

TEST_F(LogTailsTest, RemovesThoseOfAJob) {
  const Job& first = Submit("a");
  const Job& second = Submit("b");
  tails_.Add(first, Tail(first, 0, "x")).IgnoreError();
  tails_.Add(second, Tail(second, 0, "x")).IgnoreError();
  tails_.Add(first, Tail(first, 1, "x")).IgnoreError();
  EXPECT_THAT(tails_.Remove(first),
              ElementsAre("log/a/0000000001/0000000000", "log/a/0000000001/0000000001"));
  EXPECT_FALSE(Has(first, 0));
  EXPECT_TRUE(Has(second, 0));
}

}  // namespace
}  // namespace muster::core
