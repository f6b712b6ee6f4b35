#include "cli/copy/unpacker.h"

#include <stdlib.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string Read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class UnpackerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = "/tmp/muster-unpack-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    fs::create_directories(root_ / "source/folder");
    fs::create_directories(root_ / "here");
    std::ofstream(root_ / "source/file") << "text";
    std::ofstream(root_ / "source/folder/a") << "a";
  }
  void TearDown() override { fs::remove_all(root_); }

  // An archive of `name` in the source folder.
  std::string Archive(const std::string& name) {
    const std::string path = root_ / "archive";
    EXPECT_EQ(std::system(
                  absl::StrCat("tar -C ", (root_ / "source").string(), " -cf ", path, " -- ", name)
                      .c_str()),
              0);
    return Read(path);
  }
  absl::StatusOr<std::string> Unpack(const std::string& archive, const fs::path& destination,
                                     const std::string& name) {
    auto unpacker = Unpacker::Create(destination, name);
    if (!unpacker.ok()) return unpacker.status();
    const absl::Status written = (*unpacker)->Write(archive);
    return written.ok() ? (*unpacker)->Finish() : written;
  }
  // Number of entries of the folder, hidden ones included.
  static size_t Count(const fs::path& folder) {
    return std::distance(fs::directory_iterator(folder), fs::directory_iterator());
  }

  fs::path root_;
};

TEST_F(UnpackerTest, DestinationIsAFolderOrANewName) {
  EXPECT_EQ(*Unpack(Archive("file"), root_ / "here", "file"), root_ / "here/file");
  EXPECT_EQ(Read(root_ / "here/file"), "text");
  EXPECT_EQ(*Unpack(Archive("file"), root_ / "here/new", "file"), root_ / "here/new");
  EXPECT_EQ(Read(root_ / "here/new"), "text");
  EXPECT_EQ(*Unpack(Archive("folder"), root_ / "here", ""), root_ / "here/folder");
  EXPECT_EQ(Read(root_ / "here/folder/a"), "a");
  EXPECT_EQ(Count(root_ / "here"), 3u);
}

TEST_F(UnpackerTest, ReplacesFilesButNotFolders) {
  std::ofstream(root_ / "here/file") << "old";
  EXPECT_TRUE(Unpack(Archive("file"), root_ / "here", "file").ok());
  EXPECT_EQ(Read(root_ / "here/file"), "text");
  ASSERT_TRUE(Unpack(Archive("folder"), root_ / "here", "folder").ok());
  const absl::Status exists = Unpack(Archive("folder"), root_ / "here", "folder").status();
  EXPECT_TRUE(absl::IsAlreadyExists(exists));
  EXPECT_THAT(std::string(exists.message()), HasSubstr((root_ / "here/folder").string()));
  EXPECT_EQ(Count(root_ / "here"), 2u);
}

TEST_F(UnpackerTest, IncompleteCopyLeavesNothing) {
  {
    auto unpacker = Unpacker::Create(root_ / "here", "file");
    ASSERT_TRUE(unpacker.ok());
    ASSERT_TRUE((*unpacker)->Write(Archive("file").substr(0, 600)).ok());
  }
  EXPECT_EQ(Count(root_ / "here"), 0u);
}

TEST_F(UnpackerTest, ArchiveCannotWriteElsewhere) {
  // Entries named ../escaped and link/a, of which link leads outside.
  std::ofstream(root_ / "escaped") << "x";
  fs::create_directory_symlink(root_ / "here", root_ / "source/link");
  const std::string up = root_ / "up";
  ASSERT_EQ(std::system(absl::StrCat("cd ", (root_ / "source").string(), " && tar -Pcf ", up,
                                     " ../escaped 2>/dev/null && tar -rf ", up, " link && tar -rf ",
                                     up, " --transform 's,folder/a,link/a,' folder/a")
                            .c_str()),
            0);
  fs::remove(root_ / "escaped");
  EXPECT_FALSE(Unpack(Read(up), root_ / "here", "x").ok());
  EXPECT_FALSE(fs::exists(root_ / "escaped"));
  EXPECT_EQ(Count(root_ / "here"), 0u);
}

TEST_F(UnpackerTest, NamesMissingFolder) {
  const absl::Status missing = Unpack(Archive("file"), root_ / "no/file", "file").status();
  EXPECT_TRUE(absl::IsNotFound(missing));
  EXPECT_EQ(missing.message(), absl::StrCat("folder ", (root_ / "no").string(), " does not exist"));
}

TEST_F(UnpackerTest, StdoutTakesFilesOnly) {
  const auto to_stdout = [](const std::string& archive) {
    auto unpacker = Unpacker::CreateForStdout();
    const absl::Status written = (*unpacker)->Write(archive);
    return written.ok() ? (*unpacker)->Finish().status() : written;
  };
  ::testing::internal::CaptureStdout();
  const absl::Status file = to_stdout(Archive("file"));
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "text");
  EXPECT_TRUE(file.ok()) << file;
  EXPECT_TRUE(absl::IsInvalidArgument(to_stdout(Archive("folder"))));
  const std::string longer(150, 'n');
  std::ofstream(root_ / "source" / longer) << "long";
  ::testing::internal::CaptureStdout();
  EXPECT_TRUE(to_stdout(Archive(longer)).ok());
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "long");
}

}  // namespace
}  // namespace muster::cli
