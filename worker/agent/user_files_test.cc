#include "worker/agent/user_files.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::agent {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

JobUser User() {
  JobUser user;
  user.name = "job";
  user.credentials = {54321, 54322, {54323}};
  return user;
}

class UserFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = "/tmp/muster-user-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override { fs::remove_all(root_); }

  std::string Path(const std::string& name) const { return root_ + "/" + name; }
  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(Path(name)) << text;
    return Path(name);
  }
  static bool CanRead(const std::string& path) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd >= 0) close(fd);
    return fd >= 0;
  }

  std::string root_;
};

TEST_F(UserFilesTest, ReadsRegularFilesOnly) {
  EXPECT_EQ(ReadUserFile(Write("file", "text"), 4, std::nullopt), "text");
  EXPECT_EQ(ReadUserFile(Path("file"), 3, std::nullopt), std::nullopt);
  EXPECT_EQ(ReadUserFile(Path("none"), 4, std::nullopt), std::nullopt);
  EXPECT_EQ(ReadUserFile(root_, 4096, std::nullopt), std::nullopt);
  fs::create_symlink(Path("file"), Path("link"));
  EXPECT_EQ(ReadUserFile(Path("link"), 4, std::nullopt), std::nullopt);
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(ReadUserFile(Path("pipe"), 4, std::nullopt), std::nullopt);
}

TEST_F(UserFilesTest, ReadsFilesOfTheUserOnly) {
  Write("file", "text");
  EXPECT_EQ(ReadUserFile(Path("file"), 4, geteuid()), "text");
  EXPECT_EQ(ReadUserFile(Path("file"), 4, geteuid() + 1), std::nullopt);
}

TEST_F(UserFilesTest, RightsStayWithoutUser) {
  const UserRights rights(std::nullopt);
  EXPECT_TRUE(rights.status().ok());
  EXPECT_TRUE(CanRead(Write("file", "text")));
}

class UserFilesAsRootTest : public UserFilesTest {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "requires root";
    UserFilesTest::SetUp();
  }
  void TearDown() override {
    if (!root_.empty()) UserFilesTest::TearDown();
  }
};

TEST_F(UserFilesAsRootTest, GivesDirectories) {
  ASSERT_TRUE(MakePassage(Path("job")).ok());
  for (int repetition = 0; repetition < 2; ++repetition) {
    const absl::Status made = MakeUserDirectory(Path("job/own"), User());
    ASSERT_TRUE(made.ok()) << made;
  }
  struct stat status = {};
  ASSERT_EQ(stat(Path("job").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0711u);
  EXPECT_EQ(status.st_uid, 0u);
  ASSERT_EQ(stat(Path("job/own").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0700u);
  EXPECT_EQ(status.st_uid, User().credentials.uid);
  EXPECT_EQ(status.st_gid, User().credentials.gid);
}

TEST_F(UserFilesAsRootTest, DoesNotGiveWhatALinkNames) {
  ASSERT_TRUE(MakePassage(Path("secret")).ok());
  fs::create_symlink(Path("secret"), Path("own"));
  EXPECT_TRUE(absl::IsFailedPrecondition(MakeUserDirectory(Path("own"), User())));
  struct stat status = {};
  ASSERT_EQ(stat(Path("secret").c_str(), &status), 0);
  EXPECT_EQ(status.st_uid, 0u);
}

TEST_F(UserFilesAsRootTest, NamesTheDirectoryThatIsClosed) {
  ASSERT_TRUE(MakePassage(root_).ok());
  ASSERT_TRUE(MakePassage(Path("a")).ok());
  ASSERT_TRUE(MakePassage(Path("a/b")).ok());
  ASSERT_TRUE(MakeUserDirectory(Path("a/b/own"), User()).ok());
  EXPECT_TRUE(CheckReachable(Path("a/b/own"), User()).ok());
  ASSERT_EQ(chmod(Path("a").c_str(), 0700), 0);
  const absl::Status closed = CheckReachable(Path("a/b/own"), User());
  EXPECT_TRUE(absl::IsFailedPrecondition(closed));
  EXPECT_THAT(std::string(closed.message()), HasSubstr("user job cannot enter " + Path("a") + ","));
}

TEST_F(UserFilesAsRootTest, RightsAreThoseOfTheUser) {
  ASSERT_TRUE(MakePassage(root_).ok());
  const std::string secret = Write("secret", "text");
  ASSERT_EQ(chmod(secret.c_str(), 0600), 0);
  ASSERT_TRUE(MakeUserDirectory(Path("own"), User()).ok());
  fs::create_symlink(secret, Path("own/link"));
  {
    const UserRights rights(User());
    ASSERT_TRUE(rights.status().ok()) << rights.status();
    EXPECT_FALSE(CanRead(secret));
    EXPECT_FALSE(CanRead(Path("own/link")));
    // Links of /proc follow rights to processes, which capabilities would grant.
    EXPECT_FALSE(CanRead("/proc/1/root" + secret));
    std::ofstream(Path("own/made")) << "text";
    bool other_thread_reads = false;
    std::thread([&] { other_thread_reads = CanRead(secret); }).join();
    EXPECT_FALSE(other_thread_reads);  // a thread inherits the rights of the one that starts it
  }
  EXPECT_TRUE(CanRead(secret));
  struct stat status = {};
  ASSERT_EQ(stat(Path("own/made").c_str(), &status), 0);
  EXPECT_EQ(status.st_uid, User().credentials.uid);
  EXPECT_EQ(status.st_gid, User().credentials.gid);
}

TEST_F(UserFilesAsRootTest, OtherThreadsKeepTheirRights) {
  const std::string secret = Write("secret", "text");
  ASSERT_EQ(chmod(secret.c_str(), 0600), 0);
  int begin[2], end[2];
  ASSERT_EQ(pipe(begin), 0);
  ASSERT_EQ(pipe(end), 0);
  bool reads = false;
  std::thread other([&] {
    char byte = 0;
    if (read(begin[0], &byte, 1) == 1) reads = CanRead(secret) && getgroups(0, nullptr) >= 0;
    EXPECT_EQ(write(end[1], &byte, 1), 1);
  });
  {
    const UserRights rights(User());
    char byte = 0;
    EXPECT_EQ(write(begin[1], &byte, 1), 1);
    EXPECT_EQ(read(end[0], &byte, 1), 1);
  }
  other.join();
  EXPECT_TRUE(reads);
  for (const int fd : {begin[0], begin[1], end[0], end[1]}) close(fd);
}

}  // namespace
}  // namespace muster::agent
