#include "worker/shim/rank/memory_watch.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::shim {
namespace {

constexpr uint64_t kMiB = 1 << 20;

TEST(MemoryWatchTest, ReportsNoticeableChanges) {
  MemoryWatch watch(1000);
  EXPECT_EQ(watch.StateLine(), "");
  EXPECT_EQ(watch.OnSample(4096), "memory 4096\n");
  EXPECT_EQ(watch.OnSample(kMiB), "");
  EXPECT_EQ(watch.OnSample(200 * kMiB), "memory 209715200\n");
  // Less than 5 %.
  EXPECT_EQ(watch.OnSample(209 * kMiB), "");
  EXPECT_EQ(watch.OnSample(191 * kMiB), "");
  EXPECT_EQ(watch.StateLine(), "memory 209715200\n");
  EXPECT_EQ(watch.OnSample(190 * kMiB), "memory 199229440\n");
}

TEST(MemoryWatchTest, HasNoTimerWithoutAnInterval) {
  EXPECT_LT(MemoryWatch(0).first_ms(), 0);
  EXPECT_LT(MemoryWatch(0).interval_ms(), 0);
  EXPECT_EQ(MemoryWatch(15'000).first_ms(), 1000);
  EXPECT_EQ(MemoryWatch(100).first_ms(), 100);
}

TEST(MemoryWatchTest, AddsTheResidentMemoryOfAllDescendants) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    fork();  // a child and a grandchild
    const size_t bytes = 64 * kMiB;
    void* const memory = std::malloc(bytes);
    std::memset(memory, 1, bytes);
    [[maybe_unused]] const ssize_t n = write(ready[1], memory, 1);
    while (true) pause();
  }
  setpgid(child, child);
  char buffer[2];
  for (int got = 0; got < 2;) {
    const ssize_t n = read(ready[0], buffer, 2);
    ASSERT_GT(n, 0);
    got += static_cast<int>(n);
  }
  const uint64_t bytes = ResidentBytes(getpid());
  EXPECT_GE(bytes, 128 * kMiB);
  EXPECT_LT(bytes, 256 * kMiB);
  kill(-child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
}

}  // namespace
}  // namespace muster::shim
