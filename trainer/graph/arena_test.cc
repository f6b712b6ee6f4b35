#include "trainer/graph/arena.h"

#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace muster::nn {
namespace {

TEST(ArenaTest, BuffersThatAreNeverAliveTogetherShareMemory) {
  ArenaPlanner planner;
  const size_t a = planner.Add(1000, 0, 1);
  const size_t b = planner.Add(1000, 2, 3);
  planner.Place();
  EXPECT_EQ(planner.offset(a), planner.offset(b));
  EXPECT_EQ(planner.bytes(), 1024u);
}

TEST(ArenaTest, ASmallBufferFillsAGap) {
  ArenaPlanner planner;
  planner.Add(640, 0, 9);
  const size_t gap = planner.Add(320, 0, 4);
  planner.Add(320, 0, 9);
  const size_t small = planner.Add(64, 5, 9);
  planner.Place();
  EXPECT_EQ(planner.bytes(), 1280u);
  EXPECT_EQ(planner.offset(small), planner.offset(gap));
}

TEST(ArenaTest, NothingOverlapsWhileAlive) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 50; ++trial) {
    struct Buffer {
      size_t bytes;
      int64_t first, last;
    };
    std::vector<Buffer> buffers;
    ArenaPlanner planner;
    for (int i = 0; i < 30; ++i) {
      const int64_t first = random() % 20;
      buffers.push_back({random() % 5000, first, first + static_cast<int64_t>(random() % 8)});
      planner.Add(buffers.back().bytes, buffers.back().first, buffers.back().last);
    }
    planner.Place();
    for (size_t i = 0; i < buffers.size(); ++i) {
      EXPECT_EQ(planner.offset(i) % ArenaPlanner::kAlignment, 0u);
      EXPECT_LE(planner.offset(i) + buffers[i].bytes, planner.bytes());
      for (size_t j = 0; j < i; ++j) {
        const bool together =
            buffers[i].first <= buffers[j].last && buffers[j].first <= buffers[i].last;
        const bool apart = planner.offset(i) + buffers[i].bytes <= planner.offset(j) ||
                           planner.offset(j) + buffers[j].bytes <= planner.offset(i);
        EXPECT_TRUE(!together || apart) << i << " and " << j;
      }
    }
  }
}

}  // namespace
}  // namespace muster::nn
