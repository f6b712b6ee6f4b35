#include "cli/logs/log_printer.h"

#include <sstream>
#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace muster::cli {
namespace {

// One log, written in pieces.
class Log {
 public:
  // The next piece, in which a line starts at `time` seconds if it is at the start of a line.
  v1::LogChunk Next(const std::string& data, int64_t time = 0) {
    v1::LogChunk chunk;
    chunk.set_offset(offset_);
    chunk.set_data(data);
    if (time > 0) {
      chunk.add_lines()->set_offset(offset_);
      chunk.mutable_lines(0)->set_unix_micros(time * 1'000'000);
    }
    offset_ += data.size();
    return chunk;
  }

 private:
  uint64_t offset_ = 0;
};

constexpr LogStyle kLive = {.live = true};
constexpr Console::Options kTerminal = {.out_is_terminal = true, .err_is_terminal = true};

TEST(LogPrinterTest, PrintsWholeLines) {
  std::ostringstream out, err;
  Console console(out, err, {});
  LogPrinter printer(console, {.prefix = "3| "}, kLive);
  Log log;
  for (const char* piece : {"a", "b\nc", "", "d\n", "\nlast"}) printer.Write(log.Next(piece));
  EXPECT_EQ(out.str(), "3| ab\n3| cd\n3| \n");
  printer.Flush();
  printer.Flush();
  EXPECT_EQ(out.str(), "3| ab\n3| cd\n3| \n3| last\n");
}

TEST(LogPrinterTest, PrintsTheTimeAtWhichALineBegan) {
  std::ostringstream out, err;
  Console console(out, err, {});
  LogPrinter printer(console, {.prefix = "3| "}, {.timestamps = true, .live = true});
  Log log;
  printer.Write(log.Next("one", 1'800'000'000));
  printer.Write(log.Next("\n"));
  printer.Write(log.Next("two\n"));
  EXPECT_EQ(out.str(), "2027-01-15T08:00:00.000Z 3| one\n- 3| two\n");
}

TEST(LogPrinterTest, PrintsAnObjectPerLine) {
  std::ostringstream out, err;
  Console console(out, err, {});
  const LogSource source = {.generation = 2, .rank = 3, .node = "n", .is_stderr = true};
  LogPrinter json(console, source, {.form = LogForm::kJson, .live = true});
  Log log;
  json.Write(log.Next("a \"b\" \xff\n10%\rlast"));
  json.Flush();
  EXPECT_EQ(out.str(),
            "{\"generation\":2,\"rank\":3,\"node\":\"n\",\"stream\":\"stderr\",\"line\":"
            "\"a \\\"b\\\" \uFFFD\"}\n"
            "{\"generation\":2,\"rank\":3,\"node\":\"n\",\"stream\":\"stderr\",\"line\":"
            "\"last\"}\n");
  out.str("");
  LogPrinter(console, source, {.form = LogForm::kYaml}).Write(Log().Next("x\n"));
  EXPECT_TRUE(absl::StartsWith(out.str(), "- {\"generation\":2,"));
}

TEST(LogPrinterTest, SplitSendsStderrToStderr) {
  std::ostringstream out, err;
  Console console(out, err, {});
  for (const bool is_stderr : {false, true}) {
    LogPrinter printer(console, {.is_stderr = is_stderr}, {.split = true, .live = true});
    printer.Write(Log().Next(is_stderr ? "to err\nwithout end" : "to out\nwithout end"));
    printer.Flush();
  }
  EXPECT_EQ(out.str(), "to out\nwithout end");
  EXPECT_EQ(err.str(), "to err\nwithout end");
}

TEST(LogPrinterTest, PassesBytesThroughToATerminal) {
  std::ostringstream screen;
  Console console(screen, screen, kTerminal);
  LogPrinter printer(console, {}, kLive);
  LineSplitter history = printer.NewSplitter();
  Log log;
  history.Add(log.Next("\r 10%"));
  EXPECT_FALSE(history.Next().has_value());
  printer.Continue(std::move(history));
  EXPECT_EQ(screen.str(), "\r 10%");
  printer.Write(log.Next("\r\x1b[31m 20%"));
  EXPECT_EQ(screen.str(), "\r 10%\r\x1b[31m 20%");
  printer.Write(log.Next("\r100%\n"));
  printer.Flush();
  EXPECT_EQ(screen.str(), "\r 10%\r\x1b[31m 20%\r100%\n");
}

TEST(LogPrinterTest, RedrawsTheLineOfARankOnATerminal) {
  std::ostringstream screen;
  Console console(screen, screen, kTerminal);
  LogPrinter first(console, {.prefix = "0| "}, kLive);
  LogPrinter second(console, {.prefix = "1| "}, kLive);
  Log first_log, second_log;
  first.Write(first_log.Next("\r10%\r\x1b[31m20%\x1b[0m"));
  EXPECT_EQ(screen.str(), "0| 20%");
  second.Write(second_log.Next("loss 1\n"));
  EXPECT_EQ(screen.str(), "0| 20%\r\x1b[K1| loss 1\n0| 20%");
  screen.str("");
  first.Write(first_log.Next("\r100%\n"));
  EXPECT_EQ(screen.str(), "\r\x1b[K0| 100%\n");
}

TEST(LogPrinterTest, PrintsStatesToAFileAtMostOncePerInterval) {
  std::ostringstream out, err;
  Console console(out, err, {});
  Time now = Now();
  LogPrinter printer(console, {}, kLive, [&now] { return now; });
  Log log;
  for (const char* state : {"\r10%", "\r11%", "\r12%"}) printer.Write(log.Next(state));
  EXPECT_EQ(out.str(), "10%\n");
  now.steady = now.steady + LogPrinter::kStateInterval;
  printer.Write(log.Next("\r50%"));
  printer.Write(log.Next("\r51%"));
  EXPECT_EQ(out.str(), "10%\n50%\n");
  printer.Write(log.Next("\r100%\nunfinished"));
  EXPECT_EQ(out.str(), "10%\n50%\n100%\n");
}

}  // namespace
}  // namespace muster::cli
