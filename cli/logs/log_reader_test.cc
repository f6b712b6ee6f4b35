#include "cli/logs/log_reader.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <sstream>
#include <string>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "cli/fake_cluster.h"
#include "cli/logs/stream_reader.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

v1::LogChunk Chunk(uint64_t offset, const std::string& data, bool end = false) {
  v1::LogChunk chunk;
  chunk.set_offset(offset);
  chunk.set_data(data);
  chunk.set_end(end);
  return chunk;
}

// A fake coordinator that serves logs from memory, and the job that wrote them.
class LogReaderTest : public ::testing::Test {
 protected:
  using Key = std::pair<uint64_t, std::pair<uint32_t, v1::LogStream>>;

  LogReaderTest() {
    job_.set_job_id("a-1");
    job_.set_state(v1::SUCCEEDED);
    job_.set_generation(1);
    job_.add_ranks();
    options_.job_id = "a-1";
    cluster_.on_get = [this](const v1::GetJobRequest&, v1::Job* job) {
      absl::MutexLock lock(&mutex_);
      *job = job_;
      return grpc::Status::OK;
    };
    cluster_.on_watch = [this](const v1::WatchJobRequest&, grpc::ServerContext& context,
                               FakeCluster::Writer<v1::Job> write) {
      absl::MutexLock lock(&mutex_);
      write(job_);
      return grpc::Status::OK;
    };
    cluster_.on_log = [this](const v1::ReadLogRequest& request, grpc::ServerContext& context,
                             FakeCluster::Writer<v1::LogChunk> write) {
      absl::MutexLock lock(&mutex_);
      const auto log = logs_.find({request.generation(), {request.rank(), request.stream()}});
      if (log == logs_.end()) return grpc::Status(grpc::StatusCode::NOT_FOUND, "no such log");
      v1::LogChunk chunk = Chunk(request.offset(), log->second.substr(request.offset()), true);
      AddTimes(log->second, chunk);
      write(chunk);
      return grpc::Status::OK;
    };
  }

  // Lines of the form "TIME ..." were begun at that second; others have no known time.
  static void AddTimes(const std::string& log, v1::LogChunk& chunk) {
    for (size_t start = 0; start < log.size(); start = log.find('\n', start) + 1) {
      int64_t time = 0;
      const std::string word = log.substr(start, log.find_first_of(" \n", start) - start);
      if (start >= chunk.offset() && absl::SimpleAtoi(word, &time)) {
        v1::LineTime& line = *chunk.add_lines();
        line.set_offset(start);
        line.set_unix_micros(absl::ToUnixMicros(absl::FromUnixSeconds(time)));
      }
      if (log.find('\n', start) == std::string::npos) break;
    }
  }

  void AddRank() {
    absl::MutexLock lock(&mutex_);
    job_.add_ranks();
  }
  void SetLog(uint32_t rank, v1::LogStream stream, const std::string& text,
              uint64_t generation = 1) {
    absl::MutexLock lock(&mutex_);
    logs_[{generation, {rank, stream}}] = text;
  }

  absl::Status Print() {
    ClusterClient::Options client_options;
    client_options.address = cluster_.address();
    ClusterClient client(client_options);
    return PrintLogs(client, options_, stopper_, console_);
  }
  std::vector<std::string> Lines() const {
    std::vector<std::string> lines = absl::StrSplit(out_.str(), '\n', absl::SkipEmpty());
    return lines;
  }

  absl::Mutex mutex_;
  v1::Job job_ ABSL_GUARDED_BY(mutex_);
  std::map<Key, std::string> logs_ ABSL_GUARDED_BY(mutex_);
  FakeCluster cluster_;
  LogOptions options_;
  Stopper stopper_;
  std::ostringstream out_, err_;
  Console console_{out_, err_, {}};
};

TEST_F(LogReaderTest, PrintsOneRankUnmodified) {
  SetLog(0, v1::STDOUT, "10%\r20%\r\ntwo");
  SetLog(0, v1::STDERR, "");
  cluster_.Start();
  EXPECT_TRUE(Print().ok());
  EXPECT_EQ(out_.str(), "10%\r20%\r\ntwo");
}

TEST_F(LogReaderTest, PrintsOneRefusalForAllStreams) {
  AddRank();
  cluster_.on_log = [](const v1::ReadLogRequest&, grpc::ServerContext&, auto) {
    return grpc::Status(grpc::StatusCode::PERMISSION_DENIED, "job a-1 belongs to alice");
  };
  cluster_.Start();
  EXPECT_EQ(Print(), absl::PermissionDeniedError("job a-1 belongs to alice"));
  EXPECT_EQ(err_.str(), "");
}

TEST_F(LogReaderTest, EarlierGenerationMayHaveHadFewerRanks) {
  {
    absl::MutexLock lock(&mutex_);
    job_.set_generation(2);
    v1::Resources& resources = *job_.mutable_spec()->mutable_resources();
    resources.mutable_nodes()->set_max(2);
    resources.set_ranks_per_node(1);
  }
  SetLog(0, v1::STDOUT, "one\n");
  SetLog(0, v1::STDERR, "");
  cluster_.on_log = [serve = cluster_.on_log](const v1::ReadLogRequest& request,
                                              grpc::ServerContext& context,
                                              FakeCluster::Writer<v1::LogChunk> write) {
    if (request.rank() == 1) return grpc::Status(grpc::StatusCode::OUT_OF_RANGE, "out of range");
    return serve(request, context, std::move(write));
  };
  cluster_.Start();
  options_.generation = 1;
  EXPECT_TRUE(Print().ok());
  EXPECT_EQ(out_.str(), "0| one\n");
  options_.ranks = {1};
  EXPECT_EQ(Print().code(), absl::StatusCode::kOutOfRange);
}

TEST_F(LogReaderTest, UnfinishedLineEndsBeforeAnotherLog) {
  SetLog(0, v1::STDOUT, "one\ntwo");
  SetLog(0, v1::STDERR, "err\n");
  cluster_.Start();
  EXPECT_TRUE(Print().ok());
  EXPECT_EQ(out_.str(), "one\ntwo\nerr\n");
}

TEST_F(LogReaderTest, PrefixesLinesOfSeveralRanks) {
  {
    absl::MutexLock lock(&mutex_);
    job_.add_ranks();
    job_.add_ranks();
  }
  for (uint32_t rank = 0; rank < 3; ++rank) {
    SetLog(rank, v1::STDOUT, absl::StrCat("out", rank));
    SetLog(rank, v1::STDERR, absl::StrCat("err", rank, "\n"));
  }
  cluster_.Start();
  options_.ranks = {0, 2};
  ASSERT_TRUE(Print().ok());
  EXPECT_THAT(Lines(), ElementsAre("0| out0", "0| err0", "2| out2", "2| err2"));
  out_.str("");
  options_.ranks = {};
  options_.follow = true;
  ASSERT_TRUE(Print().ok());
  EXPECT_THAT(Lines(), UnorderedElementsAre("0| out0", "0| err0", "1| out1", "1| err1", "2| out2",
                                            "2| err2"));
  options_.ranks = {3};
  EXPECT_EQ(Print().message(), "rank 3: a-1 has ranks 0 to 2");
}

TEST_F(LogReaderTest, RejectsUnknownLogOrGeneration) {
  cluster_.Start();
  EXPECT_EQ(Print().code(), absl::StatusCode::kNotFound);
  options_.generation = 2;
  EXPECT_EQ(Print().message(), "generation 2: a-1's newest generation is 1");
}

TEST_F(LogReaderTest, PrintsNothingForAJobThatHasNotStarted) {
  {
    absl::MutexLock lock(&mutex_);
    job_.set_generation(0);
    job_.set_state(v1::QUEUED);
  }
  cluster_.Start();
  EXPECT_TRUE(Print().ok());
  EXPECT_EQ(out_.str(), "");
  EXPECT_THAT(err_.str(), HasSubstr("has not started; its state is QUEUED"));
}

TEST_F(LogReaderTest, RequestsTheTailOnceAndThenTheOffset) {
  std::vector<v1::ReadLogRequest> requests;
  cluster_.on_log = [&](const v1::ReadLogRequest& request, grpc::ServerContext&, auto write) {
    if (request.stream() == v1::STDERR) {
      write(Chunk(0, "", true));
      return grpc::Status::OK;
    }
    requests.push_back(request);
    if (requests.size() == 1) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "node away");
    if (requests.size() == 2) {
      write(Chunk(100, "tail\n"));
      return grpc::Status(grpc::StatusCode::UNAVAILABLE, "node away");
    }
    // Overlaps the data sent before, which must not be printed twice.
    write(Chunk(103, "l\nmore\n", true));
    return grpc::Status::OK;
  };
  cluster_.Start();
  options_.tail_lines = 5;
  EXPECT_TRUE(Print().ok());
  EXPECT_EQ(out_.str(), "tail\nmore\n");
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(requests[1].tail_lines(), 5u);
  EXPECT_EQ(requests[2].tail_lines(), 0u);
  EXPECT_EQ(requests[2].offset(), 105u);
}

// The coordinator dies while a log is followed: each byte is printed once, in order.
TEST_F(LogReaderTest, FollowsThroughCoordinatorRestart) {
  {
    absl::MutexLock lock(&mutex_);
    job_.set_state(v1::RUNNING);
  }
  const std::string text = "line 1\nline 2\nline 3\nline 4\n";
  absl::Notification half;
  cluster_.on_log = [&](const v1::ReadLogRequest& request, grpc::ServerContext& context,
                        auto write) {
    if (request.stream() == v1::STDERR) {
      write(Chunk(0, "", true));
      return grpc::Status::OK;
    }
    if (!half.HasBeenNotified()) {
      write(Chunk(0, text.substr(0, 10)));  // in the middle of a line
      half.Notify();
      FakeCluster::WaitUntilCancelled(context);
      return grpc::Status::OK;
    }
    write(Chunk(request.offset(), text.substr(request.offset()), true));
    absl::MutexLock lock(&mutex_);
    job_.set_state(v1::SUCCEEDED);
    return grpc::Status::OK;
  };
  cluster_.Start();
  std::thread restart([&] {
    half.WaitForNotification();
    cluster_.Stop();
    cluster_.Start();
  });
  options_.follow = true;
  const absl::Status status = Print();
  restart.join();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(out_.str(), text);
}

// Follows a job that is restarted once.
class LogReaderRestartTest : public LogReaderTest {
 protected:
  void Follow() {
    SetLog(0, v1::STDOUT, "first\n", 1);
    SetLog(0, v1::STDERR, "", 1);
    SetLog(0, v1::STDOUT, "second\n", 2);
    SetLog(0, v1::STDERR, "", 2);
    {
      absl::MutexLock lock(&mutex_);
      job_.set_state(v1::RUNNING);
    }
    cluster_.on_watch = [this](const v1::WatchJobRequest&, grpc::ServerContext&, auto write) {
      absl::MutexLock lock(&mutex_);
      if (++watches_ == 2) job_.set_generation(2);
      if (watches_ == 3) job_.set_state(v1::FAILED);
      write(job_);
      return grpc::Status::OK;
    };
    cluster_.Start();
    options_.follow = true;
    EXPECT_TRUE(Print().ok());
    EXPECT_EQ(out_.str(), "first\nsecond\n");
  }

  int watches_ = 0;
};

TEST_F(LogReaderRestartTest, FollowsAcrossGenerations) {
  Follow();
  EXPECT_THAT(err_.str(), HasSubstr("generation 2\n"));
}

TEST_F(LogReaderRestartTest, PrintsLinesOnly) {
  options_.lines_only = true;
  Follow();
  EXPECT_EQ(err_.str(), "");
}

// A rank that has not been started yet has no log; following waits for it.
TEST_F(LogReaderTest, FollowingWaitsForALogToAppear) {
  {
    absl::MutexLock lock(&mutex_);
    job_.set_state(v1::STARTING);
  }
  SetLog(0, v1::STDERR, "");
  int asked = 0;
  const auto serve = cluster_.on_log;
  cluster_.on_log = [&, serve](const v1::ReadLogRequest& request, grpc::ServerContext& context,
                               FakeCluster::Writer<v1::LogChunk> write) {
    if (request.stream() == v1::STDOUT && ++asked == 3) {
      SetLog(0, v1::STDOUT, "late\n");
      absl::MutexLock lock(&mutex_);
      job_.set_state(v1::SUCCEEDED);
    }
    return serve(request, context, write);
  };
  cluster_.Start();
  options_.follow = true;
  EXPECT_TRUE(Print().ok());
  EXPECT_EQ(out_.str(), "late\n");
}

TEST_F(LogReaderTest, GivesUpOnALostNodesLogOnceTheJobHasFinished) {
  cluster_.on_log = [](const v1::ReadLogRequest& request, grpc::ServerContext&, auto write) {
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "node-1 is away");
  };
  cluster_.Start();
  options_.follow = true;
  options_.patience = absl::Milliseconds(100);
  const absl::Status status = Print();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("node-1 is away"));
}

TEST_F(LogReaderTest, StopperEndsFollowing) {
  {
    absl::MutexLock lock(&mutex_);
    job_.set_state(v1::RUNNING);
  }
  cluster_.on_log = [this](const v1::ReadLogRequest&, grpc::ServerContext& context, auto write) {
    write(Chunk(0, "x\n"));
    stopper_.Stop();
    FakeCluster::WaitUntilCancelled(context);
    return grpc::Status::OK;
  };
  cluster_.Start();
  options_.follow = true;
  EXPECT_EQ(Print().code(), absl::StatusCode::kCancelled);
}

TEST_F(LogReaderTest, MergesRanksAndStreamsByTime) {
  AddRank();
  SetLog(0, v1::STDOUT, "1 a\n4 d\n");
  SetLog(0, v1::STDERR, "2 b\n5 e\n");
  SetLog(1, v1::STDOUT, "2 c\n6 f");
  SetLog(1, v1::STDERR, "0 z\n");
  cluster_.Start();
  EXPECT_TRUE(Print().ok());
  const auto merged =
      ElementsAre("1| 0 z", "0| 1 a", "0| 2 b", "1| 2 c", "0| 4 d", "0| 5 e", "1| 6 f");
  EXPECT_THAT(Lines(), merged);
  out_.str("");
  options_.follow = true;
  EXPECT_TRUE(Print().ok());
  EXPECT_THAT(Lines(), merged);
  out_.str("");
  options_.follow = false;
  options_.stream = "stderr";
  options_.style.timestamps = true;
  EXPECT_TRUE(Print().ok());
  EXPECT_THAT(Lines(),
              ElementsAre("1970-01-01T00:00:00.000Z 1| 0 z", "1970-01-01T00:00:02.000Z 0| 2 b",
                          "1970-01-01T00:00:05.000Z 0| 5 e"));
}

TEST_F(LogReaderTest, LinesWithoutATimeAreMarked) {
  SetLog(0, v1::STDOUT, "1 timed\nx\n");
  SetLog(0, v1::STDERR, "");
  cluster_.Start();
  options_.style.timestamps = true;
  EXPECT_TRUE(Print().ok());
  EXPECT_THAT(Lines(), ElementsAre("1970-01-01T00:00:01.000Z 1 timed", "- x"));
  out_.str("");
  options_.style = {.form = LogForm::kJson};
  EXPECT_TRUE(Print().ok());
  EXPECT_THAT(Lines(), ElementsAre(HasSubstr("\"time\":\"1970-01-01T00:00:01.000Z\""),
                                   Not(HasSubstr("time\":"))));
}

TEST_F(LogReaderTest, TailCountsAllRanksAndStreams) {
  AddRank();
  SetLog(0, v1::STDOUT, "1 a\n3 c\n9 i\n");
  SetLog(0, v1::STDERR, "2 b\n");
  SetLog(1, v1::STDOUT, "4 d\n5 e\n");
  SetLog(1, v1::STDERR, "6 f\n7 g\n");
  cluster_.Start();
  options_.tail_lines = 3;
  EXPECT_TRUE(Print().ok());
  EXPECT_THAT(Lines(), ElementsAre("1| 6 f", "1| 7 g", "0| 9 i"));
  out_.str("");
  options_.follow = true;
  EXPECT_TRUE(Print().ok());
  EXPECT_THAT(Lines(), ElementsAre("1| 6 f", "1| 7 g", "0| 9 i"));
  out_.str("");
  options_.follow = false;
  options_.tail_lines = 0;
  options_.tail_per_rank = 2;
  EXPECT_TRUE(Print().ok());
  EXPECT_THAT(Lines(), ElementsAre("0| 3 c", "1| 6 f", "1| 7 g", "0| 9 i"));
}

// With more ranks than logs that can be open at the same time.
TEST_F(LogReaderTest, MergesGroupsOfRanks) {
  constexpr uint32_t kRanks = 257;
  for (uint32_t rank = 1; rank < kRanks; ++rank) AddRank();
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    SetLog(rank, v1::STDOUT, absl::StrCat(1000 - rank, "\n"));
    SetLog(rank, v1::STDERR, "");
  }
  cluster_.Start();
  EXPECT_TRUE(Print().ok());
  std::vector<std::string> lines = Lines();
  ASSERT_EQ(lines.size(), kRanks);
  EXPECT_EQ(lines.front(), "255| 745");
  EXPECT_EQ(lines[255], "0| 1000");
  EXPECT_EQ(lines.back(), "256| 744");
  EXPECT_THAT(err_.str(), HasSubstr("in groups of 256 ranks"));
  out_.str("");
  options_.tail_lines = 2;
  EXPECT_TRUE(Print().ok());
  EXPECT_THAT(Lines(), ElementsAre("1| 999", "0| 1000"));
}

// Each log is larger than what gRPC buffers, so a call stays open until it is read or closed.
TEST_F(LogReaderTest, BoundsOpenCalls) {
  constexpr uint32_t kRanks = 100;
  constexpr size_t kLineBytes = 64 << 10;
  constexpr uint64_t kLines = 4;
  for (uint32_t rank = 1; rank < kRanks; ++rank) AddRank();
  std::atomic<int> open = 0, most_open = 0;
  cluster_.on_log = [&](const v1::ReadLogRequest& request, grpc::ServerContext&, auto write) {
    most_open = std::max<int>(most_open, ++open);
    bool wanted = true;
    for (uint64_t i = request.offset() / kLineBytes; i < kLines && wanted; ++i) {
      // The lines of all logs are interleaved.
      const uint64_t second = 1 + (i * kRanks + request.rank()) * 2 + request.stream();
      std::string line = absl::StrCat(second, " ");
      line.resize(kLineBytes - 1, '.');
      v1::LogChunk chunk = Chunk(i * kLineBytes, line + "\n", i + 1 == kLines);
      v1::LineTime& time = *chunk.add_lines();
      time.set_offset(chunk.offset());
      time.set_unix_micros(absl::ToUnixMicros(absl::FromUnixSeconds(second)));
      wanted = write(chunk);
    }
    --open;
    return grpc::Status::OK;
  };
  cluster_.Start();
  ASSERT_TRUE(Print().ok());
  std::vector<std::string> lines = Lines();
  ASSERT_EQ(lines.size(), 2 * kRanks * kLines);
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_THAT(lines[i].substr(0, 20), HasSubstr(absl::StrCat("| ", i + 2, " ")));
  }
  // Closed calls may still be counted for a moment.
  EXPECT_LE(most_open, static_cast<int>(2 * OpenCalls::kMax));
}

TEST_F(LogReaderTest, RefusesToFollowTooManyRanks) {
  for (uint32_t rank = 1; rank < 257; ++rank) AddRank();
  cluster_.Start();
  options_.follow = true;
  EXPECT_EQ(Print().message(),
            "cannot follow 257 ranks at once (limit: 256); select ranks with --rank");
}

// The coordinator keeps the end of the log; it is requested when the log itself cannot be read.
TEST_F(LogReaderTest, PrintsTheKeptEndOfALostLog) {
  AddRank();
  absl::StatusCode code = absl::StatusCode::kNotFound;
  cluster_.on_log = [&](const v1::ReadLogRequest& request, grpc::ServerContext&, auto write) {
    if (!request.accept_tail()) return grpc::Status(static_cast<grpc::StatusCode>(code), "lost");
    if (request.stream() == v1::STDERR) return grpc::Status(grpc::StatusCode::NOT_FOUND, "lost");
    v1::LogChunk chunk = Chunk(1000, "the end\n", true);
    chunk.set_notice("node a is gone; only the end was kept");
    write(chunk);
    return grpc::Status::OK;
  };
  cluster_.Start();
  options_.stream = "stdout";
  options_.patience = absl::Milliseconds(100);
  EXPECT_TRUE(Print().ok());
  EXPECT_THAT(Lines(), ElementsAre("0| the end", "1| the end"));
  EXPECT_EQ(err_.str(), "node a is gone; only the end was kept\n");
  out_.str("");
  err_.str("");
  code = absl::StatusCode::kUnavailable;
  EXPECT_TRUE(Print().ok());
  EXPECT_THAT(Lines(), ElementsAre("0| the end", "1| the end"));
  EXPECT_THAT(err_.str(), HasSubstr("retrying"));
  out_.str("");
  options_.follow = true;
  EXPECT_TRUE(Print().ok());
  EXPECT_THAT(Lines(), UnorderedElementsAre("0| the end", "1| the end"));
  options_.follow = false;
  options_.stream = "stderr";
  EXPECT_EQ(Print().message(), "rank 0, stderr: lost");
}

TEST_F(LogReaderTest, RequestsLinesSinceATime) {
  std::vector<v1::ReadLogRequest> requests;
  cluster_.on_log = [&](const v1::ReadLogRequest& request, grpc::ServerContext&, auto write) {
    if (request.stream() == v1::STDERR) {
      write(Chunk(0, "", true));
      return grpc::Status::OK;
    }
    requests.push_back(request);
    if (requests.size() == 1) {
      write(Chunk(100, "new\n"));
      return grpc::Status(grpc::StatusCode::UNAVAILABLE, "node away");
    }
    write(Chunk(104, "more\n", true));
    return grpc::Status::OK;
  };
  cluster_.Start();
  options_.since = absl::FromUnixSeconds(50);
  EXPECT_TRUE(Print().ok());
  EXPECT_EQ(out_.str(), "new\nmore\n");
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].since().seconds(), 50);
  EXPECT_EQ(requests[1].since().seconds(), 50);
  EXPECT_EQ(requests[1].offset(), 104u);
}

TEST_F(LogReaderTest, SelectsRanksOfANodeAndPrintsNames) {
  {
    absl::MutexLock lock(&mutex_);
    job_.clear_ranks();
    for (const char* node : {"a", "b"}) job_.add_ranks()->set_node(node);
  }
  SetLog(1, v1::STDOUT, "of b\n");
  SetLog(1, v1::STDERR, "");
  cluster_.Start();
  options_.node = "b";
  options_.wide = true;
  EXPECT_TRUE(Print().ok());
  EXPECT_THAT(Lines(), ElementsAre("1 b stdout| of b"));
  options_.node = "c";
  EXPECT_THAT(std::string(Print().message()),
              HasSubstr("has no ranks on this node; its nodes are a, b"));
  out_.str("");
  options_.node = "";
  options_.names_only = true;
  EXPECT_TRUE(Print().ok());
  EXPECT_THAT(Lines(),
              ElementsAre("generation-1/rank-0000.stdout", "generation-1/rank-0000.stderr",
                          "generation-1/rank-0001.stdout", "generation-1/rank-0001.stderr"));
}

TEST_F(LogReaderTest, JoinedOutputHasNoStderrLog) {
  {
    absl::MutexLock lock(&mutex_);
    job_.mutable_spec()->set_output("joined");
  }
  cluster_.Start();
  options_.stream = "stderr";
  EXPECT_EQ(Print(), absl::InvalidArgumentError(
                         "--stream stderr: the stdout and stderr of a-1 are joined in one log; "
                         "omit --stream, or set output: separate in the job's spec"));
  options_.stream = "";
  options_.names_only = true;
  EXPECT_TRUE(Print().ok());
  EXPECT_THAT(Lines(), ElementsAre("generation-1/rank-0000.stdout"));
}

// An array whose tasks 0 and 1 have finished, and whose task 2 has not started.
class ArrayLogsTest : public ::testing::Test {
 protected:
  ArrayLogsTest() {
    for (uint32_t i = 0; i < 3; ++i) {
      v1::Job& task = *array_.add_tasks();
      task.set_job_id(absl::StrCat("sweep-", i));
      task.set_array_index(i);
      task.set_generation(i < 2 ? 1 : 0);
      task.set_state(i < 2 ? v1::SUCCEEDED : v1::QUEUED);
      if (i < 2) task.add_ranks();
    }
    cluster_.on_get = [this](const v1::GetJobRequest& request, v1::Job* job) {
      *job = Task(request.job_id());
      return grpc::Status::OK;
    };
    cluster_.on_watch = [this](const v1::WatchJobRequest& request, grpc::ServerContext&,
                               const FakeCluster::Writer<v1::Job>& write) {
      write(Task(request.job_id()));
      return grpc::Status::OK;
    };
    cluster_.on_log = [](const v1::ReadLogRequest& request, grpc::ServerContext&,
                         const FakeCluster::Writer<v1::LogChunk>& write) {
      v1::LogChunk chunk;
      if (request.stream() == v1::STDOUT)
        chunk.set_data(absl::StrCat("of ", request.job_id(), "\n"));
      chunk.set_end(true);
      write(chunk);
      return grpc::Status::OK;
    };
    cluster_.Start();
  }

  const v1::Job& Task(const std::string& id) const { return array_.tasks(id.back() - '0'); }

  absl::Status Print(const LogOptions& options) {
    ClusterClient::Options client_options;
    client_options.address = cluster_.address();
    ClusterClient client(client_options);
    Console console(out_, err_, {});
    Stopper stopper;
    return PrintArrayLogs(client, array_, options, stopper, console);
  }

  v1::GetArrayResponse array_;
  FakeCluster cluster_;
  std::ostringstream out_, err_;
};

TEST_F(ArrayLogsTest, PrefixesLinesWithTheTask) {
  EXPECT_EQ(Print({}), absl::OkStatus());
  EXPECT_EQ(out_.str(), "0| of sweep-0\n1| of sweep-1\n");
}

TEST_F(ArrayLogsTest, NamesTheTaskInObjects) {
  LogOptions options;
  options.style.form = LogForm::kJson;
  EXPECT_EQ(Print(options), absl::OkStatus());
  EXPECT_THAT(out_.str(), HasSubstr("\"task\":1"));
}

TEST_F(ArrayLogsTest, FollowsTasksTogether) {
  array_.mutable_tasks()->RemoveLast();
  LogOptions options;
  options.follow = true;
  EXPECT_EQ(Print(options), absl::OkStatus());
  EXPECT_THAT(out_.str(), HasSubstr("0| of sweep-0\n"));
  EXPECT_THAT(out_.str(), HasSubstr("1| of sweep-1\n"));
}

TEST_F(ArrayLogsTest, RejectsTooManyTasksToFollow) {
  while (array_.tasks_size() <= kFollowedTasks) array_.add_tasks();
  LogOptions options;
  options.follow = true;
  EXPECT_THAT(std::string(Print(options).message()), HasSubstr("cannot follow 65 tasks at once"));
}

}  // namespace

}  // namespace muster::cli
