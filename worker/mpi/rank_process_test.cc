// Runs ranks and proxies as processes, with shell scripts in place of programs and of mpirun.
#include "worker/mpi/rank_process.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/mpi/proxy.h"

namespace muster::mpi {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kLong = absl::Hours(1);

[[noreturn]] void EndLike(int exit_code, int signal) {
  if (signal == 0) _exit(exit_code);
  ::signal(signal, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  kill(getpid(), signal);
  _exit(99);
}

class RankProcessTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = ::testing::TempDir() + "/rank-XXXXXX";
    ASSERT_NE(mkdtemp(directory_.data()), nullptr);
    // Longer than an address of a socket.
    options_.node.directory = directory_ + "/" + std::string(120, 'd');
    std::filesystem::create_directory(options_.node.directory);
    options_.environment = {"PATH=/usr/bin:/bin", "RANK=3", "DIR=" + directory_};
    options_.abort_delay = kLong;
    options_.failure_delay = kLong;
  }
  void TearDown() override {
    for (const pid_t pid : {rank_, proxy_}) {
      if (pid > 0) kill(pid, SIGKILL);
    }
    while (waitpid(-1, nullptr, 0) > 0) {
    }
    std::filesystem::remove_all(directory_);
  }

  // The rank in a process group of its own, as its shim starts it.
  void StartRank(const std::string& script,
                 const std::optional<OpenMpiDaemon>& daemon = std::nullopt) {
    if (options_.command.empty()) options_.command = {"sh", "-c", script};
    rank_ = fork();
    if (rank_ > 0) {
      setpgid(rank_, 0);
      return;
    }
    setpgid(0, 0);
    const auto process = RankProcess::Create(options_);
    if (!process.ok()) _exit(98);
    const RankEnd end = (*process)->Run(daemon);
    std::ofstream(directory_ + "/error") << end.error;
    EndLike(end.exit_code, end.signal);
  }
  void StartProxy() {
    proxy_ = fork();
    if (proxy_ > 0) return;
    const int status = RunProxy(options_.node.directory, options_.local_rank,
                                {"PMIX_RANK=3", "OMPI_COMM_WORLD_RANK=3", "DIR=/other"});
    EndLike(WEXITSTATUS(status), WIFSIGNALED(status) ? WTERMSIG(status) : 0);
  }

  static int StatusOf(pid_t& pid) {
    int status = -1;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    pid = 0;
    return status;
  }
  int RankStatus() { return StatusOf(rank_); }
  int ProxyStatus() { return StatusOf(proxy_); }

  std::string Read(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(directory_ + "/" + name).rdbuf();
    return text.str();
  }
  void Touch(const std::string& name) const { std::ofstream(directory_ + "/" + name) << "x"; }
  void AwaitFile(const std::string& name) const {
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    while (!std::filesystem::exists(directory_ + "/" + name)) {
      ASSERT_LT(absl::Now(), deadline) << name;
      absl::SleepFor(absl::Milliseconds(5));
    }
  }

  // Waits until a rank or proxy has handled all its events. It sleeps only in poll, and the system
  // call that causes an event marks it as runnable before it returns.
  static void AwaitIdle(pid_t pid) {
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    const std::string path = absl::StrCat("/proc/", pid, "/stat");
    for (std::string stat; stat.find(") S ") == std::string::npos;) {
      ASSERT_LT(absl::Now(), deadline) << stat;
      std::getline(std::ifstream(path), stat);
    }
  }

  std::string directory_;
  RankOptions options_;
  pid_t rank_ = 0;
  pid_t proxy_ = 0;
};

TEST_F(RankProcessTest, ProgramHasTheEnvironmentOfRankAndProxy) {
  StartRank("echo $RANK $PMIX_RANK $OMPI_COMM_WORLD_RANK $OMPI_COMMAND > $DIR/out");
  StartProxy();
  EXPECT_EQ(RankStatus(), W_EXITCODE(0, 0));
  EXPECT_EQ(ProxyStatus(), W_EXITCODE(0, 0));
  EXPECT_EQ(Read("out"), "3 3 3 sh\n");
}

TEST_F(RankProcessTest, ProxyMayStartFirst) {
  StartProxy();
  AwaitIdle(proxy_);
  StartRank("exit 0");
  EXPECT_EQ(RankStatus(), W_EXITCODE(0, 0));
  EXPECT_EQ(ProxyStatus(), W_EXITCODE(0, 0));
}

TEST_F(RankProcessTest, RankAndProxyEndLikeTheProgram) {
  StartRank("exit 3");
  StartProxy();
  EXPECT_EQ(RankStatus(), W_EXITCODE(3, 0));
  EXPECT_EQ(ProxyStatus(), W_EXITCODE(3, 0));
  EXPECT_EQ(Read("error"), "");
}

TEST_F(RankProcessTest, RankAndProxyEndByTheSignalOfTheProgram) {
  StartRank("kill -KILL $$");
  StartProxy();
  EXPECT_EQ(RankStatus(), SIGKILL);
  EXPECT_EQ(ProxyStatus(), SIGKILL);
}

TEST_F(RankProcessTest, ReportsAProgramThatDoesNotExist) {
  options_.command = {"no-such-program"};
  StartRank("");
  StartProxy();
  EXPECT_EQ(RankStatus(), W_EXITCODE(127, 0));
  EXPECT_EQ(ProxyStatus(), W_EXITCODE(127, 0));
  EXPECT_EQ(Read("error"), "exec no-such-program: not found in PATH=/usr/bin:/bin");
}

TEST_F(RankProcessTest, KilledRankEndsItsProxyAndProgram) {
  StartRank("echo $$ > $DIR/pid; mv $DIR/pid $DIR/started; exec sleep 1000");
  StartProxy();
  AwaitFile("started");
  kill(rank_, SIGKILL);
  EXPECT_EQ(RankStatus(), SIGKILL);
  EXPECT_EQ(ProxyStatus(), SIGKILL);
  const pid_t program = std::stoi(Read("started"));
  while (kill(program, 0) == 0) absl::SleepFor(absl::Milliseconds(5));
}

TEST_F(RankProcessTest, EndsTheProgramOfAKilledProxy) {
  options_.abort_delay = absl::ZeroDuration();
  options_.failure_delay = absl::ZeroDuration();
  StartRank("touch $DIR/started; exec sleep 1000");
  StartProxy();
  AwaitFile("started");
  kill(proxy_, SIGKILL);
  EXPECT_EQ(RankStatus(), SIGTERM);
  EXPECT_THAT(Read("error"), HasSubstr("Open MPI ended the rank's program"));
}

TEST_F(RankProcessTest, KillsAProgramThatIgnoresSigterm) {
  options_.abort_delay = absl::ZeroDuration();
  options_.kill_delay = absl::ZeroDuration();
  options_.failure_delay = absl::ZeroDuration();
  StartRank("trap '' TERM; touch $DIR/started; while :; do sleep 1000; done");
  StartProxy();
  AwaitFile("started");
  kill(proxy_, SIGTERM);
  EXPECT_EQ(RankStatus(), SIGKILL);
}

// MPI_Abort: Open MPI ends all processes while the one that called it ends by itself.
TEST_F(RankProcessTest, OwnExitCodeCountsWhileOpenMpiEndsTheProgram) {
  StartRank("touch $DIR/started; until [ -e $DIR/go ]; do sleep 0.01; done; exit 3");
  StartProxy();
  AwaitFile("started");
  kill(proxy_, SIGTERM);
  Touch("go");
  EXPECT_EQ(RankStatus(), W_EXITCODE(3, 0));
  EXPECT_EQ(ProxyStatus(), W_EXITCODE(3, 0));
}

TEST_F(RankProcessTest, StopLeavesTheProgramItsGracePeriod) {
  options_.abort_delay = absl::ZeroDuration();
  options_.kill_delay = absl::ZeroDuration();
  StartRank(
      "trap 'touch $DIR/stopped' TERM; touch $DIR/started; "
      "until [ -e $DIR/go ]; do sleep 0.01; done; exit 5");
  StartProxy();
  AwaitFile("started");
  kill(-rank_, SIGTERM);
  AwaitFile("stopped");
  // Open MPI ends its processes because another rank has ended already.
  kill(proxy_, SIGTERM);
  AwaitIdle(proxy_);
  AwaitIdle(rank_);
  Touch("go");
  EXPECT_EQ(RankStatus(), W_EXITCODE(5, 0));
}

TEST_F(RankProcessTest, StopEndsARankThatHasNotStarted) {
  options_.stop_signal = SIGUSR1;
  StartRank("exit 0",
            OpenMpiDaemon{"mpirun", {"sh", "-c", "touch $DIR/started; sleep 1000"}, true});
  AwaitFile("started");
  kill(-rank_, SIGUSR1);
  EXPECT_EQ(RankStatus(), SIGUSR1);
}

TEST_F(RankProcessTest, WaitsForTheStopWhenAnotherRankFailed) {
  StartRank("touch $DIR/started; exit 195");
  StartProxy();
  EXPECT_EQ(ProxyStatus(), W_EXITCODE(195, 0));
  kill(-rank_, SIGTERM);
  EXPECT_EQ(RankStatus(), W_EXITCODE(195, 0));
  EXPECT_EQ(Read("error"), "");
}

TEST_F(RankProcessTest, FirstRankEndsAfterTheDaemon) {
  StartRank("touch $DIR/ended",
            OpenMpiDaemon{"orted", {"sh", "-c", "until [ -e $DIR/go ]; do sleep 0.01; done"}});
  StartProxy();
  EXPECT_EQ(ProxyStatus(), W_EXITCODE(0, 0));
  AwaitIdle(rank_);
  Touch("go");
  EXPECT_EQ(RankStatus(), W_EXITCODE(0, 0));
}

TEST_F(RankProcessTest, ReportsAnMpirunThatDoesNotStartTheRank) {
  StartRank("exit 0", OpenMpiDaemon{"mpirun", {"sh", "-c", "exit 5"}, true});
  EXPECT_EQ(RankStatus(), W_EXITCODE(5, 0));
  EXPECT_EQ(Read("error"),
            "mpirun ended with exit code 5 before it started the rank; see the log of rank 0");
}

TEST_F(RankProcessTest, ReportsAnMpirunThatEndsTheProgram) {
  options_.abort_delay = absl::ZeroDuration();
  options_.failure_delay = absl::Seconds(2);  // mpirun ends long before half of it
  StartRank("touch $DIR/started; exec sleep 1000",
            OpenMpiDaemon{
                "mpirun", {"sh", "-c", "until [ -e $DIR/go ]; do sleep 0.01; done; exit 7"}, true});
  StartProxy();
  AwaitFile("started");
  kill(proxy_, SIGTERM);
  Touch("go");
  EXPECT_EQ(RankStatus(), W_EXITCODE(7, 0));
  EXPECT_EQ(Read("error"), "mpirun ended with exit code 7; see the log of rank 0");
}

TEST_F(RankProcessTest, ReportsAMissingMpirun) {
  StartRank("exit 0", OpenMpiDaemon{"mpirun", {"no-such-mpirun"}, true});
  EXPECT_EQ(RankStatus(), W_EXITCODE(127, 0));
  EXPECT_THAT(Read("error"), HasSubstr("exec no-such-mpirun: not found in PATH="));
}

}  // namespace
}  // namespace muster::mpi
