#include <cstdlib>
#include <limits>
#include <sstream>

#include "cli/output/console.h"
#include "cli/output/json.h"
#include "cli/output/table.h"
#include "cli/output/words.h"
#include "common/time/proto_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "proto/muster/v1/node.pb.h"
#include "yaml-cpp/yaml.h"

namespace muster::cli {
namespace {

TEST(TableTest, AlignsColumnsWithoutTrailingSpaces) {
  Table table({"JOB", "STATE"});
  table.AddRow({"a-long-name", "RUNNING"});
  table.AddRow({"b", ""});
  table.AddRow({"größe", "x\ny"});
  table.AddRow({"訓練", "\x1b[31m"});
  EXPECT_EQ(table.Text(),
            "JOB          STATE\n"
            "a-long-name  RUNNING\n"
            "b            -\n"
            "größe        x y\n"
            "訓練         \\x1b[31m\n");
}

TEST(TableTest, WrapsTheWidestColumnsToTheWidth) {
  Table table({"FIELD", "DEFAULT", "DESCRIPTION"});
  table.AddRow({"epochs", "3", "passes over the training set"});
  table.AddRow({"image_size", "the dataset's own", "side of an image"});
  EXPECT_EQ(table.Text(40),
            "FIELD       DEFAULT        DESCRIPTION\n"
            "epochs      3              passes over\n"
            "                           the training\n"
            "                           set\n"
            "image_size  the dataset's  side of an\n"
            "            own            image\n");
}

TEST(WrapTest, BreaksLinesAtSpaces) {
  EXPECT_THAT(WrappedLines("", 10), testing::IsEmpty());
  EXPECT_THAT(WrappedLines("one two three  four", 9),
              testing::ElementsAre("one two", "three", "four"));
  EXPECT_THAT(WrappedLines("größe größe abcdefghijklm x", 11),
              testing::ElementsAre("größe größe", "abcdefghijklm", "x"));
}

TEST(WrapTest, WidthIsThatOfColumnsButAtLeast60) {
  setenv("COLUMNS", "132", 1);
  EXPECT_EQ(TextWidth(), 132u);
  setenv("COLUMNS", "20", 1);
  EXPECT_EQ(TextWidth(), 60u);
  setenv("COLUMNS", "many", 1);
  EXPECT_GE(TextWidth(), 60u);
  unsetenv("COLUMNS");
}

TEST(WordsTest, FormatsAge) {
  EXPECT_EQ(Age(absl::Seconds(-5)), "0s");
  EXPECT_EQ(Age(absl::Milliseconds(12900)), "12s");
  EXPECT_EQ(Age(absl::Seconds(200)), "3m20s");
  EXPECT_EQ(Age(absl::Minutes(60)), "1h");
  EXPECT_EQ(Age(absl::Hours(24 * 8 + 4)), "8d4h");
  EXPECT_EQ(AgeSince({}, absl::Now()), "");
}

TEST(WordsTest, FormatsNumbers) {
  EXPECT_EQ(Grouped(0), "0");
  EXPECT_EQ(Grouped(999), "999");
  EXPECT_EQ(Grouped(421834), "421,834");
  EXPECT_EQ(Grouped(1000000), "1,000,000");
  EXPECT_EQ(Bytes(0), "0 B");
  EXPECT_EQ(Bytes(1536), "1.5 KiB");
  EXPECT_EQ(Bytes(210 << 20), "210 MiB");
  EXPECT_EQ(Elapsed(absl::Milliseconds(312)), "0.31 s");
  EXPECT_EQ(Elapsed(absl::Milliseconds(63240)), "63.2 s");
  EXPECT_EQ(Elapsed(absl::Seconds(312)), "5m12s");
  EXPECT_EQ(SignalName(9), "SIGKILL");
  EXPECT_EQ(SignalName(12345), "signal 12345");
}

// The output of a job must not control the terminal of its reader.
TEST(WordsTest, PrintableEscapesControl) {
  EXPECT_EQ(Printable("a\x1b[2J\r\tb\n"), "a\\x1b[2J\\x0d\tb\n");
  // The one-byte form of ESC [, a turned direction, a broken sequence, an overlong one.
  EXPECT_EQ(Printable("\u009b"
                      "2J"),
            "\\x9b2J");
  EXPECT_EQ(Printable("a\u202Eb"), "a\\u202eb");
  EXPECT_EQ(Printable("größe \xff\xc3"), "größe \\xff\\xc3");
  EXPECT_EQ(Printable("\xc0\x9b"), "\\xc0\\x9b");
}

TEST(WordsTest, CountsDisplayColumns) {
  EXPECT_EQ(DisplayWidth("größe"), 5u);
  EXPECT_EQ(DisplayWidth("訓練"), 4u);
  EXPECT_EQ(DisplayWidth("e\u0301"), 1u);
  EXPECT_EQ(DisplayWidth("🚀"), 2u);
}

v1::Job SampleJob() {
  v1::Job job;
  job.set_job_id("a-1");
  job.set_state(v1::FAILED);
  *job.mutable_submit_time() = ToProto(absl::FromUnixMillis(1767225600123));
  (*job.mutable_spec()->mutable_env())["B"] = "true";
  (*job.mutable_spec()->mutable_env())["A"] = "1";
  *job.mutable_spec()->mutable_grace_period() = ToProto(absl::Milliseconds(1500));
  job.mutable_spec()->mutable_train()->mutable_optimizer()->set_momentum(0.9);
  job.mutable_first_failure()->set_message("it said: \"no\"\nand left");
  job.mutable_summary()->set_final_loss(std::numeric_limits<double>::quiet_NaN());
  job.mutable_summary()->add_losses(0.1f);
  job.mutable_summary()->add_losses(2.5f);
  return job;
}

TEST(JsonTest, ConvertsNamesTimesAndEnums) {
  const nlohmann::ordered_json json = JobToJson(SampleJob(), /*with_losses=*/true);
  EXPECT_EQ(json["job_id"], "a-1");
  EXPECT_EQ(json["state"], "FAILED");
  EXPECT_EQ(json["exit_code"], 0);  // zero is present, too
  EXPECT_EQ(json["submit_time"], "2026-01-01T00:00:00.123Z");
  EXPECT_FALSE(json.contains("finish_time"));
  EXPECT_EQ(json["spec"]["grace_period"], "1.5s");
  EXPECT_EQ(json["spec"]["env"].dump(), "{\"A\":\"1\",\"B\":\"true\"}");
  EXPECT_EQ(json["summary"]["final_loss"], "NaN");
  EXPECT_EQ(json["summary"]["losses"].dump(), "[0.1,2.5]");
  // A spec's zero that means "not given" is omitted.
  EXPECT_FALSE(json["spec"]["train"].contains("max_steps"));
  EXPECT_EQ(json["spec"]["train"]["drop_last"], false);
}

TEST(JsonTest, OmitsLossesByDefault) {
  EXPECT_FALSE(JobToJson(SampleJob())["summary"].contains("losses"));
}

TEST(JsonTest, ConvertsLargeNumbersAndUnknownEnums) {
  v1::Node node;
  node.set_incarnation(0xffee);
  node.set_state(static_cast<v1::NodeState>(77));
  node.set_memory_bytes(uint64_t{1} << 53);
  EXPECT_EQ(ToJson(node)["incarnation"].dump(), "\"000000000000ffee\"");
  EXPECT_EQ(ToJson(node)["memory_bytes"].dump(), "9007199254740992");
  node.set_memory_bytes((uint64_t{1} << 53) + 1);
  EXPECT_EQ(ToJson(node)["memory_bytes"].dump(), "\"9007199254740993\"");
  EXPECT_EQ(ToJson(node)["state"], 77);
}

TEST(YamlTest, ReadsBackTheSameValues) {
  const nlohmann::ordered_json json = JobToJson(SampleJob(), /*with_losses=*/true);
  const YAML::Node yaml = YAML::Load(YamlText(json));
  EXPECT_EQ(yaml["job_id"].Scalar(), "a-1");
  EXPECT_EQ(yaml["first_failure"]["message"].Scalar(), "it said: \"no\"\nand left");
  EXPECT_EQ(yaml["spec"]["env"]["B"].Tag(), "!");  // quoted: a string, not a boolean
  EXPECT_EQ(yaml["spec"]["grace_period"].Scalar(), "1.5s");
  EXPECT_EQ(yaml["summary"]["losses"].size(), 2u);
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  EXPECT_EQ(YamlText(list), "[]\n");
  list.push_back(json);
  EXPECT_EQ(YAML::Load(YamlText(list))[0]["state"].Scalar(), "FAILED");
}

TEST(ConsoleTest, RedrawsNothingWithoutATerminal) {
  std::ostringstream out, err;
  {
    Console console(out, err, {});
    console.Status("step 1");
    console.Note("running");
    console.Out("data\n");
    EXPECT_EQ(console.Paint("x", Color::kRed), "x");
  }
  EXPECT_EQ(out.str(), "data\n");
  EXPECT_EQ(err.str(), "running\n");
}

TEST(ConsoleTest, KeepsTheStatusLineLast) {
  std::ostringstream out, err;
  {
    Console console(out, err, {.err_is_terminal = true, .color = true, .width = 8});
    console.Status("stéps 123456");
    console.Note("note");
    EXPECT_EQ(console.Paint("x", Color::kRed), "\x1b[31mx\x1b[0m");
  }
  EXPECT_EQ(err.str(), "stéps 1\r\x1b[Knote\nstéps 1\r\x1b[K");
}

// Both streams of a terminal.
TEST(ConsoleTest, HidesTheStatusLineWhileALineIsUnfinished) {
  std::ostringstream screen;
  const int rank = 0;
  Console console(screen, screen, {.out_is_terminal = true, .err_is_terminal = true});
  console.Status("step 1");
  console.Err("10%", &rank);
  console.Status("step 2");
  console.Err("\r20%", &rank);
  EXPECT_EQ(screen.str(), "step 1\r\x1b[K10%\r20%");
  screen.str("");
  console.Err("\n", &rank);
  EXPECT_EQ(screen.str(), "\nstep 2");
}

TEST(ConsoleTest, OtherWritersStartANewLine) {
  std::ostringstream screen;
  const int rank = 0, other = 0;
  Console console(screen, screen, {.out_is_terminal = true, .err_is_terminal = true});
  console.Err("10%", &rank);
  console.Out("loss 1\n", &other);
  console.Err("\r20%", &rank);
  console.Note("note");
  console.Err("30%\r", &rank);
  console.Out("loss 2\n", &other);  // replaces the state, which ended with a carriage return
  EXPECT_EQ(screen.str(), "10%\nloss 1\n\r20%\nnote\n30%\r\r\x1b[Kloss 2\n");
}

TEST(ConsoleTest, ErasesTheEchoOfAKey) {
  std::ostringstream screen;
  const int rank = 0;
  Console console(screen, screen, {.out_is_terminal = true, .err_is_terminal = true});
  console.EraseEcho();
  console.Note("interrupted");
  console.Status("step 1");
  console.EraseEcho();
  EXPECT_EQ(screen.str(), "\r\x1b[Kinterrupted\nstep 1\r\x1b[Kstep 1");
  console.Err("10%", &rank);
  screen.str("");
  console.EraseEcho();  // would erase the unfinished line
  EXPECT_EQ(screen.str(), "");

  std::ostringstream file;
  Console(file, file, {}).EraseEcho();
  EXPECT_EQ(file.str(), "");
}

TEST(ConsoleTest, FilesAreIndependent) {
  std::ostringstream out, err;
  Console console(out, err, {});
  const int one = 0, two = 0;
  console.Out("out", &one);
  console.Err("err", &two);
  console.Out("put\n", &one);
  console.Note("note");
  EXPECT_EQ(out.str(), "output\n");
  EXPECT_EQ(err.str(), "err\nnote\n");
}

TEST(ConsoleTest, ShowsAWritersUnfinishedLineInsteadOfTheStatus) {
  std::ostringstream screen;
  const int rank = 0, other = 0;
  Console console(screen, screen, {.out_is_terminal = true, .err_is_terminal = true, .width = 8});
  console.Status("step 1");
  console.Live("0| 10% of all", &rank);
  console.Status("step 2");
  console.Live("", &other);  // not the writer of the line
  console.Out("1| x\n");
  EXPECT_EQ(screen.str(), "step 1\r\x1b[K0| 10% \r\x1b[K0| 10% \r\x1b[K1| x\n0| 10% ");
  screen.str("");
  console.Live("", &rank);
  EXPECT_EQ(screen.str(), "\r\x1b[Kstep 2");
}

}  // namespace
}  // namespace muster::cli
