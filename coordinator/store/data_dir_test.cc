#include "coordinator/store/data_dir.h"

#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::store {
namespace {

using ::testing::HasSubstr;

TEST(DataDirTest, RejectsSecondOwner) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/data_dir_", getpid());
  auto first = DataDir::Acquire(path);
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = DataDir::Acquire(path);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr(absl::StrCat("in use by another coordinator (pid ", getpid(), ")")));
  first->reset();
  EXPECT_TRUE(DataDir::Acquire(path).ok());
}

TEST(DataDirTest, BecomesPrivate) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/shared_dir_", getpid());
  ASSERT_EQ(mkdir(path.c_str(), 0755), 0);
  ASSERT_EQ(chmod(path.c_str(), 0755), 0);
  ASSERT_TRUE(DataDir::Acquire(path).ok());
  struct stat info;
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST(DataDirTest, NamesPathThatCannotBeCreated) {
  const auto status = DataDir::Acquire("/dev/null/muster").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/dev/null/muster"));
}

}  // namespace
}  // namespace muster::store
