#include "worker/agent/logs/log_file_reader.h"

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/limits.h"
#include "gtest/gtest.h"
#include "worker/shim/log/log_file.h"
#include "worker/shim/log/lost_output.h"

namespace muster::agent {
namespace {

// An index of 1000 lines of 10 bytes; line i was begun at time 100 + i.
class LineTimesReaderTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kLines = 1000;

  LineTimesReaderTest() : path_(::testing::TempDir() + "log_file_reader_test.times") {
    std::remove(path_.c_str());
  }
  void WriteIndex() {
    shim::LineTimesWriter writer;
    ASSERT_TRUE(writer.Open(path_));
    for (uint64_t i = 0; i < kLines; ++i) writer.Add({10 * i, static_cast<int64_t>(100 + i)});
  }
  // The time of the only line; 0 if it is not known.
  static int64_t TimeOf(LineTimesReader& reader, uint64_t offset) {
    const auto lines = reader.TimesOf({offset});
    return lines.empty() ? 0 : lines.front().unix_micros;
  }

  const std::string path_;
};

TEST_F(LineTimesReaderTest, FindsTimesInAnyOrder) {
  WriteIndex();
  LineTimesReader reader(path_);
  for (const uint64_t line : {0, 1, 255, 256, 257, 600, 999, 30, 999, 0}) {
    EXPECT_EQ(TimeOf(reader, 10 * line), static_cast<int64_t>(100 + line)) << line;
  }
  EXPECT_EQ(TimeOf(reader, 1'000'000), 1099);
  std::vector<uint64_t> all;
  for (uint64_t i = 0; i < kLines; ++i) all.push_back(10 * i);
  const auto lines = reader.TimesOf(all);
  ASSERT_EQ(lines.size(), kLines);
  for (uint64_t i = 0; i < kLines; ++i) {
    EXPECT_EQ(lines[i].offset, 10 * i);
    EXPECT_EQ(lines[i].unix_micros, static_cast<int64_t>(100 + i));
  }
}

TEST_F(LineTimesReaderTest, SeeksByTime) {
  WriteIndex();
  LineTimesReader reader(path_);
  EXPECT_EQ(reader.OffsetSince(0), 0u);
  EXPECT_EQ(reader.OffsetSince(100), 0u);
  EXPECT_EQ(reader.OffsetSince(500), 4000u);
  EXPECT_EQ(reader.OffsetSince(1099), 9990u);
  EXPECT_EQ(reader.OffsetSince(1100), std::nullopt);
}

TEST_F(LineTimesReaderTest, IgnoresTruncatedRecord) {
  WriteIndex();
  ASSERT_EQ(truncate(path_.c_str(), 2 * shim::kLineTimeBytes + 5), 0);
  LineTimesReader reader(path_);
  EXPECT_EQ(TimeOf(reader, 5000), 101);
  EXPECT_EQ(reader.OffsetSince(102), std::nullopt);
}

TEST_F(LineTimesReaderTest, LinesBeforeTheFirstRecordHaveNoTime) {
  shim::LineTimesWriter writer;
  ASSERT_TRUE(writer.Open(path_));
  writer.Add({100, 7});
  LineTimesReader reader(path_);
  EXPECT_EQ(TimeOf(reader, 99), 0);
  const auto lines = reader.TimesOf({0, 100});
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines.front().offset, 100u);
}

// A piece of output that was lost (disk full) leaves two records at one offset.
TEST_F(LineTimesReaderTest, LastRecordAtAnOffsetCounts) {
  shim::LineTimesWriter writer;
  ASSERT_TRUE(writer.Open(path_));
  writer.Add({0, 1});
  writer.Add({0, 2});
  LineTimesReader reader(path_);
  EXPECT_EQ(TimeOf(reader, 0), 2);
}

TEST_F(LineTimesReaderTest, FindsAnIndexThatAppearsLater) {
  LineTimesReader reader(path_);
  EXPECT_TRUE(reader.empty());
  EXPECT_EQ(TimeOf(reader, 0), 0);
  EXPECT_EQ(reader.OffsetSince(0), std::nullopt);
  WriteIndex();
  EXPECT_FALSE(reader.empty());
  EXPECT_EQ(TimeOf(reader, 10), 101);
}

class LogFileReaderTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& contents) {
    const std::string path = ::testing::TempDir() + "log_file_reader_test.log";
    std::ofstream(path, std::ios::trunc) << contents;
    return path;
  }
  std::string Tail(const std::string& contents, uint64_t lines) {
    auto reader = LogFileReader::Open(Write(contents), false);
    if (!reader.ok() || !(*reader)->SeekTail(lines).ok()) return "<error>";
    return Next(**reader, 1 << 20);
  }
  static std::string Next(LogFileReader& reader, size_t max_bytes) {
    const absl::StatusOr<LogPiece> piece = reader.Read(max_bytes);
    return piece.ok() ? piece->data : "<error>";
  }
};

TEST_F(LogFileReaderTest, ContinuesFromItsOffset) {
  const std::string path = Write("0123456789");
  auto reader = LogFileReader::Open(path, false);
  ASSERT_TRUE(reader.ok()) << reader.status();
  (*reader)->Seek(3);
  EXPECT_EQ(Next(**reader, 4), "3456");
  EXPECT_EQ((*reader)->offset(), 7u);
  EXPECT_EQ(Next(**reader, 100), "789");
  EXPECT_EQ(Next(**reader, 100), "");
  std::ofstream(path, std::ios::app) << "more";
  EXPECT_EQ(Next(**reader, 100), "more");
  (*reader)->Seek(1000);
  EXPECT_EQ(Next(**reader, 100), "");
}

TEST_F(LogFileReaderTest, HandlesMissingFile) {
  const std::string path = ::testing::TempDir() + "log_file_reader_test.none";
  std::remove(path.c_str());
  EXPECT_TRUE(absl::IsNotFound(LogFileReader::Open(path, false).status()));
  auto reader = LogFileReader::Open(path, true);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(Next(**reader, 10), "");
  std::remove(path.c_str());
}

TEST_F(LogFileReaderTest, SeeksToLastLines) {
  EXPECT_EQ(Tail("a\nb\nc\n", 1), "c\n");
  EXPECT_EQ(Tail("a\nb\nc\n", 2), "b\nc\n");
  EXPECT_EQ(Tail("a\nb\nc\n", 3), "a\nb\nc\n");
  EXPECT_EQ(Tail("a\nb\nc\n", 30), "a\nb\nc\n");
  EXPECT_EQ(Tail("a\nb\nunfinished", 1), "unfinished");
  EXPECT_EQ(Tail("\n\n\n", 2), "\n\n");
  EXPECT_EQ(Tail("", 2), "");
  EXPECT_EQ(Tail("a\n", 0), "");
}

// A log with its index; each pair is a piece of output and the time at which it arrived.
class TimedLogTest : public ::testing::Test {
 protected:
  TimedLogTest() : path_(::testing::TempDir() + "log_file_reader_timed_test.log") {
    std::remove(path_.c_str());
    std::remove((path_ + ".times").c_str());
    EXPECT_TRUE(log_.Open(path_));
    reader_ = *LogFileReader::Open(path_, false);
  }
  std::string Since(int64_t time) {
    reader_->Seek(0);
    EXPECT_TRUE(reader_->SeekSince(time).ok());
    return reader_->Read(1 << 20)->data;
  }
  // "OFFSET@TIME" of the lines of the next piece.
  std::string Lines(size_t max_bytes = 1 << 20) {
    const absl::StatusOr<LogPiece> piece = reader_->Read(max_bytes);
    if (!piece.ok()) return "<error>";
    std::string text;
    for (const shim::LineTime& line : piece->lines) {
      absl::StrAppend(&text, text.empty() ? "" : " ", line.offset, "@", line.unix_micros);
    }
    return text;
  }

  const std::string path_;
  shim::LogFile log_;
  std::unique_ptr<LogFileReader> reader_;
};

TEST_F(TimedLogTest, ReturnsTimesOfLinesThatStartInAPiece) {
  log_.Append("one\ntwo\nthr", 10);
  log_.Append("ee\n", 20);
  log_.Append("four\n", 30);
  EXPECT_EQ(Lines(6), "0@10 4@10");
  EXPECT_EQ(Lines(2), "");  // ends with the newline of "two"
  EXPECT_EQ(Lines(6), "8@10");
  EXPECT_EQ(Lines(), "14@30");
  log_.Append("fi", 40);
  EXPECT_EQ(Lines(), "19@40");
  log_.Append("ve\nsix\n", 50);
  EXPECT_EQ(Lines(), "24@50");
  reader_->Seek(5);
  EXPECT_EQ(Lines(), "8@10 14@30 19@40 24@50");
}

TEST_F(TimedLogTest, SeeksByTime) {
  log_.Append("one\nunfin", 10);
  log_.Append("ished\nthree\n", 20);
  log_.Append("four\n", 30);
  EXPECT_EQ(Since(0), "one\nunfinished\nthree\nfour\n");
  EXPECT_EQ(Since(11), "three\nfour\n");
  EXPECT_EQ(Since(20), "three\nfour\n");
  EXPECT_EQ(Since(21), "four\n");
  EXPECT_EQ(Since(31), "");
}

TEST_F(TimedLogTest, FollowsFromATimeInTheFuture) {
  log_.Append("old\nunfinished", 10);
  EXPECT_EQ(Since(20), "");
  log_.Append(" and still", 25);
  EXPECT_EQ(reader_->Read(100)->data, "");
  log_.Append(" old\nnew", 30);
  EXPECT_EQ(reader_->Read(100)->data, "new");
  log_.Append(" line\n", 40);
  EXPECT_EQ(reader_->Read(100)->data, " line\n");
}

// A log of which the beginning was dropped: line i has kLineBytes bytes and the time i.
class DroppedLogTest : public TimedLogTest {
 protected:
  static constexpr size_t kLineBytes = 1000;
  static constexpr uint64_t kLines = 5000;

  DroppedLogTest() {
    EXPECT_TRUE(limited_.Open(path_, shim::LogFile::kMinLimitBytes));
    Append(0, kLines);
  }
  void Append(uint64_t first, uint64_t last) {
    for (uint64_t i = first; i < last; ++i) limited_.Append(Line(i), static_cast<int64_t>(i));
  }
  static std::string Line(uint64_t i) {
    std::string line = absl::StrCat(i, ".");
    line.resize(kLineBytes - 1, '.');
    return line + "\n";
  }

  shim::LogFile limited_;
};

TEST_F(DroppedLogTest, ContinuesAtTheOldestKeptLine) {
  const absl::StatusOr<LogPiece> piece = reader_->Read(2 * kLineBytes);
  ASSERT_TRUE(piece.ok()) << piece.status();
  const uint64_t first = piece->offset / kLineBytes;
  EXPECT_GT(first, 2000u);
  EXPECT_LT(first, kLines);
  EXPECT_EQ(piece->offset % kLineBytes, 0u);
  EXPECT_EQ(piece->dropped_bytes, piece->offset);
  EXPECT_EQ(piece->data, Line(first) + Line(first + 1));
  ASSERT_EQ(piece->lines.size(), 2u);
  EXPECT_EQ(piece->lines[0].unix_micros, static_cast<int64_t>(first));
  const absl::StatusOr<LogPiece> next = reader_->Read(kLineBytes);
  EXPECT_EQ(next->data, Line(first + 2));
  EXPECT_EQ(next->dropped_bytes, 0u);
}

TEST_F(DroppedLogTest, SkipsWhatIsDroppedWhileItIsRead) {
  reader_->Seek((kLines - 1) * kLineBytes);
  EXPECT_EQ(reader_->Read(kLineBytes)->data, Line(kLines - 1));
  Append(kLines, 3 * kLines);
  const absl::StatusOr<LogPiece> piece = reader_->Read(kLineBytes);
  EXPECT_GT(piece->offset, kLines * kLineBytes);
  EXPECT_EQ(piece->dropped_bytes, piece->offset);
  EXPECT_EQ(piece->data, Line(piece->offset / kLineBytes));
}

TEST_F(DroppedLogTest, SeeksWithinTheKeptPart) {
  ASSERT_TRUE(reader_->SeekTail(3).ok());
  EXPECT_EQ(reader_->Read(1 << 20)->data, Line(kLines - 3) + Line(kLines - 2) + Line(kLines - 1));
  ASSERT_TRUE(reader_->SeekTail(2 * kLines).ok());
  EXPECT_GT(reader_->Read(kLineBytes)->dropped_bytes, 0u);
  EXPECT_EQ(Since(kLines - 1), Line(kLines - 1));
}

// A log that an older shim wrote has no index.
TEST_F(LogFileReaderTest, ReadsALogWithoutIndex) {
  auto reader = LogFileReader::Open(Write("a\nb\n"), false);
  ASSERT_TRUE(reader.ok());
  EXPECT_TRUE((*reader)->SeekSince(absl::ToUnixMicros(absl::Now())).ok());
  const absl::StatusOr<LogPiece> piece = (*reader)->Read(100);
  ASSERT_TRUE(piece.ok());
  EXPECT_EQ(piece->data, "a\nb\n");
  EXPECT_TRUE(piece->lines.empty());
}

TEST_F(LogFileReaderTest, SeeksToLinesLongerThanABlock) {
  const std::string line = std::string(100'000, 'x') + "\n";
  EXPECT_EQ(Tail(line + line + line, 2), line + line);
}

class LogTailTest : public ::testing::Test {
 protected:
  LogTailTest() : path_(::testing::TempDir() + "log_tail_test.log") {
    std::remove(path_.c_str());
    std::remove((path_ + ".times").c_str());
    EXPECT_TRUE(log_.Open(path_));
  }

  const std::string path_;
  shim::LogFile log_;
};

TEST_F(LogTailTest, SmallLogIsWhole) {
  log_.Append("one\n", 10);
  log_.Append("two", 20);
  const auto tail = ReadLogTail(path_);
  ASSERT_TRUE(tail.has_value());
  EXPECT_EQ(tail->offset(), 0u);
  EXPECT_EQ(tail->data(), "one\ntwo");
  EXPECT_TRUE(tail->end());
  ASSERT_EQ(tail->lines_size(), 2);
  EXPECT_EQ(tail->lines(1).offset(), 4u);
  EXPECT_EQ(tail->lines(1).unix_micros(), 20);
}

TEST_F(LogTailTest, LargeLogIsCutAtALine) {
  for (int i = 0; i < 10'000; ++i) log_.Append("1234567\n9\n", 10 + i);
  const auto tail = ReadLogTail(path_);
  ASSERT_TRUE(tail.has_value());
  EXPECT_LE(tail->data().size(), limits::kLogTailBytes);
  EXPECT_GT(tail->data().size(), limits::kLogTailBytes - 10);
  EXPECT_EQ(tail->offset() + tail->data().size(), 100'000u);
  EXPECT_EQ(tail->offset() % 10, tail->data()[0] == '1' ? 0u : 8u);
  EXPECT_EQ(tail->lines_size(), static_cast<int>(limits::kLogTailLines));
  EXPECT_EQ(tail->lines().rbegin()->offset(), 99'998u);
}

TEST_F(LogTailTest, LongLineIsCut) {
  log_.Append(std::string(100'000, 'x') + "\n", 10);
  const auto tail = ReadLogTail(path_);
  ASSERT_TRUE(tail.has_value());
  EXPECT_EQ(tail->data(), std::string(limits::kLogTailBytes - 1, 'x') + "\n");
  EXPECT_EQ(tail->lines_size(), 0);
}

TEST_F(LogTailTest, HasNoticeOfLostOutput) {
  shim::LostOutputFile lost;
  lost.Open(path_);
  lost.Write({2, 30, 0, "No space left on device"});
  const std::string notice = "2 lines (30 bytes) could not be stored: No space left on device";
  ASSERT_TRUE(ReadLogTail(path_).has_value());  // although nothing was stored
  EXPECT_EQ(ReadLogTail(path_)->notice(), notice);
  log_.Append("one\n", 10);
  EXPECT_EQ(ReadLogTail(path_)->notice(), notice);
  EXPECT_EQ(ReadLogTail(path_)->data(), "one\n");
}

TEST_F(LogTailTest, EmptyOrMissingLogHasNone) {
  EXPECT_FALSE(ReadLogTail(path_).has_value());
  EXPECT_FALSE(ReadLogTail(path_ + ".none").has_value());
}

}  // namespace

}  // namespace muster::agent
