#include "common/security/private_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::security {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr uid_t kOther = 12345;

class PrivateFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = ::testing::TempDir() + "/private.XXXXXX";
    ASSERT_NE(mkdtemp(root_.data()), nullptr);
  }
  void TearDown() override { fs::remove_all(root_); }

  std::string Path(const std::string& name) const { return root_ + "/" + name; }
  std::string MakeDirectory(const std::string& name, mode_t mode) const {
    fs::create_directory(Path(name));
    EXPECT_EQ(chmod(Path(name).c_str(), mode), 0);
    return Path(name);
  }
  std::string WriteFile(const std::string& name, mode_t mode) const {
    std::ofstream(Path(name)) << "text";
    EXPECT_EQ(chmod(Path(name).c_str(), mode), 0);
    return Path(name);
  }
  static mode_t ModeOf(const std::string& path) {
    struct stat info = {};
    EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
    return info.st_mode & 07777;
  }
  static void ExpectRefused(const absl::Status& status, const std::string& words) {
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(std::string(status.message()), HasSubstr(words));
  }

  std::string root_;
};

TEST_F(PrivateFileTest, DirectoryIsCreatedBelowPassages) {
  ASSERT_TRUE(MakePrivateDirectory(Path("a/b/c/")).ok());
  EXPECT_EQ(ModeOf(Path("a")), 0711u);
  EXPECT_EQ(ModeOf(Path("a/b")), 0711u);
  EXPECT_EQ(ModeOf(Path("a/b/c")), 0700u);
}

TEST_F(PrivateFileTest, ExistingDirectoryLosesTheRightsOfOthers) {
  for (const mode_t mode : {0755, 0777, 0500}) {
    const std::string path = MakeDirectory("data", mode);
    EXPECT_TRUE(MakePrivateDirectory(path).ok());
    EXPECT_EQ(ModeOf(path) & 0777, 0700u);
    EXPECT_TRUE(MakePrivateDirectory(path, {.mode = DirectoryMode::kPassage}).ok());
    EXPECT_EQ(ModeOf(path) & 0777, 0711u);
  }
}

TEST_F(PrivateFileTest, DirectoryThatOthersCouldReplaceIsRefused) {
  const std::string parent = MakeDirectory("parent", 0777);
  ExpectRefused(MakePrivateDirectory(parent + "/data"), "run chmod o-w " + parent);
  EXPECT_FALSE(fs::exists(parent + "/data"));
  MakeDirectory("parent", 01777);
  EXPECT_TRUE(MakePrivateDirectory(parent + "/data").ok());
}

TEST_F(PrivateFileTest, DirectoryThatOthersShareIsRefused) {
  const std::string sticky = MakeDirectory("sticky", 01777);
  ExpectRefused(MakePrivateDirectory(sticky), "run chmod 0700 " + sticky);
  EXPECT_EQ(ModeOf(sticky), 01777u);
  const DirectoryOptions options = {.contents = {"lock", "identity"}};
  const std::string data = MakeDirectory("data", 0755);
  WriteFile("data/other", 0644);
  ExpectRefused(MakePrivateDirectory(data, options), "run chmod 0700 " + data);
  EXPECT_EQ(ModeOf(data), 0755u);
  WriteFile("data/lock", 0644);
  EXPECT_TRUE(MakePrivateDirectory(data, options).ok());
  EXPECT_EQ(ModeOf(data), 0700u);
}

TEST_F(PrivateFileTest, LinkToADirectoryIsRefused) {
  const std::string target = MakeDirectory("target", 0755);
  fs::create_directory_symlink(target, Path("link"));
  for (const char* name : {"link", "link/", "link//"}) {
    ExpectRefused(MakePrivateDirectory(Path(name)), "is a symbolic link");
  }
  EXPECT_EQ(ModeOf(target), 0755u);
  ExpectRefused(MakePrivateDirectory(WriteFile("file", 0600)), "is not a directory");
}

TEST_F(PrivateFileTest, DirectoryAndFileOfAnotherUserAreRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files to other users";
  const std::string directory = MakeDirectory("data", 0755);
  const std::string file = WriteFile("file", 0644);
  for (const std::string& path : {directory, file}) {
    ASSERT_EQ(chown(path.c_str(), kOther, kOther), 0);
  }
  ExpectRefused(MakePrivateDirectory(directory), "run chown 0 " + directory);
  EXPECT_EQ(ModeOf(directory), 0755u);
  ExpectRefused(OpenOwnFile(file, O_RDWR).status(), "run chown 0 " + file);
  EXPECT_EQ(ModeOf(file), 0644u);
  EXPECT_TRUE(MakePrivateDirectory(directory, {.owner = kOther}).ok());
  EXPECT_EQ(ModeOf(directory), 0700u);
}

TEST_F(PrivateFileTest, OwnFileIsCreatedAndLosesTheRightsOfOthers) {
  EXPECT_TRUE(absl::IsNotFound(OpenOwnFile(Path("new"), O_RDWR).status()));
  EXPECT_TRUE(OpenOwnFile(Path("new"), O_RDWR | O_CREAT).ok());
  EXPECT_EQ(ModeOf(Path("new")), 0600u);
  EXPECT_TRUE(OpenOwnFile(WriteFile("old", 0666), O_RDWR | O_CREAT).ok());
  EXPECT_EQ(ModeOf(Path("old")), 0600u);
}

TEST_F(PrivateFileTest, OwnFileIsNoLinkOrPipe) {
  const std::string target = WriteFile("target", 0644);
  fs::create_symlink(target, Path("link"));
  ExpectRefused(OpenOwnFile(Path("link"), O_RDWR | O_CREAT).status(), "is a symbolic link");
  EXPECT_EQ(ModeOf(target), 0644u);
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  ExpectRefused(OpenOwnFile(Path("pipe"), O_RDONLY).status(), "is not a regular file");
}

}  // namespace
}  // namespace muster::security
