// Tests of the real muster-shim with real processes.
#include "worker/shim/rank/shim.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "common/process/exit_code.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/shim/cgroup.h"
#include "worker/shim/clock.h"
#include "worker/shim/fields.h"
#include "worker/shim/log/line_times.h"
#include "worker/shim/process_tree.h"
#include "worker/shim/protocol.h"

namespace muster::shim {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Clock = std::chrono::steady_clock;

constexpr auto kPatience = std::chrono::seconds(20);

// A shim in its own directory, and the worker's end of its control socket.
class ShimTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // Short, because it contains a unix socket.
    std::string pattern = "/tmp/muster-shim-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    cookie_ = "MUSTER_SHIM_TEST=" + directory_;
  }

  void TearDown() override {
    Disconnect();
    if (shim_ > 0) {
      kill(shim_, SIGKILL);
      waitpid(shim_, nullptr, 0);
    }
    while (KillByEnvironment(cookie_) > 0) std::this_thread::yield();
    std::filesystem::remove_all(directory_);
  }

  Instructions Shell(const std::string& script) {
    Instructions instructions;
    instructions.command = {"/bin/sh", "-c", script};
    instructions.environment = {"PATH=/usr/bin:/bin", cookie_};
    instructions.workdir = directory_;
    instructions.stdout_path = directory_ + "/out";
    instructions.stderr_path = directory_ + "/err";
    return instructions;
  }

  void Start(const Instructions& instructions) {
    ASSERT_TRUE(WriteFileAtomically(directory_ + "/" + kInstructionsFile,
                                    EncodeInstructions(instructions), false));
    int pair[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    const std::string binary =
        std::filesystem::read_symlink("/proc/self/exe").parent_path() / "../muster-shim";
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pair[1], kControlFd);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
    const char* argv[] = {binary.c_str(), directory_.c_str(), nullptr};
    ASSERT_EQ(posix_spawn(&shim_, binary.c_str(), &actions, &attributes, const_cast<char**>(argv),
                          environ),
              0);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    close(pair[1]);
    control_ = pair[0];
  }

  void Send(const std::string& line) {
    ASSERT_EQ(send(control_, line.data(), line.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(line.size()));
  }

  // The next line from the shim; "<eof>" or "<timeout>" if there is none.
  std::string ReadLine() {
    const auto deadline = Clock::now() + kPatience;
    while (true) {
      const size_t newline = input_.find('\n');
      if (newline != std::string::npos) {
        const std::string line = input_.substr(0, newline);
        input_.erase(0, newline + 1);
        return line;
      }
      pollfd poll_fd = {control_, POLLIN, 0};
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
      if (left.count() <= 0 || poll(&poll_fd, 1, static_cast<int>(left.count())) != 1) {
        return "<timeout>";
      }
      char buffer[256];
      const ssize_t n = read(control_, buffer, sizeof(buffer));
      if (n <= 0) return "<eof>";
      input_.append(buffer, static_cast<size_t>(n));
    }
  }

  pid_t ReadStarted() {
    std::string line = ReadLine();
    // On a slow machine the memory may be measured before the program has been executed.
    while (line.starts_with("memory ")) line = ReadLine();
    EXPECT_THAT(line, StartsWith("started "));
    return std::atoi(line.c_str() + line.find(' ') + 1);
  }

  void Disconnect() {
    if (control_ >= 0) close(control_);
    control_ = -1;
    input_.clear();
  }

  void Reconnect() {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    const std::string path = directory_ + "/" + kSocketFile;
    ASSERT_LT(path.size(), sizeof(address.sun_path));
    path.copy(address.sun_path, path.size());
    control_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_EQ(connect(control_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }

  // Waits for the shim to exit and reads its exit record.
  ExitRecord Finished() {
    int status = 0;
    EXPECT_EQ(waitpid(shim_, &status, 0), shim_);
    EXPECT_TRUE(WIFEXITED(status)) << status;
    shim_ = -1;
    const auto record = DecodeExitRecord(Read(kExitFile));
    EXPECT_TRUE(record.has_value());
    return record.value_or(ExitRecord());
  }

  std::string Read(const std::string& name) {
    return ReadFile(directory_ + "/" + name).value_or("<none>");
  }

  // Waits until the file has these contents.
  void AwaitContents(const std::string& name, const std::string& expected) {
    const auto deadline = Clock::now() + kPatience;
    while (Read(name) != expected && Clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ASSERT_EQ(Read(name), expected);
  }

  void StopForkStorm(const std::string& cgroup) {
    const std::string storm =
        std::filesystem::read_symlink("/proc/self/exe").parent_path() / "fork_storm";
    MakeFifo("alive");
    Instructions instructions = Shell("");
    instructions.command = {storm, directory_ + "/alive"};
    instructions.cgroup = cgroup;
    const pid_t bystander = fork();
    if (bystander == 0) {
      signal(SIGTERM, SIG_IGN);
      setsid();
      while (true) pause();
    }
    Start(instructions);
    ReadStarted();
    const int alive = open((directory_ + "/alive").c_str(), O_RDONLY | O_CLOEXEC);
    char buffer[8];
    ASSERT_EQ(read(alive, buffer, 1), 1);
    Send("stop 100\n");
    EXPECT_EQ(ReadLine(), "exited");
    fcntl(alive, F_SETFL, O_NONBLOCK);
    EXPECT_EQ(read(alive, buffer, sizeof(buffer)), 0) << "something holds the pipe still";
    close(alive);
    EXPECT_EQ(Finished().signal, SIGKILL);
    EXPECT_EQ(kill(bystander, 0), 0);
    EXPECT_EQ(waitpid(bystander, nullptr, WNOHANG), 0);
    kill(bystander, SIGKILL);
    waitpid(bystander, nullptr, 0);
  }

  // Blocks until the named pipe has been opened for writing, and returns the data.
  std::string WaitForFifo(const std::string& name) { return Read(name); }
  void MakeFifo(const std::string& name) {
    ASSERT_EQ(mkfifo((directory_ + "/" + name).c_str(), 0600), 0);
  }

  std::string directory_;
  std::string cookie_;
  std::string input_;
  pid_t shim_ = -1;
  int control_ = -1;
};

TEST_F(ShimTest, ReportsStartExitCodeAndLogs) {
  Start(Shell("echo to-out; echo to-err >&2; exit 7"));
  EXPECT_GT(ReadStarted(), 0);
  EXPECT_EQ(ReadLine(), "exited");
  const ExitRecord record = Finished();
  EXPECT_EQ(record.exit_code, 7);
  EXPECT_EQ(record.signal, 0);
  EXPECT_FALSE(record.stopped);
  EXPECT_FALSE(record.out_of_memory);
  EXPECT_EQ(record.stderr_tail, "to-err\n");
  EXPECT_GT(record.time_unix_ms, 0);
  EXPECT_EQ(Read("out"), "to-out\n");
  EXPECT_EQ(Read("err"), "to-err\n");
}

TEST_F(ShimTest, JoinedOutputKeepsTheOrderOfTheWrites) {
  constexpr int kPairs = 1000;
  MakeFifo("go");
  Instructions instructions = Shell(
      "i=0; while [ $i -lt 1000 ]; do echo $i; echo $i >&2; i=$((i+1)); done; "
      "cat go; echo end >/dev/stderr; exit 1");
  instructions.joined_output = true;
  std::string lines;
  for (int i = 0; i < kPairs; ++i) {
    lines += std::to_string(i) + "\n" + std::to_string(i) + "\n";
  }
  Start(instructions);
  ReadStarted();
  AwaitContents("out", lines);
  Send("note muster: a note\nping\n");
  EXPECT_EQ(ReadLine(), "pong");
  std::ofstream(directory_ + "/go") << "";
  EXPECT_EQ(ReadLine(), "exited");
  EXPECT_EQ(Read("out"), lines + "end\n");
  EXPECT_EQ(Read("err"), "muster: a note\n");
  EXPECT_THAT(Finished().stderr_tail, EndsWith("\n999\n999\nend\n"));
}

TEST_F(ShimTest, ReportsSignal) {
  Start(Shell("kill -SEGV $$"));
  ReadStarted();
  EXPECT_EQ(ReadLine(), "exited");
  const ExitRecord record = Finished();
  EXPECT_EQ(record.signal, SIGSEGV);
  EXPECT_FALSE(record.out_of_memory);
}

TEST_F(ShimTest, StdinIsEmptyAndNoDescriptorLeaks) {
  Start(Shell("cat; ls /proc/self/fd | wc -l"));
  ReadStarted();
  EXPECT_EQ(ReadLine(), "exited");
  Finished();
  // 0, 1, 2 and the descriptor that ls uses to read the directory.
  EXPECT_EQ(Read("out"), "4\n");
}

TEST_F(ShimTest, DistinguishesExecFailureFromFailedProgram) {
  Instructions instructions = Shell("");
  instructions.command = {"/no/such/program"};
  Start(instructions);
  EXPECT_EQ(ReadLine(), "exec-failed 2 exec /no/such/program: No such file or directory");
  EXPECT_EQ(ReadLine(), "exited");
  const ExitRecord record = Finished();
  EXPECT_EQ(record.exec_errno, ENOENT);
  EXPECT_EQ(record.exit_code, 127);
}

TEST_F(ShimTest, MissingWorkdirIsAnExecFailure) {
  Instructions instructions = Shell("exit 0");
  instructions.workdir = "/no/such/folder";
  Start(instructions);
  EXPECT_EQ(ReadLine(), "exec-failed 2 workdir /no/such/folder: No such file or directory");
  const ExitRecord record = Finished();
  EXPECT_EQ(record.exec_errno, ENOENT);
  EXPECT_EQ(record.exit_code, 66);
}

TEST_F(ShimTest, MakesCheckpointDirectory) {
  Instructions instructions = Shell("touch checkpoint/written");
  instructions.checkpoint_dir = directory_ + "/checkpoint";
  for (int i = 0; i < 2; ++i) {
    Start(instructions);
    ReadStarted();
    EXPECT_EQ(ReadLine(), "exited");
    Disconnect();
    EXPECT_EQ(Finished().exit_code, 0);
  }
}

TEST_F(ShimTest, UnusableCheckpointDirectoryIsAnExecFailure) {
  const auto failure = [this](const std::string& path) {
    Instructions instructions = Shell("exit 0");
    instructions.checkpoint_dir = path;
    Start(instructions);
    ReadLine();
    Disconnect();
    return Finished();
  };
  const ExitRecord missing = failure(directory_ + "/not-mounted/job");
  EXPECT_EQ(missing.exit_code, 73);
  EXPECT_EQ(missing.exec_error, "checkpoint directory " + directory_ +
                                    "/not-mounted/job: No such file or directory; its parent must "
                                    "exist on every node");
  std::ofstream(directory_ + "/file") << "text";
  const ExitRecord file = failure(directory_ + "/file");
  EXPECT_EQ(file.exit_code, 73);
  EXPECT_EQ(file.exec_errno, ENOTDIR);
  EXPECT_EQ(failure("/proc/job").exit_code, 73) << "it cannot be written, not even by root";
}

TEST_F(ShimTest, ReportsExecFailureInDetail) {
  const auto failure = [this](const std::string& program) {
    Instructions instructions = Shell("");
    instructions.command = {program};
    Start(instructions);
    ReadLine();
    Disconnect();
    return Finished();
  };
  const ExitRecord unknown = failure("no-such-program");
  EXPECT_EQ(unknown.exit_code, 127);
  EXPECT_EQ(unknown.exec_error, "exec no-such-program: not found in PATH=/usr/bin:/bin");

  std::ofstream(directory_ + "/plain") << "text";
  const ExitRecord plain = failure(directory_ + "/plain");
  EXPECT_EQ(plain.exit_code, 126);
  EXPECT_THAT(plain.exec_error, HasSubstr("/plain: Permission denied"));

  std::ofstream(directory_ + "/script") << "#!/no/such/interpreter\n";
  std::filesystem::permissions(directory_ + "/script", std::filesystem::perms::owner_all);
  const ExitRecord script = failure("./script");
  EXPECT_EQ(script.exit_code, 127);
  EXPECT_THAT(script.exec_error, HasSubstr("exec ./script: the interpreter"));

  EXPECT_THAT(failure("./none").exec_error,
              HasSubstr("exec ./none: No such file or directory in workdir " + directory_));
}

TEST_F(ShimTest, SearchesProgramInTheRanksPath) {
  Instructions instructions = Shell("");
  std::ofstream(directory_ + "/only-here") << "#!/bin/sh\necho found\n";
  std::filesystem::permissions(directory_ + "/only-here", std::filesystem::perms::owner_all);
  instructions.command = {"only-here"};
  instructions.environment = {"PATH=" + directory_, cookie_};
  Start(instructions);
  ReadStarted();
  EXPECT_EQ(ReadLine(), "exited");
  EXPECT_EQ(Finished().exit_code, 0);
  EXPECT_EQ(Read("out"), "found\n");
}

TEST_F(ShimTest, StopLetsTheRankExitByItself) {
  MakeFifo("ready");
  Start(Shell("trap 'echo bye; exit 3' TERM; echo x > ready; while :; do sleep 0.01; done"));
  ReadStarted();
  WaitForFifo("ready");
  Send("stop 20000\n");
  EXPECT_EQ(ReadLine(), "exited");
  const ExitRecord record = Finished();
  EXPECT_EQ(record.exit_code, 3);
  EXPECT_TRUE(record.stopped);
  EXPECT_EQ(Read("out"), "bye\n");
}

TEST_F(ShimTest, ShorterGraceReplacesLonger) {
  MakeFifo("ready");
  Start(Shell("trap '' TERM; echo x > ready; while :; do sleep 0.01; done"));
  ReadStarted();
  WaitForFifo("ready");
  const auto start = Clock::now();
  Send("stop 600000\n");
  Send("stop 50\n");
  Send("stop 600000\n");
  EXPECT_EQ(ReadLine(), "exited");
  EXPECT_LT(Clock::now() - start, kPatience);
  EXPECT_EQ(Finished().signal, SIGKILL);
}

// A grandchild that left the session, was orphaned by its parent and ignores SIGTERM is killed by a
// stop.
TEST_F(ShimTest, StopKillsTheProcessTree) {
  MakeFifo("ready");
  Start(
      Shell("trap '' TERM; (setsid sh -c \"trap '' TERM; echo x > ready; "
            "while :; do sleep 0.01; done\" &) ; while :; do sleep 0.01; done"));
  ReadStarted();
  WaitForFifo("ready");
  Send("stop 100\n");
  EXPECT_EQ(ReadLine(), "exited");
  const ExitRecord record = Finished();
  EXPECT_EQ(record.signal, SIGKILL);
  EXPECT_TRUE(record.stopped);
  EXPECT_FALSE(record.out_of_memory);
  EXPECT_EQ(KillByEnvironment(cookie_), 0u);
}

// The storm is faster than a scan of /proc, and it hides from a search by environment. A similar
// process of another parent is left alone.
TEST_F(ShimTest, StopKillsAForkStorm) { StopForkStorm(""); }

TEST_F(ShimTest, StopKillsAForkStormInACgroup) {
  const std::string root = FindDelegatedCgroup();
  if (root.empty()) GTEST_SKIP() << "no control group of version 2 is delegated to this process";
  const std::string group = root + "/muster-shim-test-" + std::to_string(getpid());
  StopForkStorm(group);
  EXPECT_FALSE(std::filesystem::exists(group));
}

TEST_F(ShimTest, RunsWithoutCgroupIfItCannotBeCreated) {
  Instructions instructions = Shell("echo ran");
  instructions.cgroup = "/no/such/group";
  Start(instructions);
  ReadStarted();
  EXPECT_EQ(ReadLine(), "exited");
  EXPECT_EQ(Finished().exit_code, 0);
  EXPECT_EQ(Read("out"), "ran\n");
}

TEST_F(ShimTest, LimitsTheGroupBeforeTheRankStarts) {
  const std::string group = directory_ + "/group";
  std::filesystem::create_directory(group);
  for (const char* file : {"cgroup.procs", "memory.max", "memory.oom.group", "pids.max"}) {
    std::ofstream(group + "/" + file) << "";
  }
  Instructions instructions = Shell("cat group/memory.max group/pids.max");
  instructions.cgroup = group;
  instructions.limits = {.memory_bytes = 1 << 30, .pids = 64};
  Start(instructions);
  ReadStarted();
  EXPECT_EQ(ReadLine(), "exited");
  EXPECT_EQ(Finished().exit_code, 0);
  EXPECT_EQ(Read("out"), "107374182464");
}

TEST_F(ShimTest, DoesNotStartARankThatItCannotLimit) {
  Instructions instructions = Shell("echo ran");
  instructions.cgroup = directory_;
  instructions.limits = {.memory_bytes = 1 << 30};
  Start(instructions);
  EXPECT_THAT(ReadLine(), StartsWith("exec-failed 2 limit the rank's group: "));
  EXPECT_EQ(ReadLine(), "exited");
  EXPECT_EQ(Finished().exit_code, kExitCannotExecute);
  EXPECT_EQ(Read("out"), "");
}

TEST_F(ShimTest, BindsRankToItsCpus) {
  cpu_set_t mine;
  ASSERT_EQ(sched_getaffinity(0, sizeof(mine), &mine), 0);
  int last = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &mine)) last = cpu;
  }
  Instructions instructions = Shell("grep Cpus_allowed_list /proc/self/status");
  instructions.cpus = {last};
  Start(instructions);
  ReadStarted();
  EXPECT_EQ(ReadLine(), "exited");
  Finished();
  EXPECT_EQ(Read("out"), "Cpus_allowed_list:\t" + std::to_string(last) + "\n");
}

TEST_F(ShimTest, WritesNotesBetweenLinesOfTheLog) {
  MakeFifo("go");
  Start(Shell("printf 'half ' >&2; cat go; echo line >&2; exit 1"));
  ReadStarted();
  AwaitContents("err", "half ");  // unfinished lines are visible at once
  Send("note muster: waits for rank 3\n");
  Send("ping\n");
  EXPECT_EQ(ReadLine(), "pong");
  EXPECT_EQ(Read("err"), "half ");
  std::ofstream(directory_ + "/go") << "";
  EXPECT_EQ(ReadLine(), "exited");
  EXPECT_EQ(Finished().stderr_tail, "half line\n");
  EXPECT_EQ(Read("err"), "half line\nmuster: waits for rank 3\n");
}

TEST_F(ShimTest, NoteDoesNotWaitLongForTheEndOfALine) {
  MakeFifo("go");
  Start(Shell("printf '10%%\r20%%' >&2; cat go; printf '\r30%%\n' >&2"));
  ReadStarted();
  AwaitContents("err", "10%\r20%");
  Send("note muster: waits for rank 3\n");
  AwaitContents("err", "10%\r20%\nmuster: waits for rank 3\n");
  std::ofstream(directory_ + "/go") << "";
  EXPECT_EQ(ReadLine(), "exited");
  EXPECT_EQ(Read("err"), "10%\r20%\nmuster: waits for rank 3\n\r30%\n");
}

TEST_F(ShimTest, RecordsTimesOfLines) {
  MakeFifo("go");
  const int64_t before = WallMicros();
  Start(Shell("echo one; cat go; echo two"));
  ReadStarted();
  AwaitContents("out", "one\n");
  const int64_t between = WallMicros();
  std::ofstream(directory_ + "/go") << "";
  EXPECT_EQ(ReadLine(), "exited");
  const std::string times = Read("out.times");
  ASSERT_EQ(times.size(), 2 * kLineTimeBytes);
  const LineTime one = DecodeLineTime(times.data());
  const LineTime two = DecodeLineTime(times.data() + kLineTimeBytes);
  EXPECT_EQ(one.offset, 0u);
  EXPECT_EQ(two.offset, 4u);
  EXPECT_LE(before, one.unix_micros);
  EXPECT_LE(one.unix_micros, between);
  EXPECT_LE(between, two.unix_micros);
  EXPECT_LE(two.unix_micros, WallMicros());
}

TEST_F(ShimTest, KillsDaemonOfAFinishedRank) {
  MakeFifo("ready");
  Start(
      Shell("(setsid sh -c \"trap '' TERM; echo x > ready; while :; do sleep 0.01; done\" &); "
            "cat ready; exit 0"));
  ReadStarted();
  EXPECT_EQ(ReadLine(), "exited");
  const ExitRecord record = Finished();
  EXPECT_EQ(record.exit_code, 0);
  EXPECT_FALSE(record.stopped);
  EXPECT_EQ(KillByEnvironment(cookie_), 0u);
}

// `sh -c 'a; b'` dies of SIGTERM at once; the program that it started still gets its grace period.
TEST_F(ShimTest, ProgramUnderAWrapperKeepsItsGrace) {
  MakeFifo("ready");
  MakeFifo("go");
  Start(
      Shell("sh -c 'trap \"cat go; echo saved; exit 0\" TERM; echo x > ready; "
            "while :; do sleep 0.01; done' & wait"));
  ReadStarted();
  WaitForFifo("ready");
  Send("stop 20000\n");
  std::ofstream(directory_ + "/go") << "";
  EXPECT_EQ(ReadLine(), "exited");
  EXPECT_EQ(Finished().signal, SIGTERM);
  EXPECT_EQ(Read("out"), "saved\n");
}

TEST_F(ShimTest, StopsWithTheStopSignalOfItsInstructions) {
  MakeFifo("ready");
  Instructions instructions =
      Shell("trap 'echo saved; exit 5' USR1; echo x > ready; while :; do sleep 0.01; done");
  instructions.stop_signal = SIGUSR1;
  Start(instructions);
  ReadStarted();
  WaitForFifo("ready");
  Send("stop 20000\n");
  EXPECT_EQ(ReadLine(), "exited");
  const ExitRecord record = Finished();
  EXPECT_EQ(record.exit_code, 5);
  EXPECT_TRUE(record.stopped);
  EXPECT_EQ(Read("out"), "saved\n");
}

// A signal to the shim itself, for example from a machine that shuts down.
TEST_F(ShimTest, StopsByItselfWithTheStopSignalOfItsInstructions) {
  Instructions instructions = Shell("exec sleep 600");
  instructions.stop_signal = SIGUSR2;
  Start(instructions);
  ReadStarted();
  ASSERT_EQ(kill(shim_, SIGTERM), 0);
  EXPECT_EQ(ReadLine(), "exited");
  EXPECT_EQ(Finished().signal, SIGUSR2);
}

TEST_F(ShimTest, DoesNotSplitLinesOfTwoStreams) {
  // A line of a megabyte, then eight processes concurrently on both streams, then an unterminated
  // line.
  Start(
      Shell("head -c 1048575 /dev/zero | tr '\\0' a; echo; echo end;"
            "for i in 1 2 3 4 5 6 7 8; do (for j in $(seq 200); do echo \"$i $j line\"; "
            "echo \"$i $j error\" >&2; done) & done; wait; printf partial"));
  ReadStarted();
  EXPECT_EQ(ReadLine(), "exited");
  Finished();
  std::ifstream out(directory_ + "/out");
  std::string line;
  ASSERT_TRUE(std::getline(out, line));
  EXPECT_EQ(line, std::string(1048575, 'a'));
  ASSERT_TRUE(std::getline(out, line));
  EXPECT_EQ(line, "end");
  int lines = 0;
  while (std::getline(out, line) && line != "partial") {
    EXPECT_THAT(line, ::testing::MatchesRegex("[1-8] [0-9]+ line"));
    ++lines;
  }
  EXPECT_EQ(lines, 1600);
  EXPECT_EQ(line, "partial");
  std::ifstream err(directory_ + "/err");
  lines = 0;
  while (std::getline(err, line)) {
    EXPECT_THAT(line, ::testing::MatchesRegex("[1-8] [0-9]+ error"));
    ++lines;
  }
  EXPECT_EQ(lines, 1600);
}

TEST_F(ShimTest, ReportsAndMarksLostOutput) {
  constexpr uint64_t kLines = 20'000;
  for (const char* name : {"/begin", "/go"})
    ASSERT_EQ(mkfifo((directory_ + name).c_str(), 0600), 0);
  Start(Shell("cat " + directory_ + "/begin; seq -f 'line %010.0f' " + std::to_string(kLines) +
              "; cat " + directory_ + "/go; echo more"));
  ReadStarted();
  const rlimit full = {8200, RLIM_INFINITY};
  ASSERT_EQ(prlimit(shim_, RLIMIT_FSIZE, &full, nullptr), 0);
  std::ofstream(directory_ + "/begin") << "";
  EXPECT_THAT(ReadLine(), ::testing::MatchesRegex("lost [0-9]+ [0-9]+ File too large"));
  std::ofstream(directory_ + "/go") << "";
  const rlimit space = {RLIM_INFINITY, RLIM_INFINITY};
  ASSERT_EQ(prlimit(shim_, RLIMIT_FSIZE, &space, nullptr), 0);
  std::string end = ReadLine();
  while (end.compare(0, 5, "lost ") == 0) end = ReadLine();
  EXPECT_EQ(end, "exited");
  const ExitRecord record = Finished();
  EXPECT_EQ(record.lost_output.reason, "File too large");
  const std::string log = Read("out");
  EXPECT_THAT(log, HasSubstr("\n[muster: "));
  EXPECT_THAT(log, HasSubstr(" lines lost: File too large]\n"));
  std::istringstream lines(log);
  uint64_t kept = 0;
  for (std::string line; std::getline(lines, line);) {
    kept += line == "more" || (line.size() == 15 && line.compare(0, 5, "line ") == 0) ? 1 : 0;
  }
  EXPECT_EQ(kept + record.lost_output.lines, kLines + 1);
}

TEST_F(ShimTest, LimitsStderrTail) {
  Start(
      Shell("i=0; while [ $i -lt 200 ]; do echo line-$i >&2; i=$((i+1)); done; "
            "printf no-newline >&2; exit 1"));
  ReadStarted();
  EXPECT_EQ(ReadLine(), "exited");
  const ExitRecord record = Finished();
  EXPECT_THAT(record.stderr_tail, StartsWith("line-151\n"));
  EXPECT_THAT(record.stderr_tail, EndsWith("line-199\nno-newline"));
}

TEST_F(ShimTest, KillsItsTreeWhenNoWorkerReturns) {
  Instructions instructions = Shell("trap '' TERM; while :; do sleep 0.01; done");
  instructions.failure_timeout_ms = 100;
  instructions.grace_ms = 50;
  Start(instructions);
  ReadStarted();
  Disconnect();
  const ExitRecord record = Finished();
  EXPECT_TRUE(record.abandoned);
  EXPECT_EQ(record.signal, SIGKILL);
  EXPECT_EQ(KillByEnvironment(cookie_), 0u);
}

// ---- Leases

TEST_F(ShimTest, EndsItsTreeAtLeaseDeadline) {
  Instructions instructions = Shell("trap '' TERM; sleep 600 & while :; do sleep 0.01; done");
  instructions.lease_deadline_ms = BootMs() + 300;
  Start(instructions);
  ReadStarted();
  EXPECT_EQ(ReadLine(), "exited") << "although the worker is connected";
  EXPECT_GE(BootMs(), instructions.lease_deadline_ms);
  const ExitRecord record = Finished();
  EXPECT_TRUE(record.lease_expired);
  EXPECT_FALSE(record.stopped);
  EXPECT_FALSE(record.out_of_memory);
  EXPECT_EQ(record.signal, SIGKILL);
  EXPECT_EQ(KillByEnvironment(cookie_), 0u);
}

TEST_F(ShimTest, StartsNothingAfterLeaseDeadline) {
  Instructions instructions = Shell("touch started; sleep 600");
  instructions.lease_deadline_ms = BootMs() - 1;
  Start(instructions);
  EXPECT_EQ(ReadLine(), "exited");
  const ExitRecord record = Finished();
  EXPECT_TRUE(record.lease_expired);
  EXPECT_EQ(record.signal, SIGKILL);
  EXPECT_EQ(record.pid, 0);
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/started"));
}

TEST_F(ShimTest, WorkerExtendsLease) {
  Instructions instructions = Shell("exec sleep 600");
  instructions.lease_deadline_ms = BootMs() + 500;
  Start(instructions);
  const pid_t pid = ReadStarted();
  int64_t deadline_ms = 0;
  for (int i = 0; i < 20; ++i) {
    deadline_ms = BootMs() + 500;
    Send("lease " + std::to_string(deadline_ms) + "\n");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ASSERT_EQ(kill(pid, 0), 0);
  }
  Disconnect();
  EXPECT_TRUE(Finished().lease_expired);
  EXPECT_GE(BootMs(), deadline_ms);
}

TEST_F(ShimTest, LaterWorkerExtendsLease) {
  Instructions instructions = Shell("exec sleep 600");
  instructions.lease_deadline_ms = BootMs() + 1000;
  instructions.failure_timeout_ms = 50;  // does not matter: there is a lease
  Start(instructions);
  const pid_t pid = ReadStarted();
  Disconnect();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  Reconnect();
  EXPECT_EQ(ReadStarted(), pid);
  Send("lease " + std::to_string(BootMs() + 60'000) + "\n");
  while (BootMs() < instructions.lease_deadline_ms + 200) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  Send("ping\n");
  EXPECT_EQ(ReadLine(), "pong");
  Send("kill\n");
  EXPECT_EQ(ReadLine(), "exited");
  EXPECT_FALSE(Finished().lease_expired);
}

// A shim that was stopped itself reads what its worker has sent before it decides.
TEST_F(ShimTest, StoppedShimReadsLaterDeadlines) {
  Instructions instructions = Shell("exec sleep 600");
  instructions.lease_deadline_ms = BootMs() + 300;
  Start(instructions);
  ReadStarted();
  ASSERT_EQ(kill(shim_, SIGSTOP), 0);
  for (int i = 0; i < 100; ++i) Send("lease " + std::to_string(BootMs() + 30'000 + i) + "\n");
  while (BootMs() < instructions.lease_deadline_ms + 100) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  ASSERT_EQ(kill(shim_, SIGCONT), 0);
  Send("ping\n");
  EXPECT_EQ(ReadLine(), "pong");
  Send("kill\n");
  EXPECT_EQ(ReadLine(), "exited");
  EXPECT_FALSE(Finished().lease_expired);
}

TEST_F(ShimTest, SendsStateToLaterWorker) {
  MakeFifo("ready");
  Start(Shell("echo x > ready; exec sleep 600"));
  const pid_t pid = ReadStarted();
  WaitForFifo("ready");
  Disconnect();
  Reconnect();
  EXPECT_EQ(ReadStarted(), pid);
  Send("ping\n");
  EXPECT_EQ(ReadLine(), "pong");
  Send("kill\n");
  EXPECT_EQ(ReadLine(), "exited");
  EXPECT_TRUE(Finished().stopped);
}

TEST_F(ShimTest, ReportsSilenceAndItsEnd) {
  MakeFifo("go");
  Instructions instructions = Shell("echo ready; read line < go; echo again; exec sleep 600");
  instructions.hang_timeout_ms = 400;
  Start(instructions);
  ReadStarted();
  EXPECT_THAT(ReadLine(), StartsWith("silent "));
  // A worker that connects later receives it too.
  Disconnect();
  Reconnect();
  ReadStarted();
  const std::string line = ReadLine();
  EXPECT_THAT(line, StartsWith("silent "));
  EXPECT_GE(std::atoi(line.c_str() + 7), 100);
  std::ofstream(directory_ + "/go") << "x\n";
  EXPECT_EQ(ReadLine(), "active");
  EXPECT_THAT(ReadLine(), StartsWith("silent "));
  Send("active\n");
  EXPECT_EQ(ReadLine(), "active");
  Send("kill\n");
}

TEST_F(ShimTest, ReportsMemoryOfTheRank) {
  MakeFifo("go");
  Instructions instructions = Shell(
      "read line < go; exec /usr/bin/python3 -c 'import time; a = b\"x\" * (64 << 20); "
      "time.sleep(600)'");
  instructions.memory_interval_ms = 50;
  Start(instructions);
  ReadStarted();
  const auto bytes = [this] {
    const std::string line = ReadLine();
    EXPECT_THAT(line, StartsWith("memory "));
    return std::atoll(line.c_str() + 7);
  };
  const int64_t first = bytes();
  EXPECT_GT(first, 0);
  EXPECT_LT(first, 32 << 20);
  // A worker that connects later receives it too.
  Disconnect();
  Reconnect();
  ReadStarted();
  EXPECT_EQ(bytes(), first);
  std::ofstream(directory_ + "/go") << "x\n";
  int64_t last = 0;
  for (int i = 0; i < 50 && last < 64 << 20; ++i) last = bytes();
  EXPECT_GE(last, 64 << 20);
  Send("kill\n");
}

TEST_F(ShimTest, FileInputAndOutputIsNoSilence) {
  MakeFifo("go");
  Instructions instructions = Shell(
      "echo ready; read line < go; while :; do head -c 1000000 /dev/zero > file; sleep 0.1; done");
  instructions.hang_timeout_ms = 4000;
  Start(instructions);
  ReadStarted();
  EXPECT_THAT(ReadLine(), StartsWith("silent "));
  std::ofstream(directory_ + "/go") << "x\n";
  EXPECT_EQ(ReadLine(), "active");
  Send("kill\n");
  EXPECT_EQ(ReadLine(), "exited");
}

TEST_F(ShimTest, InspectsSilentRank) {
  Instructions instructions = Shell("echo ready; exec sleep 600");
  instructions.hang_timeout_ms = 400;
  Start(instructions);
  const pid_t rank = ReadStarted();
  EXPECT_THAT(ReadLine(), StartsWith("silent "));
  Send("inspect\n");
  EXPECT_EQ(ReadLine(), "inspected");
  const auto inspection = DecodeInspection(Read(kInspectionFile));
  ASSERT_TRUE(inspection.has_value());
  EXPECT_EQ(inspection->state, "sleeping");
  EXPECT_EQ(inspection->waits_in, "sleep");
  EXPECT_THAT(inspection->stack, HasSubstr("nanosleep"));
  // The rank was not disturbed, and can be inspected again.
  EXPECT_EQ(kill(rank, 0), 0);
  Send("inspect\n");
  EXPECT_EQ(ReadLine(), "inspected");
  Send("kill\n");
  EXPECT_EQ(ReadLine(), "exited");
}

TEST_F(ShimTest, AbortPrintsPythonStacks) {
  MakeFifo("ready");
  Instructions instructions = Shell("");
  instructions.command = {"/usr/bin/python3", "-c",
                          "import time\ndef hang():\n    open('ready', 'w').write('x')\n"
                          "    time.sleep(600)\nhang()"};
  instructions.environment.push_back("PYTHONFAULTHANDLER=1");
  Start(instructions);
  const pid_t rank = ReadStarted();
  WaitForFifo("ready");
  kill(rank, SIGSTOP);  // it has to be continued
  Send("abort 20000\n");
  EXPECT_EQ(ReadLine(), "exited");
  const ExitRecord record = Finished();
  EXPECT_EQ(record.signal, SIGABRT);
  EXPECT_TRUE(record.stopped);
  EXPECT_THAT(Read("err"), HasSubstr("Fatal Python error: Aborted"));
  EXPECT_THAT(Read("err"), HasSubstr("in hang"));
}

TEST_F(ShimTest, IgnoresInvalidCommands) {
  Start(Shell("exec sleep 600"));
  ReadStarted();
  Send("stop\nstop -5\nstop 1e9\nwhat is this\n\n");
  Send("ping\n");
  EXPECT_EQ(ReadLine(), "pong");
  Send(std::string(100'000, 'x'));
  EXPECT_THAT(ReadLine(), ::testing::AnyOf("<eof>", "<timeout>"));
  Disconnect();
  Reconnect();
  ReadStarted();
  Send("kill\n");
  EXPECT_EQ(ReadLine(), "exited");
  Finished();
}

TEST_F(ShimTest, RankDiesWithItsShim) {
  Start(Shell("exec sleep 600"));
  // The rank is no child of this test once its shim is gone. Opened while the shim holds the rank's
  // number.
  const int rank = static_cast<int>(syscall(SYS_pidfd_open, ReadStarted(), 0));
  ASSERT_GE(rank, 0) << std::strerror(errno);
  kill(shim_, SIGKILL);
  waitpid(shim_, nullptr, 0);
  shim_ = -1;
  pollfd end{rank, POLLIN, 0};
  EXPECT_EQ(poll(&end, 1, static_cast<int>(std::chrono::milliseconds(kPatience).count())), 1);
  close(rank);
  EXPECT_EQ(Read(kExitFile), "<none>");
}

TEST_F(ShimTest, StartsInMilliseconds) {
  const auto start = Clock::now();
  Start(Shell("exit 0"));
  ReadStarted();
  EXPECT_LT(Clock::now() - start, std::chrono::milliseconds(200));
  EXPECT_EQ(ReadLine(), "exited");
  Finished();
}

// A traced process stays a zombie until its tracer, this test, reaps it.
TEST_F(ShimTest, ReportsProcessesThatOutliveSigkill) {
  Instructions instructions = Shell("while :; do sleep 1000; done");
  instructions.kill_patience_ms = 100;
  Start(instructions);
  const pid_t pid = ReadStarted();
  if (ptrace(PTRACE_SEIZE, pid, nullptr, nullptr) != 0) {
    GTEST_SKIP() << "processes cannot be traced here: " << std::strerror(errno);
  }
  Send("stop 0\n");
  EXPECT_EQ(ReadLine(), "unkillable");
  Disconnect();
  Reconnect();
  EXPECT_EQ(ReadStarted(), pid);
  EXPECT_EQ(ReadLine(), "unkillable") << "a later worker learns it, too";
  ASSERT_EQ(waitpid(pid, nullptr, __WALL), pid);
  EXPECT_EQ(ReadLine(), "exited");
  EXPECT_EQ(Finished().signal, SIGKILL);
}

TEST(ProtocolTest, RoundTrips) {
  Instructions instructions;
  instructions.command = {"a", "", "with\nnewline", "k=v"};
  instructions.environment = {"A=1=2", "B="};
  instructions.workdir = "/w";
  instructions.checkpoint_dir = "/c";
  instructions.stdout_path = "/o";
  instructions.stderr_path = "/e";
  instructions.joined_output = true;
  instructions.failure_timeout_ms = 5;
  instructions.kill_patience_ms = 8;
  instructions.hang_timeout_ms = 7;
  instructions.memory_interval_ms = 10;
  instructions.stop_signal = SIGUSR1;
  instructions.grace_ms = 6;
  instructions.mark = 11;
  instructions.cgroup = "/g";
  instructions.limits = {.memory_bytes = 1ull << 40, .pids = 9};
  instructions.cpus = {3, 7};
  const auto decoded = DecodeInstructions(EncodeInstructions(instructions));
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(decoded->command, instructions.command);
  EXPECT_EQ(decoded->limits.memory_bytes, instructions.limits.memory_bytes);
  EXPECT_EQ(decoded->limits.pids, instructions.limits.pids);
  EXPECT_EQ(decoded->environment, instructions.environment);
  EXPECT_EQ(decoded->failure_timeout_ms, 5);
  EXPECT_EQ(decoded->kill_patience_ms, 8);
  EXPECT_EQ(decoded->hang_timeout_ms, 7);
  EXPECT_EQ(decoded->memory_interval_ms, 10);
  EXPECT_EQ(decoded->stop_signal, SIGUSR1);
  EXPECT_EQ(decoded->grace_ms, 6);
  EXPECT_EQ(decoded->checkpoint_dir, "/c");
  EXPECT_EQ(decoded->stderr_path, "/e");
  EXPECT_TRUE(decoded->joined_output);
  EXPECT_EQ(decoded->mark, 11u);
  EXPECT_EQ(decoded->cgroup, "/g");
  EXPECT_EQ(decoded->cpus, instructions.cpus);
}

TEST(ProtocolTest, RejectsDamagedText) {
  ExitRecord record;
  record.stderr_tail = std::string("a\0b", 3);
  const std::string text = EncodeExitRecord(record);
  ASSERT_TRUE(DecodeExitRecord(text).has_value());
  EXPECT_EQ(DecodeExitRecord(text)->stderr_tail, "a b");
  EXPECT_FALSE(DecodeExitRecord(text.substr(0, text.size() - 1)).has_value());
  EXPECT_FALSE(DecodeExitRecord("").has_value());
  EXPECT_FALSE(DecodeExitRecord(EncodeFields({{"signal", "x"}})).has_value());
  EXPECT_FALSE(DecodeInstructions(EncodeFields({{"workdir", "/"}})).has_value());
}

}  // namespace
}  // namespace muster::shim
