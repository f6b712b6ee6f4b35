#include "worker/shim/credentials.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <functional>
#include <string>

#include "gtest/gtest.h"

namespace muster::shim {
namespace {

constexpr uid_t kUser = 54321;
constexpr gid_t kGroup = 54322;

Credentials User() { return {kUser, kGroup, {54323, 54324}}; }

// Exit code of a child process that runs `body`.
int InChild(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// The line of /proc/self/status with this name.
std::string StatusLine(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(name + ":", 0) == 0) return line.substr(line.find_last_of(" \t") + 1);
  }
  return "";
}

TEST(CredentialsTest, TextIsDecoded) {
  EXPECT_EQ(EncodeCredentials(User()), "54321:54322:54323,54324");
  const auto decoded = DecodeCredentials("54321:54322:54323,54324");
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(decoded->uid, kUser);
  EXPECT_EQ(decoded->gid, kGroup);
  EXPECT_EQ(decoded->groups, (std::vector<gid_t>{54323, 54324}));
  EXPECT_TRUE(DecodeCredentials("7:8:")->groups.empty());
}

TEST(CredentialsTest, RefusesDamagedTextAndRoot) {
  for (const char* text : {"", "7", "7:", "7:8", ":8:", "7:x:", "7:8:9,x", "7:8:9:10",
                           "-7:8:", "4294967296:8:", "0:8:"}) {
    EXPECT_FALSE(DecodeCredentials(text).has_value()) << text;
  }
}

TEST(DropPrivilegesTest, RefusesRoot) {
  EXPECT_EQ(InChild([] { return DropPrivileges({0, 0, {}}); }), EPERM);
}

TEST(DropPrivilegesTest, NeedsRights) {
  const int result = InChild([] {
    if (geteuid() == 0 && DropPrivileges(User()) != 0) return 1;
    return DropPrivileges({kUser + 1, kGroup, {}});
  });
  EXPECT_EQ(result, EPERM);
}

class DropPrivilegesAsRootTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "requires root";
  }
};

TEST_F(DropPrivilegesAsRootTest, IsIrrevocable) {
  EXPECT_EQ(InChild([] {
              if (DropPrivileges(User()) != 0) return 1;
              if (getuid() != kUser || geteuid() != kUser || getgid() != kGroup) return 2;
              if (getgroups(0, nullptr) != 2) return 3;
              if (setuid(0) == 0 || seteuid(0) == 0 || setgid(0) == 0) return 4;
              for (const char* set : {"CapInh", "CapPrm", "CapEff", "CapAmb"}) {
                if (StatusLine(set) != "0000000000000000") return 5;
              }
              return StatusLine("NoNewPrivs") == "1" ? 0 : 6;
            }),
            0);
}

TEST_F(DropPrivilegesAsRootTest, KeepsTheParentDeathSignal) {
  EXPECT_EQ(InChild([] {
              prctl(PR_SET_PDEATHSIG, SIGUSR1);
              if (DropPrivileges(User()) != 0) return 1;
              int signal = 0;
              prctl(PR_GET_PDEATHSIG, &signal);
              return signal == SIGUSR1 ? 0 : 2;
            }),
            0);
}

TEST_F(DropPrivilegesAsRootTest, StreamsCanBeOpenedAgain) {
  EXPECT_EQ(InChild([] {
              int pipes[2];
              if (pipe(pipes) != 0) return 1;
              dup2(pipes[1], STDOUT_FILENO);
              dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
              GiveStreams(User());
              struct stat null = {};
              if (stat("/dev/null", &null) != 0 || null.st_uid != 0) return 2;
              if (DropPrivileges(User()) != 0) return 3;
              return open("/proc/self/fd/1", O_WRONLY) >= 0 ? 0 : 4;
            }),
            0);
}

}  // namespace
}  // namespace muster::shim
