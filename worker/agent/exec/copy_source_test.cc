#include "worker/agent/exec/copy_source.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::agent {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class CopySourceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = "/tmp/muster-copy-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    auto directory = DataDirectory::Open(root_ + "/data");
    ASSERT_TRUE(directory.ok()) << directory.status();
    directory_ = *std::move(directory);
    work_ = directory_->Work("job", 1);
    fs::create_directories(work_ + "/out");
    fs::create_directories(directory_->Checkpoint("job"));
    std::ofstream(work_ + "/out/model.pt") << "weights";
    std::ofstream(root_ + "/secret") << "secret";
  }
  void TearDown() override {
    directory_.reset();
    fs::remove_all(root_);
  }
  absl::StatusOr<CopySource> Resolve(const std::string& path, const std::string& workdir = "",
                                     const std::string& checkpoint_dir = "") {
    v1::Launch launch;
    launch.mutable_spec()->set_workdir(workdir);
    launch.mutable_spec()->mutable_train()->mutable_checkpoint()->set_dir(checkpoint_dir);
    EXPECT_TRUE(WriteMessage(directory_->NewestLaunchFile("job"), launch, false).ok());
    v1::ReadFilesRequest request;
    request.set_job_id("job");
    request.set_rank(1);
    request.set_path(path);
    return ResolveCopySource(request, *directory_, "node-a");
  }

  std::string root_;
  std::string work_;
  std::unique_ptr<DataDirectory> directory_;
};

TEST_F(CopySourceTest, ResolvesPathsInWorkingDirectory) {
  const auto file = Resolve("out/model.pt");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->parent, work_ + "/out");
  EXPECT_EQ(file->name, "model.pt");
  EXPECT_EQ(Resolve(work_ + "/out")->name, "out");
  EXPECT_EQ(Resolve(".")->name, "rank-0001");
  EXPECT_EQ(Resolve("out/../out/model.pt")->name, "model.pt");
}

TEST_F(CopySourceTest, ResolvesPathsInCheckpointDirectories) {
  EXPECT_TRUE(Resolve(directory_->Checkpoint("job")).ok());
  fs::create_directories(root_ + "/shared/node-a");
  EXPECT_TRUE(absl::IsFailedPrecondition(Resolve(root_ + "/shared/node-a").status()));
  EXPECT_TRUE(Resolve(root_ + "/shared/node-a", "", root_ + "/shared/{node}").ok());
}

TEST_F(CopySourceTest, UsesWorkdirOfTheSpec) {
  fs::create_directories(root_ + "/srv");
  std::ofstream(root_ + "/srv/a") << "a";
  EXPECT_EQ(Resolve("a", root_ + "/srv")->parent, root_ + "/srv");
}

TEST_F(CopySourceTest, RefusesPathsOutside) {
  for (const std::string& path :
       {root_ + "/secret", std::string("../../../../../secret"), std::string("/etc/passwd")}) {
    const absl::Status status = Resolve(path).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("node node-a: "));
    EXPECT_THAT(std::string(status.message()), HasSubstr("is outside of " + work_));
  }
  // A name that only begins like the directory is outside of it.
  fs::create_directories(work_ + "0");
  EXPECT_TRUE(absl::IsFailedPrecondition(Resolve(work_ + "0").status()));
}

TEST_F(CopySourceTest, SymlinksMustNotLeadOutside) {
  fs::create_symlink(root_ + "/secret", work_ + "/link");
  fs::create_symlink(root_, work_ + "/up");
  fs::create_symlink("out/model.pt", work_ + "/latest");
  EXPECT_TRUE(absl::IsFailedPrecondition(Resolve("link").status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(Resolve("up/secret").status()));
  EXPECT_EQ(Resolve("latest")->name, "model.pt");
}

TEST_F(CopySourceTest, NamesWhatIsMissing) {
  const absl::Status file = Resolve("nothing").status();
  EXPECT_TRUE(absl::IsNotFound(file));
  EXPECT_EQ(file.message(), "node node-a: " + work_ + "/nothing: No such file or directory");
  fs::remove_all(work_);
  const absl::Status directory = Resolve("nothing").status();
  EXPECT_TRUE(absl::IsNotFound(directory));
  EXPECT_THAT(std::string(directory.message()), HasSubstr("working directory " + work_));
}

}  // namespace
}  // namespace muster::agent
