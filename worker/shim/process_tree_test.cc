#include "worker/shim/process_tree.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/shim/fields.h"

namespace muster::shim {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kEntry[] = "MUSTER_MARK_TEST=nobody has this";
constexpr int kPatienceMs = 20'000;

// Runs `body` in a marked child.
pid_t ForkMarked(uint64_t mark, const std::function<void()>& body) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  if (!SetMark(mark)) _exit(99);
  body();
  _exit(0);
}

void KillAndReap(pid_t pid) {
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

// Of the main thread.
char StateOf(pid_t pid) {
  const std::string stat = ReadFile("/proc/" + std::to_string(pid) + "/stat").value_or("");
  const size_t name_end = stat.rfind(')');
  return name_end == std::string::npos ? '?' : stat.at(name_end + 2);
}

class MarkTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(mark_, 0u); }

  const uint64_t mark_ = NewMark();
};

TEST_F(MarkTest, FindsDaemonWithoutEnvironment) {
  int pipe[2];
  ASSERT_EQ(pipe2(pipe, O_CLOEXEC), 0);
  const pid_t child = ForkMarked(mark_, [&pipe] {
    setsid();
    if (fork() != 0) return;
    const pid_t self = getpid();
    if (write(pipe[1], &self, sizeof(self)) != sizeof(self)) _exit(1);
    const char* const none[] = {nullptr};
    execle("/bin/sleep", "sleep", "600", nullptr, none);
    _exit(1);
  });
  close(pipe[1]);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  pid_t daemon = 0;
  ASSERT_EQ(read(pipe[0], &daemon, sizeof(daemon)), static_cast<ssize_t>(sizeof(daemon)));
  char end = 0;
  ASSERT_EQ(read(pipe[0], &end, 1), 0) << "closed by exec";
  close(pipe[0]);

  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, daemon, 0));
  ASSERT_GE(pidfd, 0);
  EXPECT_THAT(KillMarked(kEntry, mark_).alive, ElementsAre(daemon));
  pollfd ended{pidfd, POLLIN, 0};
  EXPECT_EQ(poll(&ended, 1, kPatienceMs), 1);
  close(pidfd);
  Sweep last;
  do {
    last = KillMarked(kEntry, mark_);
    EXPECT_THAT(last.alive, IsEmpty());
  } while (!last.complete);
}

TEST_F(MarkTest, LeavesOtherRanksAlone) {
  const pid_t other = ForkMarked(mark_ - 1, [] { pause(); });
  EXPECT_THAT(KillMarked(kEntry, mark_).alive, IsEmpty());
  EXPECT_EQ(waitpid(other, nullptr, WNOHANG), 0);
  KillAndReap(other);
}

TEST_F(MarkTest, FindsProcessWhoseMainThreadHasEnded) {
  const pid_t child = ForkMarked(mark_, [] {
    std::thread([] { pause(); }).detach();
    syscall(SYS_exit, 0);
  });
  // Without a main thread, it has no environment.
  while (StateOf(child) != 'Z') sched_yield();
  EXPECT_THAT(KillMarked(kEntry, mark_).alive, ElementsAre(child));
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
}

TEST_F(MarkTest, FindsShimThatIsNotMarkedYet) {
  const pid_t shim = fork();
  if (shim == 0) {
    const std::string entry = MarkEntry(mark_);
    const char* const environment[] = {entry.c_str(), nullptr};
    execle("/bin/sleep", "sleep", "600", nullptr, environment);
    _exit(1);
  }
  while (KillMarked(MarkEntry(mark_), mark_).alive.empty()) sched_yield();  // until it has executed
  int status = 0;
  ASSERT_EQ(waitpid(shim, &status, 0), shim);
  EXPECT_TRUE(WIFSIGNALED(status));
}

TEST_F(MarkTest, ZombieIsNotAlive) {
  const pid_t child = ForkMarked(mark_, [] {});
  siginfo_t info = {};
  ASSERT_EQ(waitid(P_PID, child, &info, WEXITED | WNOWAIT), 0);
  EXPECT_THAT(KillMarked(kEntry, mark_).alive, IsEmpty());
  waitpid(child, nullptr, 0);
}

TEST_F(MarkTest, SweepIsIncompleteWithoutDescriptors) {
  const pid_t child = ForkMarked(mark_, [] { pause(); });
  rlimit limit = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const int next = dup(STDIN_FILENO);
  close(next);
  // The first sweep cannot list the processes, and the second cannot examine them.
  for (const int descriptors : {0, 1}) {
    const rlimit few = {static_cast<rlim_t>(next + descriptors), limit.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    const Sweep sweep = KillMarked(kEntry, mark_);
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    EXPECT_FALSE(sweep.complete) << descriptors;
    EXPECT_THAT(sweep.alive, IsEmpty());
  }
  EXPECT_EQ(waitpid(child, nullptr, WNOHANG), 0);
  KillAndReap(child);
}

// A worker that runs in a rank marks its own ranks.
TEST_F(MarkTest, MarksDescendantsOfMarkedProcesses) {
  const pid_t child = ForkMarked(mark_, [] {
    const uint64_t inner = NewMark();
    _exit(inner != 0 && SetMark(inner) ? 0 : 1);
  });
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(MarkTest, NeedsRoomBelowTheLimit) {
  const pid_t child = ForkMarked(1000, [] { _exit(NewMark() == 0 ? 0 : 1); });
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace muster::shim
