#include "worker/shim/rank/rank_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "worker/shim/fields.h"

namespace muster::shim {
namespace {

class RankOutputTest : public ::testing::Test {
 protected:
  explicit RankOutputTest(bool joined = false) {
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
    instructions_.stdout_path = root_ + "/stdout";
    instructions_.stderr_path = root_ + "/stderr";
    instructions_.joined_output = joined;
    output_ = std::make_unique<RankOutput>(
        instructions_, RankOutput::Events{[this] { ++outputs_; }, [](std::string_view) {}});
    EXPECT_TRUE(output_->Open());
    int out[2] = {-1, -1};
    int err[2] = {-1, -1};
    EXPECT_EQ(pipe2(out, O_CLOEXEC | O_NONBLOCK), 0);
    EXPECT_EQ(pipe2(err, O_CLOEXEC | O_NONBLOCK), 0);
    read_out_ = out[0];
    out_ = out[1];
    err_ = err[1];
    output_->SetPipes(OwnedFd(out[0]), OwnedFd(err[0]));
  }
  ~RankOutputTest() override {
    close(out_);
    close(err_);
    std::filesystem::remove_all(root_);
  }

  static void Write(int fd, std::string_view text) {
    ASSERT_EQ(write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }

  const std::string root_ = ::testing::TempDir() + "rank_output_test";
  Instructions instructions_;
  int outputs_ = 0;
  int read_out_ = -1;
  int out_ = -1;
  int err_ = -1;
  std::unique_ptr<RankOutput> output_;
};

class JoinedRankOutputTest : public RankOutputTest {
 protected:
  JoinedRankOutputTest() : RankOutputTest(/*joined=*/true) {}
};

TEST_F(RankOutputTest, LogsStreamsAndKeepsEndOfStderr) {
  Write(out_, "one\n");
  output_->OnReadable(read_out_);
  EXPECT_EQ(outputs_, 1);
  Write(err_, "two\n");
  output_->Finish();
  EXPECT_EQ(outputs_, 2);
  EXPECT_EQ(ReadFile(instructions_.stdout_path), "one\n");
  EXPECT_EQ(ReadFile(instructions_.stderr_path), "two\n");
  EXPECT_EQ(output_->LastLines(), "two\n");
  EXPECT_EQ(output_->StateLines(), "");
}

TEST_F(JoinedRankOutputTest, KeepsEndOfJoinedOutput) {
  Write(out_, "one\n");
  output_->Finish();
  EXPECT_EQ(output_->LastLines(), "one\n");
}

TEST_F(RankOutputTest, NotesWaitForUnfinishedLineAndAreNotOutput) {
  EXPECT_FALSE(output_->AddNote("first"));
  Write(err_, "unfinished");
  output_->Finish();
  EXPECT_TRUE(output_->AddNote("second"));
  EXPECT_FALSE(output_->AddNote("third"));
  output_->WriteNotes();
  EXPECT_EQ(ReadFile(instructions_.stderr_path), "first\nunfinished\nsecond\nthird\n");
  EXPECT_EQ(output_->LastLines(), "unfinished");
}

}  // namespace
}  // namespace muster::shim
