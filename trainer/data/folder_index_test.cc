#include "trainer/data/folder_index.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/data/testing.h"

namespace muster::data {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class FolderIndexTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"dog/b.jpg", "dog/a.jpg", "cat/1.jpg", "cat/notes.txt"}) Write(name);
    Age();
  }
  void Write(const std::string& name) {
    fs::create_directories(fs::path(images_ + name).parent_path());
    WriteFile(images_ + name, name);
  }
  // Sets the modification times of all folders to an hour ago, long before they are listed.
  void Age() {
    const timespec then[2] = {{.tv_sec = time(nullptr) - 3600}, {.tv_sec = time(nullptr) - 3600}};
    ASSERT_EQ(utimensat(AT_FDCWD, images_.c_str(), then, 0), 0);
    for (const auto& entry : fs::directory_iterator(images_)) {
      ASSERT_EQ(utimensat(AT_FDCWD, entry.path().c_str(), then, 0), 0);
    }
  }
  // Names of all images. Collects the reports of progress, of which there are none if the folder is
  // not listed.
  std::vector<std::string> Open(const std::string& cache_dir) {
    reports_.clear();
    const auto index =
        FolderIndex::Open(images_, Cache(cache_dir, [this](uint64_t done, absl::string_view unit) {
                            reports_.push_back(absl::StrCat(done, " ", unit));
                          }));
    EXPECT_TRUE(index.ok()) << index.status();
    std::vector<std::string> names;
    if (!index.ok()) return names;
    for (const FolderIndex::Class& folder : index->classes()) {
      for (size_t i = folder.first; i < folder.first + folder.images; ++i) {
        EXPECT_EQ(index->size_bytes(i), fs::file_size(images_ + index->name(i)));
        EXPECT_EQ(fs::path(index->name(i)).parent_path(), std::string(folder.name));
        names.push_back(index->name(i));
      }
    }
    EXPECT_EQ(names.size(), index->size());
    return names;
  }

  TemporaryDirectory directory_;
  const std::string images_ = directory_.path() + "/images/";
  const std::string cache_ = directory_.path() + "/cache";
  std::vector<std::string> reports_;
};

TEST_F(FolderIndexTest, ListsOnceAndReusesTheIndex) {
  EXPECT_THAT(Open(cache_), ElementsAre("cat/1.jpg", "dog/a.jpg", "dog/b.jpg"));
  EXPECT_THAT(reports_, ElementsAre("0 files indexed"));
  EXPECT_THAT(Open(cache_), ElementsAre("cat/1.jpg", "dog/a.jpg", "dog/b.jpg"));
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(FolderIndexTest, ListsChangedFolderAgain) {
  Open(cache_);
  Write("dog/c.jpg");
  EXPECT_THAT(Open(cache_), ElementsAre("cat/1.jpg", "dog/a.jpg", "dog/b.jpg", "dog/c.jpg"));
  Age();
  EXPECT_THAT(Open(cache_), Contains("dog/c.jpg"));
  fs::remove(images_ + "dog/a.jpg");
  EXPECT_THAT(Open(cache_), ElementsAre("cat/1.jpg", "dog/b.jpg", "dog/c.jpg"));
  fs::remove_all(images_ + "cat");
  EXPECT_THAT(Open(cache_), ElementsAre("dog/b.jpg", "dog/c.jpg"));
  Write("eel/1.jpg");
  EXPECT_THAT(Open(cache_), ElementsAre("dog/b.jpg", "dog/c.jpg", "eel/1.jpg"));
}

// Another change could have the same modification time.
TEST_F(FolderIndexTest, DoesNotReuseIndexOfFolderThatHadJustChanged) {
  Write("dog/c.jpg");
  Open(cache_);
  Open(cache_);
  EXPECT_THAT(reports_, ElementsAre("0 files indexed"));
}

TEST_F(FolderIndexTest, ReplacesDamagedIndex) {
  Open(cache_);
  for (const auto& entry : fs::directory_iterator(cache_)) {
    if (entry.path().extension() != ".lock") fs::resize_file(entry.path(), 100);
  }
  EXPECT_THAT(Open(cache_), ElementsAre("cat/1.jpg", "dog/a.jpg", "dog/b.jpg"));
  Open(cache_);
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(FolderIndexTest, NeedsNoCache) {
  for (const std::string& cache : {std::string(), images_ + "cat/1.jpg/cache"}) {
    EXPECT_THAT(Open(cache), ElementsAre("cat/1.jpg", "dog/a.jpg", "dog/b.jpg"));
  }
}

TEST_F(FolderIndexTest, ReportsProgressWhileListing) {
  for (int i = 0; i < 200; ++i) Write(absl::StrCat("eel/", i, ".jpg"));
  EXPECT_EQ(Open(cache_).size(), 203);
  EXPECT_THAT(reports_, ElementsAre("0 files indexed", "64 files indexed", "128 files indexed",
                                    "192 files indexed"));
}

}  // namespace
}  // namespace muster::data
