// Inspections of real processes.
#include "worker/shim/hang/inspect.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "common/limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/shim/fields.h"
#include "worker/shim/hang/wait_state.h"

namespace muster::shim {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Clock = std::chrono::steady_clock;

constexpr auto kPatience = std::chrono::seconds(20);

// A child process that does `work`, which must not return; killed at the end.
class Child {
 public:
  explicit Child(const std::function<void()>& work) {
    pid_ = fork();
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    work();
    _exit(1);
  }
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  pid_t pid() const { return pid_; }
  // Inspects it once its main thread waits in `waits_in`.
  Inspection InspectIn(const std::string& waits_in) const {
    const auto deadline = Clock::now() + kPatience;
    while (WaitsIn(pid_) != waits_in && Clock::now() < deadline) std::this_thread::yield();
    return Inspect(pid_, 0.25);
  }
  void WaitForState(const std::string& state) const {
    const auto deadline = Clock::now() + kPatience;
    while (ProcessState(pid_) != state && Clock::now() < deadline) std::this_thread::yield();
    EXPECT_EQ(ProcessState(pid_), state);
  }

 private:
  pid_t pid_;
};

TEST(InspectTest, Sleep) {
  const Child child([] { sleep(1000); });
  const Inspection inspection = child.InspectIn("sleep");
  EXPECT_EQ(inspection.state, "sleeping");
  EXPECT_EQ(inspection.waits_in, "sleep");
  EXPECT_DOUBLE_EQ(inspection.cpu_ratio, 0.25);
  EXPECT_THAT(inspection.stack, StartsWith("main thread:\n  "));
  EXPECT_THAT(inspection.stack, HasSubstr("nanosleep"));
  // Neither stopped nor traced.
  child.WaitForState("sleeping");
  EXPECT_THAT(ReadFile("/proc/" + std::to_string(child.pid()) + "/status").value_or(""),
              HasSubstr("TracerPid:\t0\n"));
  // The trace changes what the kernel shows of the system call.
  EXPECT_EQ(child.InspectIn("sleep").waits_in, "sleep");
}

TEST(InspectTest, StoppedProcessStaysStopped) {
  const Child child([] { sleep(1000); });
  child.InspectIn("sleep");
  kill(child.pid(), SIGSTOP);
  child.WaitForState("stopped");
  const Inspection inspection = Inspect(child.pid(), 0);
  EXPECT_EQ(inspection.state, "stopped");
  EXPECT_EQ(inspection.stack, "");
  EXPECT_EQ(ProcessState(child.pid()), "stopped");
  kill(child.pid(), SIGCONT);
  child.WaitForState("sleeping");
}

TEST(InspectTest, DeadlockOfThreads) {
  const Child child([] {
    std::mutex first, second;
    std::unique_lock<std::mutex> mine(first);
    std::thread other([&] {
      std::unique_lock<std::mutex> other_lock(second);
      std::unique_lock<std::mutex> never(first);
    });
    while (second.try_lock()) second.unlock();
    second.lock();
  });
  const Inspection inspection = child.InspectIn("futex");
  EXPECT_EQ(inspection.state, "sleeping");
  EXPECT_EQ(inspection.waits_in, "futex");
  EXPECT_THAT(inspection.stack, StartsWith("main thread:\n"));
  EXPECT_THAT(inspection.stack, HasSubstr("\nthread "));
  EXPECT_THAT(inspection.stack, HasSubstr("pthread_mutex_lock"));
  EXPECT_EQ(ProcessState(child.pid()), "sleeping");
}

TEST(InspectTest, EqualThreadsAreShownOnce) {
  const Child child([] {
    std::mutex mutex;
    mutex.lock();
    for (int i = 0; i < 5; ++i) std::thread([&] { mutex.lock(); }).detach();
    while (true) pause();
  });
  const auto deadline = Clock::now() + kPatience;
  Inspection inspection;
  do {
    inspection = child.InspectIn("sleep");
  } while (inspection.stack.find(" and 4 like it:") == std::string::npos &&
           Clock::now() < deadline);
  EXPECT_THAT(inspection.stack, HasSubstr(" and 4 like it:\n"));
}

TEST(InspectTest, Loop) {
  const Child child([] {
    volatile bool forever = true;
    while (forever) {
    }
  });
  child.WaitForState("running");
  const Inspection inspection = Inspect(child.pid(), 1);
  EXPECT_EQ(inspection.waits_in, "");
  EXPECT_EQ(inspection.state, "running");
  EXPECT_THAT(inspection.stack, HasSubstr("inspect_test"));
  child.WaitForState("running");
}

TEST(InspectTest, WaitsForPipeAndSocket) {
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  int sockets[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
  const auto read_from = [](int fd) {
    return [fd] {
      char byte;
      if (read(fd, &byte, 1) < 0) _exit(2);
    };
  };
  const auto poll_one = [](int fd) {
    return [fd] {
      pollfd polled = {fd, POLLIN, 0};
      poll(&polled, 1, -1);
    };
  };
  EXPECT_EQ(Child(read_from(pipes[0])).InspectIn("pipe").waits_in, "pipe");
  EXPECT_EQ(Child(poll_one(pipes[0])).InspectIn("pipe").waits_in, "pipe");
  EXPECT_EQ(Child(read_from(sockets[0])).InspectIn("socket").waits_in, "socket");
  EXPECT_EQ(Child(poll_one(sockets[0])).InspectIn("socket").waits_in, "socket");
  for (const int fd : {pipes[0], pipes[1], sockets[0], sockets[1]}) close(fd);
}

TEST(InspectTest, LooksThroughWrapperScripts) {
  const Child child([] { execl("/bin/sh", "sh", "-c", "sleep 1000; true", nullptr); });
  const auto deadline = Clock::now() + kPatience;
  while (WorkingProcess(child.pid()) == child.pid() && Clock::now() < deadline) {
    std::this_thread::yield();
  }
  const pid_t worker = WorkingProcess(child.pid());
  ASSERT_NE(worker, child.pid());
  while (WaitsIn(worker) != "sleep" && Clock::now() < deadline) std::this_thread::yield();
  EXPECT_EQ(Inspect(child.pid(), 0).waits_in, "sleep");
  kill(worker, SIGKILL);
}

TEST(InspectTest, LooksThroughTheMainProcessOfAnMpiRank) {
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  const Child rank([&pipes] {
    setpgid(0, 0);
    const pid_t daemon = fork();
    if (daemon == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      setpgid(0, 0);
      while (true) pause();
    }
    setpgid(daemon, daemon);
    const pid_t program = fork();
    if (program == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      char byte = 0;
      while (read(pipes[0], &byte, 1) >= 0) {
      }
    }
    prctl(PR_SET_NAME, "muster-mpi");
    while (true) poll(nullptr, 0, -1);
  });
  const auto deadline = Clock::now() + kPatience;
  while (WaitsIn(WorkingProcess(rank.pid())) != "pipe" && Clock::now() < deadline) {
    std::this_thread::yield();
  }
  EXPECT_NE(WorkingProcess(rank.pid()), rank.pid());
  EXPECT_EQ(Inspect(rank.pid(), 0).waits_in, "pipe");
  close(pipes[0]);
  close(pipes[1]);
}

TEST(InspectTest, GoneProcess) {
  const Child child([] { _exit(0); });
  child.WaitForState("zombie");
  EXPECT_EQ(Inspect(child.pid(), 0).state, "zombie");
  EXPECT_EQ(ProcessState(0x7fffffff), "gone");
}

// A program named py-spy is first in the PATH of ranks, and not in that of this process.
class PySpyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = "/tmp/muster-py-spy-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  void Install(const std::string& script) {
    std::ofstream(directory_ + "/py-spy") << "#!/bin/sh\n" << script;
    std::filesystem::permissions(directory_ + "/py-spy", std::filesystem::perms::owner_all);
  }

  std::string directory_;
  const std::function<void()> rank_ = [this] {
    setenv("PATH", (directory_ + ":/usr/bin:/bin").c_str(), 1);
    execlp("sleep", "sleep", "1000", nullptr);
  };
};

TEST_F(PySpyTest, PrecedesNativeStacks) {
  Install(
      "echo \"Process $4: python3 train.py\"\necho 'Python v3.11'\necho\n"
      "echo 'Thread 12 (idle): \"QueueFeeder\"'\necho '    wait (threading.py:320)'\n"
      "echo 'Thread 11 (idle): \"MainThread\"'\necho '    l\xC3\xA4uft (train.py:7)'\n");
  const Child child(rank_);
  const Inspection inspection = child.InspectIn("sleep");
  EXPECT_THAT(inspection.stack, StartsWith("main thread, Python:\n"
                                           "  l??uft (train.py:7)\n"
                                           "thread 12 (idle): \"QueueFeeder\", Python:\n"
                                           "  wait (threading.py:320)\n"
                                           "main thread:\n"));
}

TEST_F(PySpyTest, KnowsMainThreadWithoutItsName) {
  Install(
      "echo 'Process 11: python3 train.py'\n"
      "echo 'Thread 110 (idle)'\necho '    wait (threading.py:320)'\n"
      "echo 'Thread 11 (idle)'\necho '    <module> (train.py:7)'\n");
  const Child child(rank_);
  EXPECT_THAT(child.InspectIn("sleep").stack, StartsWith("main thread, Python:\n"
                                                         "  <module> (train.py:7)\n"
                                                         "thread 110 (idle), Python:\n"));
}

TEST_F(PySpyTest, IsLimitedInTimeAndSize) {
  Install("while :; do echo 'Thread 1 (idle): \"MainThread\"'; done");
  const Child child(rank_);
  EXPECT_LE(child.InspectIn("sleep").stack.size(), limits::kStackBytes);
  Install("exec sleep 1000");
  const auto start = Clock::now();
  EXPECT_THAT(Inspect(child.pid(), 0).stack, StartsWith("main thread:\n"));
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(6));
}

TEST_F(PySpyTest, MayFail) {
  Install("echo 'Permission denied' >&2; exit 1");
  const Child child(rank_);
  EXPECT_THAT(child.InspectIn("sleep").stack, StartsWith("main thread:\n"));
}

TEST(InspectionTest, FileRoundTrips) {
  Inspection inspection;
  inspection.state = "sleeping";
  inspection.cpu_ratio = 0.5;
  inspection.waits_in = "futex";
  inspection.stack = "main thread:\n  f=1\n";
  const auto decoded = DecodeInspection(EncodeInspection(inspection));
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(decoded->state, "sleeping");
  EXPECT_DOUBLE_EQ(decoded->cpu_ratio, 0.5);
  EXPECT_EQ(decoded->waits_in, "futex");
  EXPECT_EQ(decoded->stack, "main thread:\n  f=1\n");
  EXPECT_FALSE(DecodeInspection("").has_value());
  EXPECT_FALSE(DecodeInspection("damaged").has_value());
}

}  // namespace
}  // namespace muster::shim
