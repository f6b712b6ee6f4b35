#include "coordinator/service/relay/log_tail_chunk.h"

#include "absl/time/time.h"
#include "common/time/proto_time.h"
#include "gtest/gtest.h"

namespace muster::service {
namespace {

// A tail of four lines, begun at seconds 1, 2, 3 and 4, that starts at offset 100.
class LogTailChunkTest : public ::testing::Test {
 protected:
  LogTailChunkTest() {
    tail_.set_generation(7);
    v1::LogChunk& chunk = *tail_.mutable_stdout_end();
    chunk.set_offset(100);
    chunk.set_data("aa\nbb\ncc\ndd");
    for (int i = 0; i < 4; ++i) {
      chunk.add_lines()->set_offset(100 + 3 * i);
      chunk.mutable_lines(i)->set_unix_micros(1'000'000 * (i + 1));
    }
    request_.set_stream(v1::STDOUT);
  }
  v1::LogChunk Chunk() const { return LogTailChunk(request_, tail_, "node a is not connected"); }

  v1::LogTail tail_;
  v1::ReadLogRequest request_;
};

TEST_F(LogTailChunkTest, ContainsTailAndReason) {
  const v1::LogChunk chunk = Chunk();
  EXPECT_EQ(chunk.offset(), 100u);
  EXPECT_EQ(chunk.data(), "aa\nbb\ncc\ndd");
  EXPECT_EQ(chunk.lines_size(), 4);
  EXPECT_EQ(chunk.generation(), 7u);
  EXPECT_TRUE(chunk.end());
  EXPECT_EQ(chunk.notice(),
            "node a is not connected; the coordinator kept only the last 16KiB of each log");
}

TEST_F(LogTailChunkTest, NamesLostOutput) {
  tail_.set_rank(3);
  tail_.mutable_stdout_end()->set_notice("2 lines (30 bytes) could not be stored");
  EXPECT_EQ(Chunk().notice(),
            "node a is not connected; the coordinator kept only the last 16KiB of each log; "
            "rank 3, stdout: 2 lines (30 bytes) could not be stored");
  tail_.mutable_stdout_end()->clear_data();
  EXPECT_EQ(Chunk().notice(), "rank 3, stdout: 2 lines (30 bytes) could not be stored");
}

TEST_F(LogTailChunkTest, StartsAtTheOffset) {
  request_.set_offset(103);
  v1::LogChunk chunk = Chunk();
  EXPECT_EQ(chunk.offset(), 103u);
  EXPECT_EQ(chunk.data(), "bb\ncc\ndd");
  ASSERT_EQ(chunk.lines_size(), 3);
  EXPECT_EQ(chunk.lines(0).offset(), 103u);
  request_.set_offset(1000);
  chunk = Chunk();
  EXPECT_EQ(chunk.offset(), 111u);
  EXPECT_EQ(chunk.data(), "");
  EXPECT_EQ(chunk.notice(), "");
}

TEST_F(LogTailChunkTest, StartsAtTheLastLines) {
  request_.set_tail_lines(2);
  EXPECT_EQ(Chunk().data(), "cc\ndd");
  request_.set_tail_lines(9);
  EXPECT_EQ(Chunk().data(), "aa\nbb\ncc\ndd");
  tail_.mutable_stdout_end()->set_data("aa\nbb\n");
  request_.set_tail_lines(1);
  EXPECT_EQ(Chunk().data(), "bb\n");
}

TEST_F(LogTailChunkTest, StartsAtATime) {
  *request_.mutable_since() = ToProto(absl::FromUnixSeconds(3));
  EXPECT_EQ(Chunk().data(), "cc\ndd");
  request_.set_tail_lines(1);
  EXPECT_EQ(Chunk().data(), "dd");
  *request_.mutable_since() = ToProto(absl::FromUnixSeconds(9));
  EXPECT_EQ(Chunk().data(), "");
  tail_.mutable_stdout_end()->clear_lines();
  request_.clear_tail_lines();
  EXPECT_EQ(Chunk().data(), "aa\nbb\ncc\ndd");
}

TEST_F(LogTailChunkTest, StreamWithoutOutputIsEmpty) {
  request_.set_stream(v1::STDERR);
  const v1::LogChunk chunk = Chunk();
  EXPECT_EQ(chunk.data(), "");
  EXPECT_TRUE(chunk.end());
  EXPECT_EQ(chunk.notice(), "");
}

}  // namespace
}  // namespace muster::service
