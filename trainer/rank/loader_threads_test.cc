#include "trainer/rank/loader_threads.h"

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gtest/gtest.h"

namespace muster::rank {
namespace {

v1::Resources WithThreads(uint32_t threads_per_rank) {
  v1::Resources resources;
  resources.set_threads_per_rank(threads_per_rank);
  return resources;
}

TEST(LoaderThreadsTest, OnCpusTheyAreThreadsPerRank) {
  EXPECT_EQ(LoaderThreads(WithThreads(1), /*on_gpu=*/false, 64), 1u);
  EXPECT_EQ(LoaderThreads(WithThreads(6), /*on_gpu=*/false, 2), 6u);
}

TEST(LoaderThreadsTest, WithAGpuTheyUseAllCpusButOne) {
  EXPECT_EQ(LoaderThreads(WithThreads(1), /*on_gpu=*/true, 12), 11u);
  EXPECT_EQ(LoaderThreads(WithThreads(1), /*on_gpu=*/true, 128), 16u);
  EXPECT_EQ(LoaderThreads(WithThreads(1), /*on_gpu=*/true, 1), 1u);
  EXPECT_EQ(LoaderThreads(WithThreads(1), /*on_gpu=*/true, 0), 1u);
  EXPECT_EQ(LoaderThreads(WithThreads(4), /*on_gpu=*/true, 12), 4u);
}

// The exit status of a child process that calls CpusOfRank(2) after binding itself to `cpus` CPUs.
int CpusOfChild(int cpus) {
  const pid_t child = fork();
  if (child == 0) {
    cpu_set_t allowed, bound;
    sched_getaffinity(0, sizeof(allowed), &allowed);
    CPU_ZERO(&bound);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&bound) < cpus; ++cpu) {
      if (CPU_ISSET(cpu, &allowed)) CPU_SET(cpu, &bound);
    }
    sched_setaffinity(0, sizeof(bound), &bound);
    _exit(static_cast<int>(CpusOfRank(2)));
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}

TEST(LoaderThreadsTest, RanksShareCpusUnlessTheyAreBound) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  const int cpus = CPU_COUNT(&allowed);
  if (cpus < 2) GTEST_SKIP() << "needs two CPUs";
  EXPECT_EQ(CpusOfChild(cpus), cpus / 2);
  EXPECT_EQ(CpusOfChild(cpus - 1), cpus - 1);
}

}  // namespace
}  // namespace muster::rank
