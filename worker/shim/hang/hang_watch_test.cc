#include "worker/shim/hang/hang_watch.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::shim {
namespace {

constexpr int64_t kTimeoutMs = 100'000;
constexpr int64_t kMiB = 1 << 20;

// Samples once per second from `from_s` up to `to_s`; the counters of process 7 grow each time.
void Sample(Activity& activity, int64_t from_s, int64_t to_s, int64_t bytes_per_second,
            int64_t cpu_ms_per_second = 0) {
  for (int64_t second = from_s; second <= to_s; ++second) {
    activity.OnSample({{7,
                        {static_cast<uint64_t>(bytes_per_second * second),
                         static_cast<uint64_t>(cpu_ms_per_second * second)}}},
                      second * 1000);
  }
}

TEST(ActivityTest, OutputEndsSilence) {
  Activity activity(kTimeoutMs, 0);
  activity.OnOutput(5'000);
  EXPECT_EQ(activity.SilenceMs(5'000), 0);
  EXPECT_EQ(activity.SilenceMs(29'999), 24'999);
  EXPECT_FALSE(activity.IsSilent(29'999));
  EXPECT_TRUE(activity.IsSilent(30'000));
  activity.OnOutput(31'000);
  EXPECT_FALSE(activity.IsSilent(31'000));
}

TEST(ActivityTest, FileInputAndOutputEndsSilence) {
  Activity activity(kTimeoutMs, 0);
  activity.OnOutput(0);
  Sample(activity, 1, 50, kMiB);
  EXPECT_EQ(activity.SilenceMs(60'000), 10'000);
  // Slow, but above the noise.
  Activity slow(kTimeoutMs, 0);
  slow.OnOutput(0);
  Sample(slow, 1, 90, 64 << 10);
  EXPECT_LT(slow.SilenceMs(90'000), 15'000);
}

TEST(ActivityTest, NoiseAndCpuTimeDoNotEndSilence) {
  Activity activity(kTimeoutMs, 0);
  activity.OnOutput(0);
  Sample(activity, 1, 90, 10 << 10, 1500);
  EXPECT_EQ(activity.SilenceMs(90'000), 90'000);
  EXPECT_NEAR(activity.cpu_ratio(), 1.5, 0.01);
}

// A monitor that reads 100 KiB of /proc every ten seconds.
TEST(ActivityTest, PeriodicBurstsDoNotEndSilence) {
  Activity activity(kTimeoutMs, 0);
  activity.OnOutput(0);
  uint64_t bytes = 0;
  for (int64_t second = 1; second <= 90; ++second) {
    if (second % 10 == 0) bytes += 100 << 10;
    activity.OnSample({{7, {bytes, 0}}}, second * 1000);
  }
  EXPECT_EQ(activity.SilenceMs(90'000), 90'000);
}

TEST(ActivityTest, InputAndOutputOfNewProcessesCounts) {
  Activity activity(kTimeoutMs, 0);
  activity.OnOutput(0);
  activity.OnSample({{7, {0, 0}}}, 10'000);
  activity.OnSample({{7, {0, 0}}, {8, {4 * kMiB, 0}}}, 11'000);
  EXPECT_EQ(activity.SilenceMs(12'000), 1'000);
  activity.OnSample({{7, {0, 0}}}, 13'000);  // the process has ended
  EXPECT_EQ(activity.SilenceMs(13'000), 2'000);
}

TEST(ActivityTest, SampleAfterOutputIsNotComparedWithOlderOnes) {
  Activity activity(kTimeoutMs, 0);
  activity.OnSample({{7, {0, 0}}}, 1'000);
  activity.OnOutput(2'000);
  activity.OnSample({{7, {100 * kMiB, 0}}}, 9'000);
  EXPECT_EQ(activity.SilenceMs(9'000), 7'000);
}

TEST(ActivityTest, StartMayTakeAMinute) {
  Activity activity(10'000, 0);
  EXPECT_EQ(activity.SilenceMs(50'000), 0);
  EXPECT_EQ(activity.SilenceMs(60'000), 10'000);
  Activity longer(kTimeoutMs, 0);
  EXPECT_EQ(longer.SilenceMs(60'000), 60'000);
  // Input and output during the start does not shorten it.
  Activity reading(10'000, 0);
  Sample(reading, 0, 20, kMiB);
  EXPECT_EQ(reading.SilenceMs(50'000), 0);
  // The first output ends it.
  activity.OnOutput(0);
  EXPECT_EQ(activity.SilenceMs(10'000), 10'000);
}

TEST(ActivityTest, SampleIntervalFollowsTimeout) {
  EXPECT_EQ(Activity(1'000, 0).sample_interval_ms(), 500);
  EXPECT_EQ(Activity(60'000, 0).sample_interval_ms(), 3'000);
  EXPECT_EQ(Activity(600'000, 0).sample_interval_ms(), 15'000);
  EXPECT_EQ(HangWatch(0, 0).interval_ms(), -1);
}

// Runs `work` in a child, which then waits for its end; returns the counters of the child.
template <typename Work>
ProcessCounters CountersOf(Work work) {
  int done[2];
  EXPECT_EQ(pipe(done), 0);
  const pid_t child = fork();
  if (child == 0) {
    work();
    close(done[0]);
    close(done[1]);
    while (true) pause();
  }
  close(done[1]);
  char byte;
  EXPECT_EQ(read(done[0], &byte, 1), 0);
  close(done[0]);
  const TreeCounters counters = ReadTree(getpid());
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(counters.count(child), 1u);
  return counters.count(child) == 0 ? ProcessCounters() : counters.at(child);
}

TEST(ReadTreeTest, CountsFileInputAndOutput) {
  const ProcessCounters counters = CountersOf([] {
    const int file = open("/dev/null", O_WRONLY);
    const std::string data(kMiB, 'x');
    if (write(file, data.data(), data.size()) < 0) _exit(1);
    close(file);
  });
  EXPECT_GE(counters.io_bytes, static_cast<uint64_t>(kMiB));
  EXPECT_LT(CountersOf([] {}).io_bytes, 16u << 10);
}

TEST(ReadTreeTest, CountsCpuTime) {
  const ProcessCounters counters = CountersOf([] {
    while (clock() < CLOCKS_PER_SEC / 10) {
    }
  });
  EXPECT_GE(counters.cpu_ms, 80u);
}

}  // namespace
}  // namespace muster::shim
