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
const FileUser kAlice = {"alice"};
const FileUser kBob = {"bob"};

class FileStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = absl::StrCat(::testing::TempDir(), "/store-",
                              ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(directory_);
    Reopen();
  }

  void Reopen(const DiskLimits& limits = {.reserved_bytes = 0}) {
    store_.reset();
    auto store = FileStore::Open(directory_, limits);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }

  // Uploads `content` in pieces of three bytes under the digest of `announced`.
  absl::Status Upload(const std::string& content, const std::string& announced,
                      const std::string& owner = "alice") {
    auto upload = store_->StartUpload(owner, Sha256Hex(announced), announced.size());
    if (!upload.ok()) return upload.status();
    for (size_t i = 0; i < content.size(); i += 3) {
      const absl::Status appended = (*upload)->Append(content.substr(i, 3));
      if (!appended.ok()) return appended;
    }
    return (*upload)->Finish(kNow);
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
  EXPECT_THAT(store_->Missing({Sha256Hex("print(1)\n"), Sha256Hex("other")}, kAlice, kNow),
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
  auto upload = store_->StartUpload("alice", Sha256Hex("abc"), 3);
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
    auto upload = store_->StartUpload("alice", Sha256Hex("abc"), 3);
    ASSERT_TRUE(upload.ok());
    open.push_back(*std::move(upload));
  }
  EXPECT_TRUE(
      absl::IsResourceExhausted(store_->StartUpload("alice", Sha256Hex("abc"), 3).status()));
  open.pop_back();
  EXPECT_TRUE(store_->StartUpload("alice", Sha256Hex("abc"), 3).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(
      store_->StartUpload("alice", Sha256Hex("abc"), limits::kFilesBytes + 1).status()));
}

TEST_F(FileStoreTest, LeavesReservedSpace) {
  Reopen({.reserved_bytes = uint64_t{1} << 60});
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
  EXPECT_TRUE(store_->CheckStored(spec, kAlice, kNow).ok());
  file.set_size_bytes(4);
  EXPECT_TRUE(absl::IsInvalidArgument(store_->CheckStored(spec, kAlice, kNow)));
  file.set_sha256(Sha256Hex("abd"));
  const absl::Status status = store_->CheckStored(spec, kAlice, kNow);
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(status.message(), HasSubstr("conf/a.yaml has not been uploaded"));
}

TEST_F(FileStoreTest, RemovesUnreferencedFilesAfterAnHour) {
  for (const char* content : {"used", "unused", "asked", "submitted"}) {
    ASSERT_TRUE(Upload(content).ok());
  }
  const FilesByOwner referenced = {{"alice", {Sha256Hex("used")}}};
  EXPECT_EQ(store_->CollectGarbage(referenced, kNow + absl::Minutes(59)), 0);

  // Clients that are about to submit have asked for these.
  const absl::Time later = kNow + absl::Minutes(59);
  EXPECT_THAT(store_->Missing({Sha256Hex("asked")}, kAlice, later), IsEmpty());
  v1::JobSpec spec;
  spec.add_files()->set_sha256(Sha256Hex("submitted"));
  spec.mutable_files(0)->set_size_bytes(9);
  EXPECT_TRUE(store_->CheckStored(spec, kAlice, later).ok());

  EXPECT_EQ(store_->CollectGarbage(referenced, kNow + absl::Minutes(61)), 1);
  EXPECT_FALSE(Has("unused"));
  EXPECT_TRUE(Has("used") && Has("asked") && Has("submitted"));
  EXPECT_EQ(store_->CollectGarbage(referenced, kNow + absl::Hours(2)), 2);
  EXPECT_TRUE(Has("used"));
  EXPECT_EQ(store_->CollectGarbage({}, kNow + absl::Hours(2)), 1);
}

TEST_F(FileStoreTest, DigestGivesNoRight) {
  const std::string digest = Sha256Hex("private");
  v1::JobSpec spec;
  spec.add_files()->set_path("a.txt");
  spec.mutable_files(0)->set_sha256(digest);
  spec.mutable_files(0)->set_size_bytes(7);
  const std::vector<std::string> before = store_->Missing({digest}, kBob, kNow);
  const absl::Status refused_before = store_->CheckStored(spec, kBob, kNow);
  ASSERT_TRUE(Upload("private").ok());
  EXPECT_EQ(store_->Missing({digest}, kBob, kNow), before);
  EXPECT_EQ(store_->CheckStored(spec, kBob, kNow), refused_before);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused_before));
  // The owner's right survives a restart, and so does that to files of jobs.
  Reopen();
  EXPECT_TRUE(store_->CheckStored(spec, kAlice, kNow).ok());
  EXPECT_FALSE(store_->CheckStored(spec, kBob, kNow).ok());
  EXPECT_TRUE(store_->CheckStored(spec, {"bob", {digest}}, kNow).ok());
  // No name is another one's, whatever its characters.
  for (const char* name : {"", "alic", "../alice", "alice\n", "*"}) {
    EXPECT_THAT(store_->Missing({digest}, {name}, kNow), ElementsAre(digest)) << name;
  }
}

TEST_F(FileStoreTest, SecondOwnerProvesPossession) {
  ASSERT_TRUE(Upload("same").ok());
  EXPECT_TRUE(absl::IsInvalidArgument(Upload("sam", "same", "bob")));
  EXPECT_THAT(store_->Missing({Sha256Hex("same")}, kBob, kNow), ElementsAre(Sha256Hex("same")));
  ASSERT_TRUE(Upload("same", "same", "bob").ok());
  for (const FileUser& user : {kAlice, kBob}) {
    EXPECT_THAT(store_->Missing({Sha256Hex("same")}, user, kNow), IsEmpty());
  }
}

TEST_F(FileStoreTest, ProofsExpireAlsoOfReferencedFiles) {
  ASSERT_TRUE(Upload("used").ok());
  ASSERT_TRUE(Upload("used", "used", "bob").ok());
  const FilesByOwner referenced = {{"alice", {Sha256Hex("used")}}};
  EXPECT_THAT(store_->Missing({Sha256Hex("used")}, kBob, kNow + absl::Minutes(59)), IsEmpty());
  EXPECT_EQ(store_->CollectGarbage(referenced, kNow + absl::Minutes(61)), 0);
  EXPECT_EQ(FilesOnDisk(), 2) << "the file and the proof of bob";
  EXPECT_THAT(store_->Missing({Sha256Hex("used")}, kAlice, kNow), ElementsAre(Sha256Hex("used")));
  EXPECT_EQ(store_->CollectGarbage({}, kNow + absl::Hours(3)), 1);
  EXPECT_EQ(FilesOnDisk(), 0);
}

TEST_F(FileStoreTest, LimitsProofsPerOwner) {
  std::filesystem::create_directory(directory_ + "/aa");
  for (size_t i = 0; i < kProofsPerOwner; ++i) {
    const std::string rest = Sha256Hex(absl::StrCat(i)).substr(2);
    std::ofstream(absl::StrCat(directory_, "/aa/aa", rest, ".", Sha256Hex("alice")));
  }
  store_->CollectGarbage({}, absl::Now());
  const absl::Status refused = Upload("more");
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(refused.message(), HasSubstr("alice has uploaded 65536 files"));
  EXPECT_TRUE(Upload("more", "more", "bob").ok()) << "others are not affected";
}

constexpr uint64_t kPlenty = uint64_t{1} << 40;

TEST_F(FileStoreTest, LimitsUnusedFilesOfAnOwner) {
  Reopen({.reserved_bytes = 0, .unused_bytes = 4096});
  ASSERT_TRUE(Upload(std::string(2000, 'a')).ok());
  ASSERT_TRUE(Upload(std::string(2000, 'a')).ok()) << "again";
  ASSERT_TRUE(Upload(std::string(2000, 'b')).ok());
  const std::string more(1024, 'c');
  const auto refused = [&] {
    const absl::Status status = Upload(more);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    return std::string(status.message());
  };
  constexpr char kMessage[] =
      "alice has 3 KiB of uploaded files that no job of that owner uses, and 1 KiB more would "
      "exceed the limit of 4 KiB; submit the jobs that use them, or try again an hour after their "
      "upload";
  EXPECT_EQ(refused(), kMessage);
  // Each owner of equal content has all of it.
  ASSERT_TRUE(Upload(std::string(2000, 'a'), std::string(2000, 'a'), "bob").ok());
  EXPECT_EQ(refused(), kMessage);
  Reopen({.reserved_bytes = 0, .unused_bytes = 4096});
  EXPECT_EQ(refused(), kMessage) << "after a restart";

  const std::string used = Sha256Hex(std::string(2000, 'a'));
  store_->Count({{"bob", {used}}});
  EXPECT_EQ(refused(), kMessage) << "used by a job of another owner";
  store_->Count({{"alice", {used}}});
  EXPECT_TRUE(Upload(more).ok());
  store_->Count({});
  EXPECT_NE(refused(), "") << "the job is gone";
  store_->CollectGarbage({}, kNow + absl::Hours(2));
  EXPECT_TRUE(Upload(more).ok()) << "the files are deleted";
}

TEST_F(FileStoreTest, UploadsInProgressCount) {
  Reopen({.reserved_bytes = 0, .unused_bytes = 4096});
  const auto start = [&](const std::string& owner) {
    return store_->StartUpload(owner, Sha256Hex("x"), 3000);
  };
  auto first = start("alice");
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_TRUE(absl::IsResourceExhausted(start("alice").status()));
  store_->Count({});
  EXPECT_TRUE(absl::IsResourceExhausted(start("alice").status()));
  EXPECT_TRUE(start("bob").ok());
  *first = nullptr;
  EXPECT_TRUE(start("alice").ok());
}

TEST(CheckShareTest, OwnerHasHalfOfTheDisk) {
  EXPECT_TRUE(CheckShare("alice", {}, 500, 1000, kPlenty).ok());
  EXPECT_FALSE(CheckShare("alice", {}, 501, 1000, kPlenty).ok());
  // All of the owner's files count: unused, used, and being uploaded.
  for (const OwnerFiles& files : {OwnerFiles{.unused_bytes = 400}, OwnerFiles{.used_bytes = 400},
                                  OwnerFiles{.uploading_bytes = 400}}) {
    EXPECT_TRUE(CheckShare("alice", files, 100, 600, kPlenty).ok());
    EXPECT_FALSE(CheckShare("alice", files, 101, 600, kPlenty).ok());
  }
  const absl::Status refused =
      CheckShare("alice", {.used_bytes = 9 << 20}, 1 << 20, 9 << 20, kPlenty);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.message(),
            "alice has 9216 KiB of files on the coordinator's disk, and 1024 KiB more would exceed "
            "the limit of 9216 KiB, half of the space for files; remove finished jobs with muster "
            "rm and try again in an hour, or use --workdir with a directory that all nodes share");
}

TEST_F(FileStoreTest, MissingBytesCountsContentOnce) {
  ASSERT_TRUE(Upload("there").ok());
  v1::JobSpec spec;
  for (const char* content : {"there", "missing", "missing", "gone"}) {
    v1::FileSpec& file = *spec.add_files();
    file.set_sha256(Sha256Hex(content));
    file.set_size_bytes(std::string(content).size());
  }
  EXPECT_EQ(store_->MissingBytes(spec, kAlice, kNow), 11u);
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
