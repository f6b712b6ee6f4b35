#include "worker/agent/files/file_cache.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/sha256.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

namespace fs = std::filesystem;

class FileCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = absl::StrCat(::testing::TempDir(), "/cache-",
                         ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(root_);
    Reopen(/*max_bytes=*/1000);
  }

  void Reopen(uint64_t max_bytes) {
    auto cache = FileCache::Open(root_ + "/cache", max_bytes,
                                 [this](const v1::FileSpec& file, const std::string& path) {
                                   fetched_.push_back(file.path());
                                   std::ofstream(path) << served_[file.path()];
                                   return fetch_status_;
                                 });
    ASSERT_TRUE(cache.ok()) << cache.status();
    cache_ = *std::move(cache);
  }

  // A file that the coordinator serves.
  v1::FileSpec File(const std::string& path, const std::string& content, bool executable = false) {
    served_[path] = content;
    v1::FileSpec file;
    file.set_path(path);
    file.set_sha256(Sha256Hex(content));
    file.set_size_bytes(content.size());
    file.set_executable(executable);
    return file;
  }

  absl::Status Place(const std::vector<v1::FileSpec>& files,
                     const std::vector<std::string>& ranks = {"rank-0"}) {
    FileCache::Files list(files.begin(), files.end());
    std::vector<std::string> directories;
    for (const std::string& rank : ranks) directories.push_back(absl::StrCat(root_, "/", rank));
    return cache_->Place(list, directories);
  }

  std::string Read(const std::string& path) const {
    std::ifstream file(absl::StrCat(root_, "/", path));
    std::stringstream text;
    text << file.rdbuf();
    return file ? text.str() : "<none>";
  }
  mode_t ModeOf(const std::string& path) const {
    struct stat info;
    return lstat(absl::StrCat(root_, "/", path).c_str(), &info) == 0 ? info.st_mode & 0777 : 0;
  }

  std::string root_;
  std::map<std::string, std::string> served_;
  std::vector<std::string> fetched_;
  absl::Status fetch_status_;
  std::unique_ptr<FileCache> cache_;
};

TEST_F(FileCacheTest, PlacesFilesInEachDirectory) {
  const std::vector<v1::FileSpec> files = {File("train.py", "import conf"),
                                           File("conf/deep/a.yaml", "a: 1"),
                                           File("run.sh", "#!/bin/sh", /*executable=*/true)};
  ASSERT_TRUE(Place(files, {"work/rank-0", "work/rank-1"}).ok());
  for (const char* rank : {"work/rank-0/", "work/rank-1/"}) {
    EXPECT_EQ(Read(absl::StrCat(rank, "train.py")), "import conf");
    EXPECT_EQ(Read(absl::StrCat(rank, "conf/deep/a.yaml")), "a: 1");
    EXPECT_EQ(ModeOf(absl::StrCat(rank, "run.sh")), 0700);
    EXPECT_EQ(ModeOf(absl::StrCat(rank, "train.py")), 0600);
  }
  EXPECT_THAT(fetched_, ElementsAre("train.py", "conf/deep/a.yaml", "run.sh"));
}

TEST_F(FileCacheTest, FetchesEachContentOnce) {
  ASSERT_TRUE(Place({File("a.py", "same"), File("b.py", "same")}).ok());
  ASSERT_TRUE(Place({File("a.py", "same")}).ok());
  Reopen(1000);
  ASSERT_TRUE(Place({File("a.py", "same")}).ok());
  EXPECT_THAT(fetched_, ElementsAre("a.py"));
  ASSERT_TRUE(Place({File("a.py", "changed")}).ok());
  EXPECT_EQ(Read("rank-0/a.py"), "changed");
  EXPECT_THAT(fetched_, ElementsAre("a.py", "a.py"));
}

TEST_F(FileCacheTest, RestoresModifiedFiles) {
  ASSERT_TRUE(Place({File("conf/a.yaml", "a: 1")}).ok());
  std::ofstream(root_ + "/rank-0/conf/a.yaml") << "changed";
  std::ofstream(root_ + "/rank-0/model.pt") << "weights";
  ASSERT_TRUE(Place({File("conf/a.yaml", "a: 1")}).ok());
  EXPECT_EQ(Read("rank-0/conf/a.yaml"), "a: 1");
  EXPECT_EQ(Read("rank-0/model.pt"), "weights");
  EXPECT_THAT(fetched_, ElementsAre("conf/a.yaml"));
}

TEST_F(FileCacheTest, DoesNotWriteThroughLinks) {
  fs::create_directories(root_ + "/rank-0");
  fs::create_directories(root_ + "/outside");
  std::ofstream(root_ + "/outside/a.yaml") << "theirs";
  fs::create_directory_symlink(root_ + "/outside", root_ + "/rank-0/conf");
  fs::create_symlink(root_ + "/outside/a.yaml", root_ + "/rank-0/b.yaml");
  ASSERT_TRUE(Place({File("conf/a.yaml", "mine"), File("b.yaml", "mine")}).ok());
  EXPECT_EQ(Read("outside/a.yaml"), "theirs");
  EXPECT_EQ(Read("rank-0/conf/a.yaml"), "mine");
  EXPECT_EQ(Read("rank-0/b.yaml"), "mine");
}

TEST_F(FileCacheTest, RemovesLeastRecentlyUsed) {
  const auto age = [this](const v1::FileSpec& file, int hours) {
    fs::last_write_time(absl::StrCat(root_, "/cache/", file.sha256()),
                        fs::file_time_type::clock::now() - std::chrono::hours(hours));
  };
  Reopen(/*max_bytes=*/100);
  const v1::FileSpec old = File("old", std::string(40, 'a'));
  const v1::FileSpec older = File("older", std::string(40, 'b'));
  ASSERT_TRUE(Place({old, older}).ok());
  age(old, 1);
  age(older, 2);
  ASSERT_TRUE(Place({File("new", std::string(40, 'c'))}).ok());
  fetched_.clear();
  ASSERT_TRUE(Place({old}).ok());
  EXPECT_THAT(fetched_, IsEmpty());
  ASSERT_TRUE(Place({older}).ok());
  EXPECT_THAT(fetched_, ElementsAre("older"));
}

TEST_F(FileCacheTest, KeepsFilesInUse) {
  Reopen(/*max_bytes=*/10);
  const std::vector<v1::FileSpec> files = {File("a", std::string(40, 'a')),
                                           File("b", std::string(40, 'b'))};
  ASSERT_TRUE(Place(files, {"rank-0", "rank-1"}).ok());
  EXPECT_EQ(Read("rank-1/a"), served_["a"]);
  EXPECT_EQ(Read("rank-1/b"), served_["b"]);
}

TEST_F(FileCacheTest, ReportsFailuresWithPath) {
  fetch_status_ = absl::NotFoundError("no such file is stored");
  absl::Status status = Place({File("conf/a.yaml", "a: 1")});
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_EQ(status.message(), "files: conf/a.yaml: no such file is stored");

  fetch_status_ = absl::OkStatus();
  const v1::FileSpec file = File("b", "expected");
  served_["b"] = "received";
  status = Place({file});
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_THAT(status.message(), HasSubstr("files: b: received content with SHA-256"));
  served_["b"] = "expected";
  EXPECT_TRUE(Place({file}).ok());

  // The rank has made a folder where the file belongs.
  fs::create_directories(root_ + "/rank-1/b/c");
  EXPECT_THAT(Place({file}, {"rank-1"}).message(), HasSubstr("/rank-1/b: "));
}

TEST_F(FileCacheTest, FetchesDamagedFilesAgain) {
  const v1::FileSpec file = File("a", "content");
  ASSERT_TRUE(Place({file}).ok());
  fs::resize_file(absl::StrCat(root_, "/cache/", file.sha256()), 0);
  ASSERT_TRUE(Place({file}).ok());
  EXPECT_EQ(Read("rank-0/a"), "content");
}

}  // namespace
}  // namespace muster::agent
