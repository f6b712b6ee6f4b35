#include "worker/shim/log/log_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "worker/shim/fields.h"
#include "worker/shim/log/line_times.h"
#include "worker/shim/log/lost_output.h"

namespace muster::shim {
namespace {

// Whole records of an index.
std::vector<std::pair<uint64_t, int64_t>> ReadTimes(const std::string& log) {
  const std::string bytes = ReadFile(log + std::string(kLineTimesSuffix)).value_or("");
  std::vector<std::pair<uint64_t, int64_t>> records;
  for (size_t i = 0; i + kLineTimeBytes <= bytes.size(); i += kLineTimeBytes) {
    const LineTime record = DecodeLineTime(bytes.data() + i);
    records.emplace_back(record.offset, record.unix_micros);
  }
  return records;
}
using Times = std::vector<std::pair<uint64_t, int64_t>>;

class LogFileTest : public ::testing::Test {
 protected:
  LogFileTest() : path_(::testing::TempDir() + "log_file_test.log") {
    std::remove(path_.c_str());
    std::remove((path_ + std::string(kLineTimesSuffix)).c_str());
    std::remove((path_ + ".lost").c_str());
    EXPECT_TRUE(log_.Open(path_));
  }
  std::string Contents() { return ReadFile(path_).value_or("<none>"); }

  const std::string path_;
  LogFile log_;
};

TEST_F(LogFileTest, WritesUnfinishedLinesAtOnce) {
  log_.Append("one\ntw", 1);
  EXPECT_EQ(Contents(), "one\ntw");
  log_.Append("\r50%", 2);
  EXPECT_EQ(Contents(), "one\ntw\r50%");
}

TEST_F(LogFileTest, RecordsTheTimeAtWhichEachLineBegan) {
  log_.Append("one\ntw", 1);
  log_.Append("o", 2);
  log_.Append("\n", 3);             // ends a line and begins none
  log_.Append("three\nfour\n", 4);  // one record for both
  log_.Append("five", 5);
  log_.Append("\nsix", 6);
  EXPECT_EQ(ReadTimes(path_), (Times{{0, 1}, {8, 4}, {19, 5}, {23, 6}}));
}

TEST_F(LogFileTest, AppendsToExistingFile) {
  log_.Append("first\nunfinished", 1);
  LogFile second;
  ASSERT_TRUE(second.Open(path_));
  second.Append(" line\n", 2);
  second.Append("last\n", 3);
  EXPECT_EQ(Contents(), "first\nunfinished line\nlast\n");
  EXPECT_EQ(ReadTimes(path_), (Times{{0, 1}, {22, 3}}));
}

TEST_F(LogFileTest, NoteWaitsForTheEndOfALine) {
  log_.AddNote("note 1", 1);
  EXPECT_FALSE(log_.has_waiting_notes());
  log_.Append("half", 2);
  log_.AddNote("note 2", 3);
  log_.AddNote("note 3", 3);
  EXPECT_TRUE(log_.has_waiting_notes());
  log_.Append(" of", 4);
  EXPECT_EQ(Contents(), "note 1\nhalf of");
  log_.Append(" it\nnext\nlast", 5);
  EXPECT_FALSE(log_.has_waiting_notes());
  EXPECT_EQ(Contents(), "note 1\nhalf of it\nnote 2\nnote 3\nnext\nlast");
  EXPECT_EQ(ReadTimes(path_), (Times{{0, 1}, {7, 2}, {18, 5}, {32, 5}}));
}

TEST_F(LogFileTest, OverdueNoteStartsANewLine) {
  log_.Append("10%\r20%", 1);
  log_.AddNote("note", 2);
  log_.WriteNotes(3);
  log_.Append("\r30%\n", 4);
  EXPECT_EQ(Contents(), "10%\r20%\nnote\n\r30%\n");
  EXPECT_EQ(ReadTimes(path_), (Times{{0, 1}, {7, 3}, {13, 4}}));
}

class LimitedLogTest : public LogFileTest {
 protected:
  static constexpr uint64_t kLimit = LogFile::kMinLimitBytes;

  LimitedLogTest() { EXPECT_TRUE(limited_.Open(path_, kLimit)); }
  // Appends numbered lines of `bytes` in pieces of one line.
  void AppendLines(int count, size_t bytes) {
    for (int i = 0; i < count; ++i) {
      std::string line = std::to_string(i);
      line.resize(bytes - 1, '.');
      limited_.Append(line + "\n", 1 + i);
    }
  }
  static uint64_t DiskBytes(const std::string& path) {
    struct stat info = {};
    EXPECT_EQ(stat(path.c_str(), &info), 0);
    return static_cast<uint64_t>(info.st_blocks) * 512;
  }
  uint64_t FirstKept() const {
    const int fd = open(path_.c_str(), O_RDONLY);
    const uint64_t first = FirstKeptOffset(fd);
    close(fd);
    return first;
  }

  LogFile limited_;
};

TEST_F(LimitedLogTest, DropsTheOldestPartAndKeepsOffsets) {
  constexpr size_t kLineBytes = 1000;
  AppendLines(2000, kLineBytes);
  EXPECT_EQ(limited_.drops(), "");
  EXPECT_EQ(FirstKept(), 0u);
  AppendLines(10'000, kLineBytes);
  EXPECT_EQ(limited_.drops(), "oldest");
  EXPECT_EQ(limited_.lost().bytes, 0u);
  const std::string all = Contents();
  ASSERT_EQ(all.size(), 12'000 * kLineBytes);
  const uint64_t kept = all.size() - FirstKept();
  EXPECT_LE(DiskBytes(path_), kLimit);
  EXPECT_LE(kept, kLimit);
  EXPECT_GE(kept, kLimit / 2);
  EXPECT_EQ(all.substr(11'999 * kLineBytes, 5), "9999.");
  EXPECT_EQ(all[FirstKept() - 1], '\0');
  // Another shim of the same log would continue with the same limit.
  LogFile later;
  ASSERT_TRUE(later.Open(path_, kLimit));
  EXPECT_EQ(later.drops(), "oldest");
}

// Lines of two bytes have an index of eight times their size.
TEST_F(LimitedLogTest, LimitsTheIndexAsWell) {
  AppendLines(200'000, 2);
  EXPECT_EQ(limited_.drops(), "oldest");
  EXPECT_LE(DiskBytes(path_) + DiskBytes(path_ + std::string(kLineTimesSuffix)),
            kLimit + 2 * kDropUnitBytes);
  // Each kept line still has its time.
  const uint64_t first = FirstKept();
  const Times times = ReadTimes(path_);
  EXPECT_EQ(times.size(), 200'000u);
  EXPECT_EQ(times[first / 2], (std::pair<uint64_t, int64_t>(first, 1 + first / 2)));
  EXPECT_EQ(times[0], (std::pair<uint64_t, int64_t>(0, 0)));
}

// A file system without holes, such as that of /dev/null.
TEST(UnsupportedFileSystemTest, DropsLaterOutput) {
  const std::string path = ::testing::TempDir() + "log_file_unsupported_test.log";
  for (const std::string& file : {path, path + ".lost"}) std::remove(file.c_str());
  ASSERT_EQ(symlink("/dev/null", path.c_str()), 0);
  LogFile log;
  ASSERT_TRUE(log.Open(path, LogFile::kMinLimitBytes));
  log.Append(std::string(LogFile::kMinLimitBytes, 'x'), 1);
  EXPECT_EQ(log.drops(), "newest");
  EXPECT_EQ(log.lost().bytes, 0u);
  log.Append("more", 2);
  EXPECT_EQ(log.lost().bytes, 4u);
}

// Opens a log whose file, or whose index, is on a full disk.
class FullDiskTest : public ::testing::Test {
 protected:
  void Open(bool log_full, bool index_full) {
    const std::string index = path_ + std::string(kLineTimesSuffix);
    for (const std::string& file : {path_, index, path_ + ".lost"}) std::remove(file.c_str());
    if (log_full) ASSERT_EQ(symlink("/dev/full", path_.c_str()), 0);
    if (index_full) ASSERT_EQ(symlink("/dev/full", index.c_str()), 0);
    ASSERT_TRUE(log_.Open(path_));
  }
  const std::string path_ = ::testing::TempDir() + "log_file_full_disk_test.log";
  LogFile log_;
};

TEST_F(FullDiskTest, CountsLostBytes) {
  Open(true, false);
  log_.Append("12345\n", 1);
  EXPECT_EQ(log_.lost().bytes, 6u);
  // The next bytes that can be written are at the same offset.
  log_.Append("67\n", 2);
  EXPECT_EQ(ReadTimes(path_), (Times{{0, 1}, {0, 2}}));
}

// A limit of the size of files in place of a full disk.
class GapTest : public LogFileTest {
 protected:
  void SetUp() override {
    signal(SIGXFSZ, SIG_IGN);
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before_), 0);
  }
  void TearDown() override { setrlimit(RLIMIT_FSIZE, &before_); }
  void LimitTo(rlim_t bytes) {
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  // Appends lines 0 to count - 1 of 100 bytes, several in each piece.
  void AppendLines(LogFile& log, int count) {
    std::string piece;
    for (int i = 0; i < count; ++i) {
      std::string line = "line " + std::to_string(i) + " ";
      line.resize(99, '.');
      piece += line + "\n";
      if (piece.size() < 730 && i < count - 1) continue;
      log.Append(piece, 1 + i);
      piece.clear();
    }
  }

  rlimit before_ = {};
};

TEST_F(GapTest, MarksLostLinesOnceThereIsSpace) {
  LimitTo(1250);
  AppendLines(log_, 100);
  // 12 lines were written, and half of another.
  EXPECT_EQ(Contents().size(), 1250u);
  EXPECT_EQ(log_.lost().lines, 88u);
  EXPECT_EQ(log_.lost().bytes, 8750u);
  const LostOutput recorded = ReadLostOutput(path_);
  EXPECT_EQ(recorded.lines, 88u);
  EXPECT_EQ(recorded.bytes, 8750u);
  EXPECT_EQ(recorded.reason, "File too large");
  log_.Append("lost as wel", 200);
  LimitTo(before_.rlim_cur);
  log_.Append("l\nfirst\nsecond\n", 201);
  EXPECT_EQ(Contents().substr(1200, 5), "line ");
  EXPECT_EQ(Contents().substr(1250), "\n[muster: 89 lines lost: File too large]\nfirst\nsecond\n");
  EXPECT_EQ(ReadTimes(path_).back(), (std::pair<uint64_t, int64_t>(1250, 201)));
  EXPECT_EQ(log_.lost().lines, 89u);
  EXPECT_EQ(ReadLostOutput(path_).unmarked_lines, 0u);
}

TEST_F(GapTest, LaterWriterContinuesCount) {
  {
    LogFile first;
    ASSERT_TRUE(first.Open(path_));
    LimitTo(1000);
    AppendLines(first, 30);
  }
  LogFile second;
  ASSERT_TRUE(second.Open(path_));
  second.Append("lost\n", 40);
  EXPECT_EQ(second.lost().lines, 21u);
  LimitTo(before_.rlim_cur);
  second.Append("found\n", 41);
  EXPECT_EQ(Contents().substr(1000), "[muster: 21 lines lost: File too large]\nfound\n");
}

TEST_F(GapTest, MarksLossAtTheEnd) {
  LimitTo(1000);
  AppendLines(log_, 11);
  log_.Append("unfinished", 12);
  LimitTo(before_.rlim_cur);
  log_.Finish(13);
  EXPECT_EQ(Contents().substr(1000), "[muster: 2 lines lost: File too large]\n");
  EXPECT_EQ(log_.lost().lines, 2u);
}

TEST_F(GapTest, NoteInLostLineIsNotPartOfIt) {
  LimitTo(1000);
  AppendLines(log_, 11);
  log_.Append("unfinished", 12);
  LimitTo(before_.rlim_cur);
  log_.AddNote("note", 13);
  log_.Append(" line\nlast\n", 14);
  EXPECT_EQ(Contents().substr(1000),
            "[muster: 1 line lost: File too large]\nnote\n[muster: 1 line lost: File too "
            "large]\nlast\n");
}

TEST_F(GapTest, LogWithoutLossLeavesNoRecord) {
  const std::string record = path_ + ".lost";
  {
    LogFile log;
    ASSERT_TRUE(log.Open(path_));
    EXPECT_EQ(access(record.c_str(), F_OK), 0);
  }
  EXPECT_NE(access(record.c_str(), F_OK), 0);
  EXPECT_EQ(ReadLostOutput(path_).bytes, 0u);
}

TEST_F(FullDiskTest, KeepsLogWithoutIndex) {
  Open(false, true);
  log_.Append("12345\n", 1);
  EXPECT_EQ(log_.lost().bytes, 0u);
  EXPECT_EQ(ReadFile(path_).value_or(""), "12345\n");
}

TEST(TailTest, KeepsLastLinesOnly) {
  Tail tail(2, 100);
  EXPECT_EQ(tail.Lines(), "");
  tail.Append("a\nb");
  EXPECT_EQ(tail.Lines(), "a\nb");
  tail.Append("b\nc\n");
  EXPECT_EQ(tail.Lines(), "bb\nc\n");
  tail.Append("d");
  EXPECT_EQ(tail.Lines(), "c\nd");
}

TEST(TailTest, KeepsLastBytesOnly) {
  Tail tail(50, 10);
  tail.Append("0123456789");
  tail.Append("abc");
  EXPECT_EQ(tail.Lines(), "3456789abc");
  tail.Append(std::string(5, 'x') + "0123456789");
  EXPECT_EQ(tail.Lines(), "0123456789");
}

TEST(TailTest, ShortensLongLineInTheMiddle) {
  Tail tail(50, 8192);
  tail.Append("Traceback\nRuntimeError: first");
  for (int i = 0; i < 100; ++i) tail.Append(std::string(60'000, 'x'));
  const std::string line = "RuntimeError: first" + std::string(1965, 'x') +
                           " ... [5996055 bytes omitted] ... " + std::string(1980, 'x') + "last";
  tail.Append("last");
  EXPECT_EQ(tail.Lines(), "Traceback\n" + line);
  tail.Append("\nend\n");
  EXPECT_EQ(tail.Lines(), "Traceback\n" + line + "\nend\n");
}

}  // namespace
}  // namespace muster::shim
