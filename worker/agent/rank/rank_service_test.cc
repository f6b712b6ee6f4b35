#include "worker/agent/rank/rank_service.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/agent/storage/data_directory.h"

namespace muster::agent {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class RankServerTest : public ::testing::Test {
 protected:
  RankServerTest() {
    // Short, because it contains a unix socket.
    char pattern[] = "/tmp/muster-ranks-XXXXXX";
    root_ = mkdtemp(pattern);
    data_ = *DataDirectory::Open(root_ + "/data");
    sweeper_ = std::make_unique<Sweeper>(*data_, nullptr, Retention());
    server_ =
        *RankServer::Start(data_->RankSocket(), loop_, table_, /*has_job_users=*/false,
                           [this](const absl::Status& status) { failures_.push_back(status); });
  }
  ~RankServerTest() override {
    server_.reset();
    sweeper_.reset();
    data_.reset();
    fs::remove_all(root_);
  }

  void Check() {
    server_->CheckOn(*sweeper_);
    sweeper_->Drain();
  }

  std::string root_;
  std::unique_ptr<DataDirectory> data_;
  std::unique_ptr<Sweeper> sweeper_;
  EventLoop loop_{"agent"};
  GenerationTable table_{GenerationContext()};
  std::vector<absl::Status> failures_;
  std::unique_ptr<RankServer> server_;
};

TEST_F(RankServerTest, RestoresSocketThatWasRemoved) {
  fs::remove_all(fs::path(data_->RankSocket()).parent_path());
  Check();
  EXPECT_TRUE(fs::is_socket(data_->RankSocket()));
  EXPECT_THAT(failures_, IsEmpty());
}

TEST_F(RankServerTest, ReportsOnceThatSocketCannotBeRestored) {
  const fs::path folder = fs::path(data_->RankSocket()).parent_path();
  fs::remove_all(folder);
  std::ofstream(folder) << "not a folder";
  Check();
  Check();
  ASSERT_EQ(failures_.size(), 1u);
  EXPECT_EQ(failures_[0].code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(failures_[0].message()), HasSubstr("cannot be restored"));
}

}  // namespace
}  // namespace muster::agent
