#include "cli/files/upload.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "cli/fake_cluster.h"
#include "common/limits.h"
#include "common/sha256.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::cli {
namespace {

using ::testing::HasSubstr;

class UploadTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = absl::StrCat(::testing::TempDir(), "/upload-",
                         ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
    cluster_.on_find_missing = [this](const v1::FindMissingFilesRequest& request,
                                      v1::FindMissingFilesResponse* response) {
      for (const std::string& digest : request.sha256()) {
        if (stored_.count(digest) == 0) response->add_sha256(digest);
      }
      return grpc::Status::OK;
    };
    cluster_.on_upload = [this](const std::string& digest, const std::string& content) {
      ++uploads_;
      if (Sha256Hex(content) != digest) {
        return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "another digest");
      }
      stored_[digest] = content;
      return grpc::Status::OK;
    };
    cluster_.Start();
  }

  void Write(const std::string& name, const std::string& content) {
    std::ofstream(absl::StrCat(root_, "/", name)) << content;
  }

  // The notes, or the error.
  std::string Upload() {
    LocalFiles files;
    const absl::Status added = files.Add(".", root_);
    return added.ok() ? Upload(files) : added.ToString();
  }
  std::string Upload(const LocalFiles& files) {
    std::ostringstream out, err;
    Console console(out, err, {});
    ClusterClient::Options options;
    options.address = cluster_.address();
    ClusterClient client(options);
    const absl::Status status = UploadFiles(files, client, console);
    return status.ok() ? err.str() : status.ToString();
  }

  std::string root_;
  std::map<std::string, std::string> stored_;
  int uploads_ = 0;
  FakeCluster cluster_;
};

TEST_F(UploadTest, UploadsWhatIsMissing) {
  Write("train.py", std::string(2 * limits::kLogChunkBytes + 1, 'x'));
  EXPECT_EQ(Upload(), "uploading train.py (128 KiB)\n");
  EXPECT_EQ(Upload(), "train.py (128 KiB) is unchanged since the last upload\n");
  Write("a", "a");
  Write("b", "b");
  EXPECT_EQ(Upload(), "uploading 2 of 3 files (2 B)\n");
  EXPECT_EQ(Upload(), "3 files (128 KiB) are unchanged since the last upload\n");
  Write("a", "A");
  EXPECT_EQ(Upload(), "uploading 1 of 3 files (1 B)\n");
  EXPECT_EQ(uploads_, 4);
  EXPECT_EQ(stored_.at(Sha256Hex("A")), "A");
}

TEST_F(UploadTest, UploadsEmptyAndEqualFilesOnce) {
  for (const char* name : {"a/__init__.py", "b/__init__.py"}) {
    std::filesystem::create_directories(
        std::filesystem::path(absl::StrCat(root_, "/", name)).parent_path());
    Write(name, "");
  }
  EXPECT_EQ(Upload(), "uploading 2 files (0 B)\n");
  EXPECT_EQ(uploads_, 1);
}

TEST_F(UploadTest, ReportsChangedFile) {
  Write("train.py", "before");
  LocalFiles files;
  ASSERT_TRUE(files.Add("train.py", root_).ok());
  Write("train.py", "after!");
  EXPECT_THAT(Upload(files), HasSubstr("train.py was changed while it was uploaded"));
}

TEST_F(UploadTest, UploadsNothingWithoutFiles) {
  cluster_.Stop();
  EXPECT_EQ(Upload(LocalFiles()), "");
}

}  // namespace
}  // namespace muster::cli
