#include "coordinator/core/scheduler/queue.h"

#include <ctime>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using ::testing::ElementsAre;

Job MakeJob(uint64_t sequence, uint32_t nodes) {
  Job job;
  job.status.set_job_id(absl::StrCat("job-", sequence));
  job.status.mutable_spec()->mutable_resources()->mutable_nodes()->set_min(nodes);
  job.queue_sequence = sequence;
  return job;
}

JobId Id(uint64_t sequence) { return JobId(absl::StrCat("job-", sequence)); }

class QueueTest : public ::testing::Test {
 protected:
  void Add(uint64_t sequence, uint32_t nodes) {
    sizes_[Id(sequence)] = nodes;
    queue_.Add(MakeJob(sequence, nodes));
  }
  // Jobs of more than `largest` nodes do not fit. Returns how many jobs were looked at.
  int Check(uint32_t largest) {
    int checked = 0;
    queue_.CheckShapes([&](const JobId& id) -> std::optional<std::string> {
      ++checked;
      return sizes_.at(id) > largest ? "too large" : "";
    });
    return checked;
  }

  JobQueue queue_;
  std::map<JobId, uint32_t> sizes_;
};

TEST_F(QueueTest, UnplaceableJobsArePassedOver) {
  Add(1, 5);
  Add(2, 1);
  Add(3, 5);
  Add(4, 1);
  EXPECT_EQ(*queue_.head(), Id(1)) << "not checked yet";
  EXPECT_EQ(Check(4), 2) << "one job of each size";
  EXPECT_EQ(Check(4), 0);
  EXPECT_EQ(*queue_.head(), Id(2));
  EXPECT_EQ(queue_.UnplaceableReason(Id(3)), "too large");
  EXPECT_EQ(queue_.UnplaceableReason(Id(2)), "");
  EXPECT_EQ(queue_.PositionOf(Id(3)), 3u) << "it keeps its place";
  queue_.Remove(Id(2));
  EXPECT_EQ(*queue_.head(), Id(4));
  queue_.Remove(Id(4));
  EXPECT_EQ(queue_.head(), nullptr);
  EXPECT_FALSE(queue_.empty());
  Add(5, 5);
  EXPECT_EQ(queue_.UnplaceableReason(Id(5)), "too large") << "the verdict holds for its size";
  queue_.UncheckShapes();
  EXPECT_EQ(Check(5), 1);
  EXPECT_EQ(*queue_.head(), Id(1));
  EXPECT_THAT(queue_.First(10), ElementsAre(Id(1), Id(3), Id(5)));
}

TEST_F(QueueTest, UnknownVerdictKeepsJobAtHead) {
  Add(1, 5);
  queue_.CheckShapes([](const JobId&) { return std::nullopt; });
  EXPECT_EQ(*queue_.head(), Id(1));
  EXPECT_EQ(Check(4), 1) << "checked again";
  EXPECT_EQ(queue_.head(), nullptr);
}

TEST_F(QueueTest, JobOfHigherPriorityBecomesHeadOfItsSize) {
  Add(1, 1);
  Job urgent = MakeJob(2, 1);
  urgent.status.mutable_spec()->set_priority(3);
  queue_.Add(urgent);
  EXPECT_EQ(*queue_.head(), Id(2));
  queue_.Remove(Id(2));
  EXPECT_EQ(*queue_.head(), Id(1));
}

// CPU time of finding the position of each of `count` jobs.
double ListingSeconds(uint64_t count) {
  JobQueue queue;
  for (uint64_t i = 1; i <= count; ++i) queue.Add(MakeJob(i, 1));
  const std::clock_t start = std::clock();
  uint64_t sum = 0;
  for (uint64_t i = 1; i <= count; ++i) sum += queue.PositionOf(Id(i));
  EXPECT_EQ(sum, count * (count + 1) / 2);
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

// With a walk over the queue for each position, eight times the jobs took 64 times as long.
TEST_F(QueueTest, ListingLongQueueTakesLinearTime) {
  double small = 1e9, large = 1e9;
  for (int i = 0; i < 3; ++i) {
    small = std::min(small, ListingSeconds(2'000));
    large = std::min(large, ListingSeconds(16'000));
  }
  EXPECT_LT(large, 30 * small);
}

}  // namespace
}  // namespace muster::core
