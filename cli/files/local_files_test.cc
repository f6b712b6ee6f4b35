#include "cli/files/local_files.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/sha256.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

namespace fs = std::filesystem;

class LocalFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = absl::StrCat(::testing::TempDir(), "files-",
                         ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(root_);
    base_ = root_ + "/project";
    Write("project/train.py", "import conf");
    Write("project/conf/a.yaml", "a: 1");
    Write("project/conf/sub/b.yaml", "b: 1");
  }

  void Write(const std::string& path, const std::string& content) {
    const fs::path file = fs::path(root_) / path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << content;
  }

  std::vector<std::string> Places() const {
    std::vector<std::string> places;
    for (const auto& [place, file] : files_.files()) places.push_back(place);
    return places;
  }

  std::string root_;
  std::string base_;
  LocalFiles files_;
};

TEST_F(LocalFilesTest, DescribesFile) {
  fs::permissions(base_ + "/train.py", fs::perms::owner_exec, fs::perm_options::add);
  ASSERT_TRUE(files_.Add("train.py", base_).ok());
  const LocalFile& file = files_.files().at("train.py");
  EXPECT_EQ(file.source, base_ + "/train.py");
  EXPECT_EQ(file.spec.path(), "train.py");
  EXPECT_EQ(file.spec.sha256(), Sha256Hex("import conf"));
  EXPECT_EQ(file.spec.size_bytes(), 11);
  EXPECT_TRUE(file.spec.executable());
  ASSERT_TRUE(files_.Add("conf/a.yaml", base_).ok());
  EXPECT_FALSE(files_.files().at("conf/a.yaml").spec.executable());
}

TEST_F(LocalFilesTest, ExpandsFolders) {
  Write("project/conf/.git/HEAD", "ref");
  Write("project/conf/sub/__pycache__/b.pyc", "code");
  Write("project/conf/.env", "A=1");
  ASSERT_TRUE(files_.Add("./conf/", base_).ok());
  EXPECT_THAT(Places(), ElementsAre("conf/.env", "conf/a.yaml", "conf/sub/b.yaml"));
}

TEST_F(LocalFilesTest, PlacesCurrentFolderAtTheTop) {
  ASSERT_TRUE(files_.Add(".", base_).ok());
  EXPECT_THAT(Places(), ElementsAre("conf/a.yaml", "conf/sub/b.yaml", "train.py"));
  // The same file again is no conflict.
  EXPECT_TRUE(files_.Add("conf/a.yaml", base_).ok());
  EXPECT_TRUE(files_.Add("conf", base_).ok());
}

TEST_F(LocalFilesTest, PlacesOutsidersByName) {
  Write("shared/util/io.py", "io");
  ASSERT_TRUE(files_.Add("../shared/util", base_).ok());
  ASSERT_TRUE(files_.Add(base_ + "/train.py", "/elsewhere").ok());
  EXPECT_THAT(Places(), ElementsAre("train.py", "util/io.py"));
  ASSERT_TRUE(files_.Add("..", base_ + "/conf/sub").ok());
  EXPECT_THAT(Places(), ElementsAre("conf/a.yaml", "conf/sub/b.yaml", "train.py", "util/io.py"));
}

TEST_F(LocalFilesTest, RejectsTwoFilesForOnePlace) {
  Write("shared/train.py", "other");
  ASSERT_TRUE(files_.Add("train.py", base_).ok());
  const absl::Status status = files_.Add("../shared/train.py", base_);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(status.message(), HasSubstr("would both be placed as train.py"));
}

TEST_F(LocalFilesTest, ReportsUnreadablePaths) {
  const absl::Status status = files_.Add("no.py", base_);
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_EQ(status.message(),
            absl::StrCat("files: read ", base_, "/no.py: No such file or directory"));
  fs::create_directories(base_ + "/empty");
  EXPECT_THAT(files_.Add("empty", base_).message(), HasSubstr("empty has no files"));
  EXPECT_THAT(files_.Add("/dev/null", base_).message(), HasSubstr("is not a file or folder"));
  Write("project/a\nb", "");
  EXPECT_TRUE(absl::IsInvalidArgument(files_.Add("a\nb", base_)));
}

TEST_F(LocalFilesTest, FollowsLinksToFilesOnly) {
  fs::create_symlink("../train.py", base_ + "/conf/link.py");
  fs::create_directory_symlink("..", base_ + "/conf/loop");
  fs::create_symlink("nowhere", base_ + "/conf/dangling");
  ASSERT_TRUE(files_.Add("conf", base_).ok());
  EXPECT_THAT(Places(), ElementsAre("conf/a.yaml", "conf/link.py", "conf/sub/b.yaml"));
  EXPECT_EQ(files_.files().at("conf/link.py").spec.sha256(), Sha256Hex("import conf"));
  EXPECT_THAT(files_.skipped(),
              ElementsAre("conf/dangling: not a file",
                          "conf/loop: a link to a folder; give the folder itself"));
}

TEST_F(LocalFilesTest, LimitsNumberAndSize) {
  for (size_t i = 0; i <= limits::kFiles; ++i) Write(absl::StrCat("many/", i), "");
  EXPECT_THAT(files_.Add("many", root_).message(), HasSubstr("more than 1000 files"));

  LocalFiles large;
  Write("large", "");
  fs::resize_file(root_ + "/large", limits::kFilesBytes + 1);  // sparse
  EXPECT_THAT(large.Add("large", root_).message(), HasSubstr("more than 256 MiB"));
  EXPECT_THAT(large.files(), IsEmpty());
}

}  // namespace

}  // namespace muster::cli
