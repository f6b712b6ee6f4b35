#include "kernels/thread_pool.h"

#include <array>
#include <atomic>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace muster::kernels {
namespace {

TEST(ThreadPoolTest, EveryPartRunsOnceInEachRound) {
  ThreadPool pool(3);
  EXPECT_EQ(pool.threads(), 3);
  std::array<int, 3> runs = {};
  for (int round = 1; round <= 500; ++round) {
    pool.Run([&](int part) { ++runs[part]; });
    ASSERT_EQ(runs, (std::array<int, 3>{round, round, round}));
  }
}

TEST(ThreadPoolTest, PartsRunConcurrentlyAndTheFirstInTheCaller) {
  ThreadPool pool(2);
  std::array<std::thread::id, 2> ids;
  std::atomic<int> arrived = 0;
  pool.Run([&](int part) {
    ids[part] = std::this_thread::get_id();
    ++arrived;
    while (arrived < 2) std::this_thread::yield();  // never ends if parts run one after the other
  });
  EXPECT_EQ(ids[0], std::this_thread::get_id());
  EXPECT_NE(ids[1], ids[0]);
}

TEST(ThreadPoolTest, OneThreadIsTheCallersThread) {
  ThreadPool pool(1);
  std::thread::id id;
  pool.Run([&](int part) { id = std::this_thread::get_id(); });
  EXPECT_EQ(id, std::this_thread::get_id());
}

TEST(ThreadPoolTest, ConcurrentCallerRunsItsPartsAlone) {
  ThreadPool pool(2);
  std::array<std::thread::id, 2> ids;
  pool.Run([&](int part) {
    if (part == 1) return;
    pool.Run([&](int inner) { ids[inner] = std::this_thread::get_id(); });
  });
  EXPECT_EQ(ids[0], std::this_thread::get_id());
  EXPECT_EQ(ids[1], std::this_thread::get_id());
}

TEST(ThreadPoolTest, CallersWithManyThreadsRunTheirOwnParts) {
  const std::shared_ptr<ThreadPool> pool = ThreadPool::Shared(2);
  EXPECT_EQ(ThreadPool::Shared(2), pool);
  EXPECT_NE(ThreadPool::Shared(3), pool);
  std::array<int, 4> sums = {};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&, caller] {
      for (int round = 0; round < 200; ++round) {
        std::array<int, 2> parts = {};
        pool->Run([&](int part) { parts[part] = part + 1; });
        sums[caller] += std::accumulate(parts.begin(), parts.end(), 0);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sums, (std::array<int, 4>{600, 600, 600, 600}));
}

}  // namespace
}  // namespace muster::kernels
