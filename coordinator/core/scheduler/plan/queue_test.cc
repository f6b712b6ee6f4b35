#include "coordinator/core/scheduler/plan/queue.h"

#include <algorithm>
#include <ctime>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using ::testing::ElementsAre;

SteadyTime At(absl::Duration since_start) { return SteadyTime(since_start); }

JobId Id(uint64_t sequence) { return JobId(absl::StrCat("job-", sequence)); }

QueueItem MakeItem(uint64_t sequence, uint32_t nodes = 1) {
  QueueItem item;
  item.id = Id(sequence);
  item.sequence = sequence;
  item.slots = nodes;
  item.resources.mutable_nodes()->set_min(nodes);
  return item;
}

class QueueTest : public ::testing::Test {
 protected:
  QueueItem& Item(uint64_t sequence, uint32_t nodes = 1) {
    items_.push_back(MakeItem(sequence, nodes));
    return items_.back();
  }
  void AddAll() {
    for (const QueueItem& item : items_) queue_.Add(item);
    items_.clear();
  }
  void Add(uint64_t sequence, uint32_t nodes) { queue_.Add(MakeItem(sequence, nodes)); }
  Standing StandingOf(const std::string& owner) const {
    const auto standing = standings_.find(owner);
    return standing == standings_.end() ? Standing() : standing->second;
  }
  std::vector<JobId> Order() const {
    const auto standings = [this](const std::string& owner) { return StandingOf(owner); };
    std::vector<JobId> order;
    QueueWalk walk(queue_, standings);
    while (const JobQueue::Entry* const entry = walk.Next()) {
      order.push_back(entry->id);
      walk.Count(entry->place.slots);
      EXPECT_EQ(queue_.PositionOf(entry->id, standings), order.size()) << entry->id;
    }
    return order;
  }
  // Jobs of more than `largest` nodes do not fit. Returns how many jobs were looked at.
  int Check(uint32_t largest) {
    int checked = 0;
    queue_.CheckShapes([&](const JobId& id) -> std::optional<std::string> {
      ++checked;
      const JobQueue::Entry& entry = *queue_.Find(id);
      return queue_.ShapeOfGroup(entry.group).slots > largest ? "too large" : "";
    });
    return checked;
  }

  JobQueue queue_{absl::Hours(1)};
  std::map<std::string, Standing> standings_;
  std::vector<QueueItem> items_;
};

TEST_F(QueueTest, HigherClassIsFirstThenPriorityThenJobsThatRanThenSubmission) {
  Item(1).job_class = JobClass::kLow;
  Item(2);
  Item(3).priority = 5;
  Item(4).has_run = true;
  Item(5).job_class = JobClass::kCritical;
  Item(6).job_class = JobClass::kHigh;
  Item(7).restarting = true;
  AddAll();
  EXPECT_THAT(Order(), ElementsAre(Id(5), Id(6), Id(7), Id(3), Id(4), Id(2), Id(1)));
}

TEST_F(QueueTest, OwnersTakeTurns) {
  for (uint64_t i = 1; i <= 3; ++i) Item(i).owner = "alice";
  for (uint64_t i = 4; i <= 6; ++i) Item(i).owner = "bob";
  AddAll();
  EXPECT_THAT(Order(), ElementsAre(Id(1), Id(4), Id(2), Id(5), Id(3), Id(6)));
  standings_["alice"].usage = 2 * 3600;
  EXPECT_THAT(Order(), ElementsAre(Id(4), Id(5), Id(1), Id(6), Id(2), Id(3)));
  standings_["alice"] = {0, 2};
  EXPECT_THAT(Order(), ElementsAre(Id(1), Id(4), Id(2), Id(3), Id(5), Id(6)))
      << "with twice the share";
}

TEST_F(QueueTest, LargeJobCountsMoreThanSmallOne) {
  Item(1, 4).owner = "alice";
  Item(2, 4).owner = "alice";
  for (uint64_t i = 3; i <= 7; ++i) Item(i).owner = "bob";
  AddAll();
  EXPECT_THAT(Order(), ElementsAre(Id(1), Id(3), Id(4), Id(5), Id(6), Id(2), Id(7)));
}

TEST_F(QueueTest, LongestWaitIsFirstAmongEqualsOnly) {
  Item(1).job_class = JobClass::kLow;
  items_.back().waiting_since = At(-absl::Hours(1000));
  Item(2).owner = "alice";
  Item(3).owner = "alice";
  items_.back().waiting_since = At(-absl::Hours(2));
  Item(4).owner = "alice";
  items_.back().priority = 1;
  Item(5).owner = "bob";
  items_.back().waiting_since = At(-absl::Hours(1));
  Item(6).owner = "carol";
  items_.back().waiting_since = At(-absl::Hours(999));
  AddAll();
  standings_["carol"].usage = 1;
  EXPECT_THAT(Order(), ElementsAre(Id(5), Id(4), Id(6), Id(3), Id(2), Id(1)));
}

// Positions and the walk agree, and removing the first job moves all others up.
TEST_F(QueueTest, PositionsAgreeWithOrder) {
  std::mt19937 random(1);
  for (int round = 0; round < 30; ++round) {
    queue_ = JobQueue(absl::Hours(1));
    for (uint64_t i = 1; i <= 60; ++i) {
      QueueItem& item = Item(i, 1 + random() % 5);
      item.owner = absl::StrCat("owner-", random() % 5);
      item.job_class = static_cast<JobClass>(random() % 4);
      item.priority = static_cast<int32_t>(random() % 3);
      item.has_run = random() % 4 == 0;
      item.restarting = random() % 10 == 0;
      item.waiting_since = At(-(random() % 100) * absl::Hours(1));
      if (random() % 2 == 0) item.length = absl::Hours(random() % 3);
    }
    for (int i = 0; i < 5; ++i) {
      standings_[absl::StrCat("owner-", i)] = {static_cast<double>(random() % 3 * 3600),
                                               1.0 + random() % 2};
    }
    AddAll();
    std::vector<JobId> order = Order();
    EXPECT_EQ(std::set<JobId>(order.begin(), order.end()).size(), 60u);
    for (uint64_t i = 1; i <= 30; ++i) queue_.Remove(Id(i));
    EXPECT_EQ(Order().size(), 30u);
  }
}

TEST_F(QueueTest, SkippedGroupsAreNotReturned) {
  Item(1, 4).owner = "alice";
  Item(2, 4).owner = "alice";
  Item(3, 1).owner = "alice";
  Item(4, 4).owner = "bob";
  Item(5, 1).owner = "bob";
  AddAll();
  QueueWalk walk(queue_, [](const std::string&) { return Standing(); });
  const uint32_t large = walk.Next()->group;
  walk.SkipGroupInLine(large);
  EXPECT_EQ(walk.Next()->id, Id(3)) << "nothing has been counted";
  EXPECT_EQ(walk.Next()->id, Id(4));
  walk.SkipGroup(large);
  EXPECT_EQ(walk.Next()->id, Id(5));
  EXPECT_EQ(walk.Next(), nullptr);
}

TEST_F(QueueTest, JobsMayBeRemovedDuringWalk) {
  for (uint64_t i = 1; i <= 6; ++i) Item(i).owner = i % 2 == 0 ? "alice" : "bob";
  AddAll();
  QueueWalk walk(queue_, [](const std::string&) { return Standing(); });
  EXPECT_EQ(walk.Next()->id, Id(2));
  queue_.Remove(Id(2));
  queue_.Remove(Id(4));
  walk.Count(1);
  EXPECT_EQ(walk.Next()->id, Id(1));
  for (const uint64_t left : {1, 3, 5, 6}) queue_.Remove(Id(left));
  walk.Count(1);
  EXPECT_EQ(walk.Next(), nullptr);
}

TEST_F(QueueTest, UnplaceableRequestsAreFoundByShape) {
  Add(1, 5);
  Add(2, 1);
  Add(3, 5);
  Add(4, 1);
  EXPECT_EQ(Check(4), 2) << "one job of each size";
  EXPECT_EQ(Check(4), 0);
  EXPECT_EQ(queue_.UnplaceableReason(Id(3)), "too large");
  EXPECT_EQ(queue_.UnplaceableReason(Id(2)), "");
  EXPECT_THAT(Order(), ElementsAre(Id(1), Id(2), Id(3), Id(4))) << "they keep their places";
  Add(5, 5);
  EXPECT_EQ(queue_.UnplaceableReason(Id(5)), "too large") << "the verdict holds for its size";
  queue_.UncheckShapes();
  EXPECT_EQ(Check(5), 2);
  EXPECT_EQ(queue_.UnplaceableReason(Id(5)), "");
}

TEST_F(QueueTest, VerdictIsKeptWhenJobMoves) {
  Add(1, 5);
  Check(4);
  QueueItem moved = MakeItem(1, 5);
  moved.restarting = true;
  queue_.Add(moved);
  EXPECT_EQ(queue_.UnplaceableReason(Id(1)), "too large");
  EXPECT_EQ(Check(4), 0);
}

TEST_F(QueueTest, UnknownVerdictIsCheckedAgain) {
  Add(1, 5);
  queue_.CheckShapes([](const JobId&) { return std::nullopt; });
  EXPECT_EQ(queue_.UnplaceableReason(Id(1)), "");
  EXPECT_EQ(Check(4), 1);
}

// CPU time of finding the position of each of `count` jobs.
double ListingSeconds(uint64_t count) {
  JobQueue queue(absl::Hours(1));
  for (uint64_t i = 1; i <= count; ++i) queue.Add(MakeItem(i));
  const std::clock_t start = std::clock();
  uint64_t sum = 0;
  for (uint64_t i = 1; i <= count; ++i) {
    sum += queue.PositionOf(Id(i), [](const std::string&) { return Standing(); });
  }
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
