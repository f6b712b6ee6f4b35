#include "spec/files.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::spec {
namespace {

using ::testing::HasSubstr;

const std::string kDigest(64, 'a');

v1::JobSpec With(std::initializer_list<std::string> paths) {
  v1::JobSpec spec;
  for (const std::string& path : paths) {
    v1::FileSpec& file = *spec.add_files();
    file.set_path(path);
    file.set_sha256(kDigest);
    file.set_size_bytes(1);
  }
  return spec;
}

std::string Problem(const v1::JobSpec& spec) {
  return std::string(CheckUploadedFiles(spec).message());
}

TEST(FilesTest, AcceptsFilesInFolders) {
  EXPECT_TRUE(CheckUploadedFiles(With({"train.py", "conf/a.yaml", "conf/b/c", "conf.d"})).ok());
  EXPECT_TRUE(CheckUploadedFiles(v1::JobSpec()).ok());
}

TEST(FilesTest, RejectsPathsThatLeaveTheDirectory) {
  for (const char* path :
       {"/etc/passwd", "../a", "a/../../b", "a/..", ".", "./a", "a//b", "a/", "", "a\nb"}) {
    EXPECT_THAT(Problem(With({path})), HasSubstr("is not a relative path")) << path;
  }
  EXPECT_FALSE(IsFilePath(std::string(256, 'a')));
  EXPECT_TRUE(IsFilePath("..a/.b"));
}

TEST(FilesTest, RejectsPathsThatExcludeEachOther) {
  EXPECT_THAT(Problem(With({"a", "b", "a"})), HasSubstr("a is given twice"));
  EXPECT_THAT(Problem(With({"a/b/c", "a-b", "a/b"})),
              HasSubstr("a/b is both a file and the folder of a/b/c"));
}

TEST(FilesTest, RequiresDigests) {
  v1::JobSpec spec = With({"a"});
  for (const std::string& digest :
       {std::string(), std::string(63, 'a'), std::string(64, 'A'), std::string(64, 'g'),
        std::string("../") + std::string(61, 'a')}) {
    spec.mutable_files(0)->set_sha256(digest);
    EXPECT_THAT(Problem(spec), HasSubstr("a has no SHA-256 digest")) << digest;
  }
}

TEST(FilesTest, LimitsNumberAndSize) {
  v1::JobSpec spec = With({"a", "b"});
  spec.mutable_files(0)->set_size_bytes(limits::kFilesBytes - 1);
  EXPECT_TRUE(CheckUploadedFiles(spec).ok());
  spec.mutable_files(1)->set_size_bytes(~uint64_t{0});
  EXPECT_THAT(Problem(spec), HasSubstr("with b"));

  v1::JobSpec many;
  for (size_t i = 0; i <= limits::kFiles; ++i) many.add_files()->set_path(absl::StrCat("f", i));
  EXPECT_THAT(Problem(many), HasSubstr("1001 files; the limit is 1000"));
}

}  // namespace
}  // namespace muster::spec
