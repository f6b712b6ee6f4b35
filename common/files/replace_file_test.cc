#include "common/files/replace_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "gtest/gtest.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

class ReplaceFileTest : public testing::Test {
 protected:
  ReplaceFileTest() : directory_(testing::TempDir() + "/replace-XXXXXX") {
    EXPECT_NE(mkdtemp(directory_.data()), nullptr);
    path_ = directory_ + "/file";
  }
  ~ReplaceFileTest() override { fs::remove_all(directory_); }

  static std::string Contents(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static mode_t ModeOf(const std::string& path) {
    struct stat info = {};
    EXPECT_EQ(stat(path.c_str(), &info), 0);
    return info.st_mode & 0777;
  }
  size_t Entries() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(directory_), {}));
  }

  std::string directory_;
  std::string path_;
};

TEST_F(ReplaceFileTest, ReplacesContentsAndMode) {
  ASSERT_GE(ReplaceFile(path_, "a long first text").get(), 0);
  EXPECT_EQ(ModeOf(path_), 0600);
  ASSERT_GE(ReplaceFile(path_, "second", {.mode = 0644, .sync = false}).get(), 0);
  EXPECT_EQ(Contents(path_), "second");
  EXPECT_EQ(ModeOf(path_), 0644);
  EXPECT_EQ(Entries(), 1);
}

TEST_F(ReplaceFileTest, OverwritesALeftTemporaryFile) {
  const std::string temporary = path_ + ".tmp";
  std::ofstream(temporary) << "left by a killed writer";
  ASSERT_GE(ReplaceFile(path_, "new", {.temporary = temporary}).get(), 0);
  EXPECT_EQ(Contents(path_), "new");
  EXPECT_EQ(Entries(), 1);
}

TEST_F(ReplaceFileTest, DoesNotFollowLinks) {
  const std::string target = directory_ + "/target";
  std::ofstream(target) << "kept";
  fs::create_symlink(target, path_ + ".tmp");
  EXPECT_LT(ReplaceFile(path_, "new", {.temporary = path_ + ".tmp"}).get(), 0);
  EXPECT_EQ(errno, ELOOP);
  fs::create_symlink(target, path_);
  ASSERT_GE(ReplaceFile(path_, "new").get(), 0);
  EXPECT_FALSE(fs::is_symlink(path_));
  EXPECT_EQ(Contents(target), "kept");
}

TEST_F(ReplaceFileTest, HoldsTheLock) {
  const OwnedFd file = ReplaceFile(path_, "new", {.lock = true});
  ASSERT_GE(file.get(), 0);
  const OwnedFd other(open(path_.c_str(), O_RDONLY));
  EXPECT_EQ(flock(other.get(), LOCK_SH | LOCK_NB), -1);
  EXPECT_EQ(errno, EWOULDBLOCK);
}

TEST_F(ReplaceFileTest, AFailureLeavesTheOldFileOnly) {
  ASSERT_GE(ReplaceFile(path_, "old").get(), 0);
  signal(SIGXFSZ, SIG_IGN);
  rlimit limit = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  rlimit low = limit;
  low.rlim_cur = 1024;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &low), 0);
  errno = 0;
  const int fd = ReplaceFile(path_, std::string(4096, 'x')).get();
  const int error = errno;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  EXPECT_LT(fd, 0);
  EXPECT_EQ(error, EFBIG);
  EXPECT_EQ(Contents(path_), "old");
  EXPECT_EQ(Entries(), 1);
}

}  // namespace
}  // namespace muster
