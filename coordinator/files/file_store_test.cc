#include "coordinator/files/file_store.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/sha256.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::files {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const absl::Time kNow = absl::FromUnixSeconds(1'700'000'000);

class FileStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = absl::StrCat(::testing::TempDir(), "/store-",
                              ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(directory_);
    Reopen();
  }

  void Reopen(uint64_t reserved_bytes = 0) {
    store_.reset();
    auto store = FileStore::Open(directory_, reserved_bytes);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }

  // Uploads `content` in pieces of three bytes under the digest of `announced`.
  absl::Status Upload(const std::string& content, const std::string& announced,
                      absl::Time now = kNow) {
    auto upload = store_->StartUpload(Sha256Hex(announced), announced.size());
    if (!upload.ok()) return upload.status();
    for (size_t i = 0; i < content.size(); i += 3) {
      const absl::Status appended = (*upload)->Append(content.substr(i, 3));
      if (!appended.ok()) return appended;
    }
    return (*upload)->Finish(now);
  }
  absl::Status Upload(const std::string& content) { return Upload(content, content); }

  bool Has(const std::string& content) { return store_->Read(Sha256Hex(content)).ok(); }

  std::string Content(const std::string& digest) {
    auto reader = store_->Read(digest);
    if (!reader.ok()) return reader.status().ToString();
    std::string content;
    while (true) {
      const auto data = (*reader)->Read(4);
      if (!data.ok() || data->empty()) return content;
      content += *data;
    }
  }

  size_t FilesOnDisk() const {
    size_t files = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory_)) {
      if (entry.is_regular_file()) ++files;
    }
    return files;
  }

  std::string directory_;
  std::unique_ptr<FileStore> store_;
};

TEST_F(FileStoreTest, ReturnsWhatWasUploaded) {
  ASSERT_TRUE(Upload("print(1)\n").ok());
  ASSERT_TRUE(Upload("").ok());
  EXPECT_EQ(Content(Sha256Hex("print(1)\n")), "print(1)\n");
  EXPECT_EQ(Content(Sha256Hex("")), "");
  EXPECT_TRUE(absl::IsNotFound(store_->Read(Sha256Hex("other")).status()));
  EXPECT_THAT(store_->Missing({Sha256Hex("print(1)\n"), Sha256Hex("other")}, kNow),
              ElementsAre(Sha256Hex("other")));
}

TEST_F(FileStoreTest, SurvivesRestart) {
  ASSERT_TRUE(Upload("kept").ok());
  Reopen();
  EXPECT_TRUE(Has("kept"));
}

TEST_F(FileStoreTest, RejectsContentOfAnotherDigest) {
  EXPECT_TRUE(absl::IsInvalidArgument(Upload("abd", "abc")));
  EXPECT_TRUE(absl::IsInvalidArgument(Upload("ab", "abc")));
  EXPECT_TRUE(absl::IsInvalidArgument(Upload("abcd", "abc")));
  EXPECT_FALSE(Has("abc"));
  EXPECT_EQ(FilesOnDisk(), 0);
}

TEST_F(FileStoreTest, DiscardsIncompleteUploads) {
  auto upload = store_->StartUpload(Sha256Hex("abc"), 3);
  ASSERT_TRUE(upload.ok());
  ASSERT_TRUE((*upload)->Append("ab").ok());
  EXPECT_EQ(FilesOnDisk(), 1);
  upload->reset();
  EXPECT_EQ(FilesOnDisk(), 0);

  // As left by a coordinator that was killed.
  std::ofstream(directory_ + "/uploads/left") << "ab";
  Reopen();
  EXPECT_EQ(FilesOnDisk(), 0);
}

TEST_F(FileStoreTest, LimitsUploads) {
  std::vector<std::unique_ptr<FileStore::Upload>> open;
  for (size_t i = 0; i < kUploads; ++i) {
    auto upload = store_->StartUpload(Sha256Hex("abc"), 3);
    ASSERT_TRUE(upload.ok());
    open.push_back(*std::move(upload));
  }
  EXPECT_TRUE(absl::IsResourceExhausted(store_->StartUpload(Sha256Hex("abc"), 3).status()));
  open.pop_back();
  EXPECT_TRUE(store_->StartUpload(Sha256Hex("abc"), 3).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(
      store_->StartUpload(Sha256Hex("abc"), limits::kFilesBytes + 1).status()));
}

TEST_F(FileStoreTest, LeavesReservedSpace) {
  Reopen(/*reserved_bytes=*/uint64_t{1} << 60);
  const absl::Status status = Upload("abc");
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("disk is full"));
  EXPECT_THAT(status.message(), HasSubstr(directory_));
  EXPECT_EQ(FilesOnDisk(), 0);
}

TEST_F(FileStoreTest, ChecksFilesOfSpecs) {
  ASSERT_TRUE(Upload("abc").ok());
  v1::JobSpec spec;
  v1::FileSpec& file = *spec.add_files();
  file.set_path("conf/a.yaml");
  file.set_sha256(Sha256Hex("abc"));
  file.set_size_bytes(3);
  EXPECT_TRUE(store_->CheckStored(spec, kNow).ok());
  file.set_size_bytes(4);
  EXPECT_TRUE(absl::IsInvalidArgument(store_->CheckStored(spec, kNow)));
  file.set_sha256(Sha256Hex("abd"));
  const absl::Status status = store_->CheckStored(spec, kNow);
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(status.message(), HasSubstr("conf/a.yaml has not been uploaded"));
}

TEST_F(FileStoreTest, RemovesUnreferencedFilesAfterAnHour) {
  for (const char* content : {"used", "unused", "asked", "submitted"}) {
    ASSERT_TRUE(Upload(content).ok());
  }
  const absl::flat_hash_set<std::string> referenced = {Sha256Hex("used")};
  EXPECT_EQ(store_->CollectGarbage(referenced, kNow + absl::Minutes(59)), 0);

  // Clients that are about to submit have asked for these.
  const absl::Time later = kNow + absl::Minutes(59);
  EXPECT_THAT(store_->Missing({Sha256Hex("asked")}, later), IsEmpty());
  v1::JobSpec spec;
  spec.add_files()->set_sha256(Sha256Hex("submitted"));
  spec.mutable_files(0)->set_size_bytes(9);
  EXPECT_TRUE(store_->CheckStored(spec, later).ok());

  EXPECT_EQ(store_->CollectGarbage(referenced, kNow + absl::Minutes(61)), 1);
  EXPECT_FALSE(Has("unused"));
  EXPECT_TRUE(Has("used") && Has("asked") && Has("submitted"));
  EXPECT_EQ(store_->CollectGarbage(referenced, kNow + absl::Hours(2)), 2);
  EXPECT_TRUE(Has("used"));
  EXPECT_EQ(store_->CollectGarbage({}, kNow + absl::Hours(2)), 1);
}

TEST_F(FileStoreTest, ReadsRemovedFileToItsEnd) {
  ASSERT_TRUE(Upload("abcdef").ok());
  auto reader = store_->Read(Sha256Hex("abcdef"));
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(store_->CollectGarbage({}, kNow + absl::Hours(2)), 1);
  EXPECT_EQ(*(*reader)->Read(100), "abcdef");
}

TEST(TemporaryFileStoreTest, RemovesItsDirectory) {
  setenv("TMPDIR", ::testing::TempDir().c_str(), 1);
  auto store = FileStore::Open("");
  ASSERT_TRUE(store.ok()) << store.status();
  const std::string directory = (*store)->directory();
  EXPECT_TRUE(std::filesystem::is_directory(directory));
  store->reset();
  EXPECT_FALSE(std::filesystem::exists(directory));
}

}  // namespace
}  // namespace muster::files
