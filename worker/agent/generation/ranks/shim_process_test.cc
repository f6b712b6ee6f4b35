// Real shims without control groups: the processes that they leave behind when they are killed.
#include "worker/agent/generation/ranks/shim_process.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"
#include "worker/agent/exec/exec_process.h"
#include "worker/shim/fields.h"
#include "worker/shim/process_tree.h"

namespace muster::agent {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(20);

class ShimProcessTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // Short, because it contains a unix socket.
    std::string pattern = "/tmp/muster-process-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    ASSERT_EQ(mkfifo(Path("fifo").c_str(), 0600), 0);
    instructions_.environment = {absl::StrCat(kTokenVariable, directory_)};
    instructions_.workdir = directory_;
    instructions_.stdout_path = Path("out");
    instructions_.stderr_path = Path("err");
    instructions_.mark = shim::NewMark();
  }

  void TearDown() override {
    if (orphan_fd_ >= 0) close(orphan_fd_);
    Destroy();
    while (!shim::KillMarked(ShimEntry(instructions_), instructions_.mark).alive.empty()) {
      sched_yield();
    }
    std::filesystem::remove_all(directory_);
  }

  std::string Path(const char* name) const { return absl::StrCat(directory_, "/", name); }

  ShimProcess::Events Events() {
    ShimProcess::Events events;
    events.on_started = [](pid_t) {};
    events.on_ended = [this](std::optional<shim::ExitRecord> record) {
      record_ = std::move(record);
      orphan_ended_first_ = orphan_fd_ < 0 || HasEnded(orphan_fd_);
      ended_.Notify();
    };
    return events;
  }

  // Starts a rank with a shell script.
  void Start(const std::string& script) {
    instructions_.command = {"/bin/sh", "-c", script};
    loop_.RunAndWait([this] {
      auto shim = ShimProcess::Start(loop_, ShimBinary(), directory_, instructions_, {}, Events());
      ASSERT_TRUE(shim.ok()) << shim.status();
      shim_ = *std::move(shim);
    });
  }

  void Destroy() {
    loop_.RunAndWait([this] { shim_.reset(); });
  }

  void Adopt() {
    loop_.RunAndWait(
        [this] { shim_ = ShimProcess::Adopt(loop_, directory_, instructions_, Events()); });
  }

  // A script that leaves a process without the rank's environment, session and parent. That process
  // first writes the pid of the script's parent and its own.
  std::string LeaveOrphan() const {
    return absl::StrCat("(/usr/bin/env -i /usr/bin/setsid /bin/sh -c 'echo $1 $$ > ", Path("fifo"),
                        "; exec sleep 600' - $PPID &); exec sleep 600");
  }

  // Reads what LeaveOrphan writes, and returns the pid of the parent: a shim or a companion.
  pid_t ReadOrphan() {
    std::ifstream fifo(Path("fifo"));
    pid_t parent = 0;
    pid_t orphan = 0;
    fifo >> parent >> orphan;
    orphan_fd_ = static_cast<int>(syscall(SYS_pidfd_open, orphan, 0));
    EXPECT_GE(orphan_fd_, 0);
    return parent;
  }

  static bool HasEnded(int pidfd) {
    pollfd end{pidfd, POLLIN, 0};
    return poll(&end, 1, 0) == 1;
  }

  static std::string ShimBinary() {
    return std::filesystem::read_symlink("/proc/self/exe").parent_path() / "../../../muster-shim";
  }

  EventLoop loop_{"test"};
  std::string directory_;
  shim::Instructions instructions_;
  std::unique_ptr<ShimProcess> shim_;
  int orphan_fd_ = -1;
  absl::Notification ended_;
  std::optional<shim::ExitRecord> record_;
  bool orphan_ended_first_ = false;
};

TEST_F(ShimProcessTest, EndsOrphansOfAKilledShim) {
  Start(LeaveOrphan());
  ASSERT_EQ(kill(ReadOrphan(), SIGKILL), 0);
  ASSERT_TRUE(ended_.WaitForNotificationWithTimeout(kPatience));
  EXPECT_TRUE(orphan_ended_first_);
  EXPECT_FALSE(record_.has_value());
}

TEST_F(ShimProcessTest, EndsOrphansOfAShimThatWasKilledWithItsWorker) {
  Start(LeaveOrphan());
  const pid_t shim = ReadOrphan();
  Destroy();
  ASSERT_EQ(kill(shim, SIGKILL), 0);
  Adopt();
  ASSERT_TRUE(ended_.WaitForNotificationWithTimeout(kPatience));
  EXPECT_TRUE(orphan_ended_first_);
  EXPECT_FALSE(record_.has_value());
}

// Otherwise, a shim that was stopped before it listened would start its rank later.
TEST_F(ShimProcessTest, EndsShimThatDoesNotListen) {
  Start(LeaveOrphan());
  const pid_t shim = ReadOrphan();
  ASSERT_EQ(kill(shim, SIGSTOP), 0);
  std::filesystem::remove(Path(shim::kSocketFile));
  const int shim_fd = static_cast<int>(syscall(SYS_pidfd_open, shim, 0));
  Destroy();
  Adopt();
  ASSERT_TRUE(ended_.WaitForNotificationWithTimeout(kPatience));
  EXPECT_TRUE(HasEnded(shim_fd));
  EXPECT_TRUE(orphan_ended_first_);
  close(shim_fd);
}

TEST_F(ShimProcessTest, EndsOrphansOfAKilledCompanion) {
  Start("exec sleep 600");
  v1::ExecInput::Start start;
  for (const std::string& word : {std::string("/bin/sh"), std::string("-c"), LeaveOrphan()}) {
    start.add_command(word);
  }
  std::unique_ptr<ExecProcess> exec;
  loop_.RunAndWait([&] {
    auto process = ExecProcess::Start(loop_, ShimBinary(), directory_, start, [](int) {});
    ASSERT_TRUE(process.ok()) << process.status();
    exec = *std::move(process);
  });
  ASSERT_EQ(kill(ReadOrphan(), SIGKILL), 0);
  loop_.RunAndWait([&] {
    exec.reset();
    shim_->Stop(absl::ZeroDuration());
  });
  ASSERT_TRUE(ended_.WaitForNotificationWithTimeout(kPatience));
  EXPECT_TRUE(orphan_ended_first_);
  EXPECT_TRUE(record_.has_value());
}

// A user's service, for example, may have been given the environment of a rank.
TEST_F(ShimProcessTest, LeavesProcessesWithTheRanksEnvironmentAlone) {
  const pid_t other = fork();
  if (other == 0) {
    const char* const environment[] = {instructions_.environment[0].c_str(), nullptr};
    execle("/bin/sleep", "sleep", "600", nullptr, environment);
    _exit(1);
  }
  Start(LeaveOrphan());
  ASSERT_EQ(kill(ReadOrphan(), SIGKILL), 0);
  ASSERT_TRUE(ended_.WaitForNotificationWithTimeout(kPatience));
  EXPECT_EQ(waitpid(other, nullptr, WNOHANG), 0);
  kill(other, SIGKILL);
  waitpid(other, nullptr, 0);
}

}  // namespace
}  // namespace muster::agent
