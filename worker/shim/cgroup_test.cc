// Tests with a directory that looks like a group and, where this machine permits it, with a real
// group.
#include "worker/shim/cgroup.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/shim/fields.h"

namespace muster::shim {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class CgroupTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = "/tmp/muster-cgroup-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(directory_ + "/" + name) << text;
  }
  std::string Read(const std::string& name) {
    return ReadFile(directory_ + "/" + name).value_or("<none>");
  }

  std::string directory_;
};

TEST_F(CgroupTest, EmptyPathHasNoEffect) {
  const Cgroup none("");
  EXPECT_TRUE(none.Make());
  EXPECT_TRUE(none.Limit({}));
  EXPECT_TRUE(none.Enter());
  EXPECT_TRUE(none.Kill());
  EXPECT_THAT(none.Processes(), IsEmpty());
  EXPECT_FALSE(none.OomKills().has_value());
  EXPECT_FALSE(none.MemoryBytes().has_value());
  EXPECT_TRUE(none.Remove());
}

TEST_F(CgroupTest, RejectsPlainDirectory) {
  EXPECT_FALSE(Cgroup(directory_ + "/new").Make());
  EXPECT_FALSE(Cgroup("/no/such/folder/new").Make());
  EXPECT_EQ(FindDelegatedCgroup({directory_}), "");
}

TEST_F(CgroupTest, UsesTheKernelsFiles) {
  Write("cgroup.procs", "");
  Write("cgroup.kill", "");
  const Cgroup group(directory_);
  EXPECT_TRUE(group.Make());
  EXPECT_TRUE(group.Enter());
  EXPECT_EQ(Read("cgroup.procs"), "0");
  EXPECT_TRUE(group.Kill());
  EXPECT_EQ(Read("cgroup.kill"), "1");
  EXPECT_FALSE(group.OomKills().has_value());
  Write("memory.events", "low 0\nhigh 0\nmax 7\noom 2\noom_kill 1\noom_group_kill 0\n");
  EXPECT_EQ(group.OomKills(), 1u);
  Write("cgroup.procs", "12\n345\n0\n6\n");
  EXPECT_THAT(group.Processes(), ElementsAre(12, 345, 6));
}

TEST_F(CgroupTest, MemoryDoesNotIncludeInactivePageCache) {
  const Cgroup group(directory_);
  EXPECT_FALSE(group.MemoryBytes().has_value());
  Write("memory.current", "5000000\n");
  EXPECT_EQ(group.MemoryBytes(), 5000000u);
  Write("memory.stat", "anon 2000000\nfile 3000000\ninactive_file 1500000\nactive_file 1500000\n");
  EXPECT_EQ(group.MemoryBytes(), 3500000u);
}

TEST_F(CgroupTest, ForkedProcessEntersWhereTheKernelCannotForkIntoTheGroup) {
  Write("cgroup.procs", "");
  const pid_t child = Cgroup(directory_).Fork();
  if (child == 0) _exit(0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(Read("cgroup.procs"), "0");
}

TEST_F(CgroupTest, LimitsMemoryAndProcesses) {
  const Cgroup group(directory_);
  EXPECT_TRUE(group.Limit({}));
  EXPECT_FALSE(group.Limit({.memory_bytes = 1 << 30}));
  EXPECT_FALSE(group.Limit({.pids = 100}));
  for (const char* file : {"memory.max", "memory.oom.group", "memory.swap.max", "pids.max"}) {
    Write(file, "max");
  }
  EXPECT_TRUE(group.Limit({.memory_bytes = 1 << 30, .pids = 100}));
  EXPECT_EQ(Read("memory.max").substr(0, 10), "1073741824");
  EXPECT_EQ(Read("memory.oom.group").substr(0, 1), "1");
  EXPECT_EQ(Read("memory.swap.max").substr(0, 1), "0");
  EXPECT_EQ(Read("pids.max"), "100");
}

class ControllersTest : public CgroupTest {
 protected:
  // A group as systemd delegates it.
  void Delegate(const std::string& controllers) {
    Write("cgroup.controllers", controllers);
    Write("cgroup.subtree_control", "");
  }
};

TEST_F(ControllersTest, EnablesThemOnce) {
  Delegate("cpu memory pids\n");
  EXPECT_EQ(EnableControllers(directory_), "");
  EXPECT_EQ(Read("cgroup.subtree_control"), "+memory +pids");
  Write("cgroup.subtree_control", "memory pids\n");
  EXPECT_EQ(EnableControllers(directory_), "");
  EXPECT_EQ(Read("cgroup.subtree_control"), "memory pids\n");
}

TEST_F(ControllersTest, ReportsWhatIsMissing) {
  EXPECT_EQ(EnableControllers(""), "cgroup v2 is not delegated to the worker");
  Delegate("cpu memory\n");
  EXPECT_EQ(EnableControllers(directory_),
            "the controller pids is not delegated to the group " + directory_);
  Delegate("memory pids\n");
  std::filesystem::remove(directory_ + "/cgroup.subtree_control");
  EXPECT_EQ(EnableControllers(directory_), "cannot write " + directory_ +
                                               "/cgroup.subtree_control: No such file or "
                                               "directory");
}

TEST_F(CgroupTest, KillsEachProcessOnOlderKernels) {
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  Write("cgroup.procs", std::to_string(child) + "\n");
  EXPECT_FALSE(Cgroup(directory_).Kill());
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
}

TEST_F(CgroupTest, RemovesOnlyOldEmptyGroupsOfRanks) {
  for (const char* name : {"muster-old", "muster-used/inner", "muster-young", "other"}) {
    std::filesystem::create_directories(directory_ + "/" + name);
  }
  std::ofstream(directory_ + "/muster-used/inner/file") << "";  // as a process would keep it
  const timespec old = {1, 0};
  const timespec times[] = {old, old};
  for (const char* name : {"muster-old", "muster-used", "other"}) {
    utimensat(AT_FDCWD, (directory_ + "/" + name).c_str(), times, 0);
  }
  RemoveAbandonedCgroups(directory_);
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/muster-old"));
  EXPECT_TRUE(std::filesystem::exists(directory_ + "/muster-used"));
  EXPECT_TRUE(std::filesystem::exists(directory_ + "/muster-young"));
  EXPECT_TRUE(std::filesystem::exists(directory_ + "/other"));
}

TEST_F(CgroupTest, RealGroupContainsAndKillsForkedProcesses) {
  const std::string root = FindDelegatedCgroup();
  if (root.empty()) GTEST_SKIP() << "no control group of version 2 is delegated to this process";
  const Cgroup group(root + "/muster-cgroup-test-" + std::to_string(getpid()));
  ASSERT_TRUE(group.Make());
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = group.Fork();
  if (child == 0) {
    signal(SIGTERM, SIG_IGN);
    if (fork() == 0) setsid();
    [[maybe_unused]] const ssize_t n = write(ready[1], "x", 1);
    while (true) pause();
  }
  char buffer[2];
  for (int got = 0; got < 2;) {
    const ssize_t n = read(ready[0], buffer, 2);
    ASSERT_GT(n, 0);
    got += static_cast<int>(n);
  }
  EXPECT_EQ(group.Processes().size(), 2u);
  EXPECT_FALSE(group.Remove());
  const auto end = [&] {
    // A kernel without cgroup.kill needs repeated calls.
    while (!group.Processes().empty()) {
      group.Kill();
      waitpid(-1, nullptr, WNOHANG);
    }
  };
  end();
  waitpid(child, nullptr, 0);
  while (!group.Remove()) sched_yield();
  EXPECT_FALSE(std::filesystem::exists(group.path()));
  close(ready[0]);
  close(ready[1]);
}

}  // namespace
}  // namespace muster::shim
