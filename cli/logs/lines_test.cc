#include "cli/logs/lines.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

v1::LogChunk Chunk(uint64_t offset, const std::string& data,
                   const std::vector<std::pair<uint64_t, int64_t>>& lines = {}) {
  v1::LogChunk chunk;
  chunk.set_offset(offset);
  chunk.set_data(data);
  for (const auto& [start, micros] : lines) {
    chunk.add_lines()->set_offset(start);
    chunk.mutable_lines()->rbegin()->set_unix_micros(micros);
  }
  return chunk;
}

// "TEXT@MICROS" of a line, without "@MICROS" if its time is not known.
std::string Text(const LogLine& line) {
  return line.time.has_value() ? absl::StrCat(line.text, "@", absl::ToUnixMicros(*line.time))
                               : line.text;
}

std::vector<std::string> Lines(LineSplitter& splitter) {
  std::vector<std::string> lines;
  while (const std::optional<LogLine> line = splitter.Next()) lines.push_back(Text(*line));
  return lines;
}

TEST(LineSplitterTest, LinesHaveTheTimesAtWhichTheyBegan) {
  LineSplitter splitter(false);
  splitter.Add(Chunk(100, "one\ntwo\nthr", {{100, 1}, {104, 2}, {108, 3}}));
  EXPECT_THAT(Lines(splitter), ElementsAre("one@1", "two@2"));
  EXPECT_EQ(splitter.rest(), "thr");
  EXPECT_EQ(splitter.rest_time(), absl::FromUnixMicros(3));
  splitter.Add(Chunk(111, "e", {}));
  EXPECT_THAT(Lines(splitter), IsEmpty());
  splitter.Add(Chunk(112, "e\n", {}));
  EXPECT_THAT(Lines(splitter), ElementsAre("three@3"));
  splitter.Add(Chunk(114, "\nfive", {{114, 4}, {115, 5}}));
  EXPECT_THAT(Lines(splitter), ElementsAre("@4"));
  const std::optional<LogLine> rest = splitter.TakeRest();
  ASSERT_TRUE(rest.has_value());
  EXPECT_EQ(Text(*rest), "five@5");
  EXPECT_FALSE(rest->terminated);
  EXPECT_FALSE(splitter.TakeRest().has_value());
}

TEST(LineSplitterTest, LinesWithoutAKnownTime) {
  LineSplitter splitter(false);
  splitter.Add(Chunk(0, "old\nolder\nnew\nold again\n", {{10, 7}}));
  EXPECT_THAT(Lines(splitter), ElementsAre("old", "older", "new@7", "old again"));
}

TEST(LineSplitterTest, KeepsOnlyTheLastStateOfARedrawnLine) {
  LineSplitter splitter(true);
  splitter.Add(Chunk(0, "\r10%\r20%", {{0, 1}}));
  EXPECT_THAT(Lines(splitter), IsEmpty());
  EXPECT_TRUE(splitter.rest_redrawn());
  EXPECT_EQ(splitter.rest(), "20%");
  splitter.Add(Chunk(8, "\r", {}));
  EXPECT_THAT(Lines(splitter), IsEmpty());
  EXPECT_EQ(LastState(splitter.rest()), "20%");
  splitter.Add(Chunk(9, "100%\nnext\r\n", {{14, 2}}));
  EXPECT_THAT(Lines(splitter), ElementsAre("100%@1", "next@2"));
  splitter.Add(Chunk(20, "rest", {{20, 3}}));
  EXPECT_THAT(Lines(splitter), IsEmpty());
  EXPECT_FALSE(splitter.rest_redrawn());
}

TEST(LineSplitterTest, KeepsAllBytesOtherwise) {
  LineSplitter splitter(false);
  splitter.Add(Chunk(0, "10%\r20%\r\n"));
  EXPECT_THAT(Lines(splitter), ElementsAre("10%\r20%\r"));
}

TEST(LineSplitterTest, ReturnsLongLinesInPieces) {
  LineSplitter splitter(false);
  splitter.Add(Chunk(0, std::string(LineSplitter::kMaxLineBytes + 1, 'x'), {{0, 1}}));
  const std::optional<LogLine> piece = splitter.Next();
  ASSERT_TRUE(piece.has_value());
  EXPECT_FALSE(piece->terminated);
  EXPECT_EQ(piece->text.size(), LineSplitter::kMaxLineBytes + 1);
  splitter.Add(Chunk(LineSplitter::kMaxLineBytes + 1, "end\nnext\n",
                     {{LineSplitter::kMaxLineBytes + 5, 2}}));
  EXPECT_THAT(Lines(splitter), ElementsAre("end@1", "next@2"));
}

TEST(LastStateTest, IgnoresTrailingCarriageReturns) {
  EXPECT_EQ(LastState("plain"), "plain");
  EXPECT_EQ(LastState("dos\r"), "dos");
  EXPECT_EQ(LastState("1\r2\r3"), "3");
  EXPECT_EQ(LastState("1\r2\r\r"), "2");
  EXPECT_EQ(LastState("\r"), "");
  EXPECT_EQ(LastState(""), "");
}

LogLine Line(const std::string& text, int64_t micros) {
  return {text, absl::FromUnixMicros(micros)};
}
LogLine Untimed(const std::string& text) { return {text, std::nullopt}; }

LineSource Source(std::vector<LogLine> lines) {
  return [lines = std::move(lines), next = size_t{0}]() mutable -> std::optional<LogLine> {
    if (next == lines.size()) return std::nullopt;
    return lines[next++];
  };
}

std::vector<std::string> Merge(std::vector<LineSource> sources) {
  LineMerger merger(std::move(sources));
  std::vector<std::string> texts;
  while (const std::optional<MergedLine> merged = merger.Next()) {
    texts.push_back(merged->line.text);
  }
  return texts;
}

TEST(LineMergerTest, OrdersByTime) {
  EXPECT_THAT(Merge({Source({Line("a1", 1), Line("a4", 4), Line("a5", 5)}), Source({}),
                     Source({Line("b2", 2), Line("b3", 3), Line("b6", 6)})}),
              ElementsAre("a1", "b2", "b3", "a4", "a5", "b6"));
}

TEST(LineMergerTest, EqualTimesComeInTheOrderOfTheSources) {
  EXPECT_THAT(Merge({Source({Line("a1", 1), Line("a2", 1), Line("a3", 2)}),
                     Source({Line("b1", 1), Line("b2", 2)}), Source({Line("c1", 1)})}),
              ElementsAre("a1", "a2", "b1", "c1", "a3", "b2"));
}

TEST(LineMergerTest, LinesWithoutATimeFollowTheLineBefore) {
  EXPECT_THAT(Merge({Source({Line("a1", 1), Line("a5", 5), Untimed("a?")}),
                     Source({Untimed("b?"), Line("b2", 2), Line("b1", 1), Line("b6", 6)})}),
              ElementsAre("b?", "a1", "b2", "b1", "a5", "a?", "b6"));
}

std::vector<std::string> Texts(const std::vector<MergedLine>& lines) {
  std::vector<std::string> texts;
  for (const MergedLine& line : lines) texts.push_back(line.line.text);
  return texts;
}

TEST(LineTailTest, KeepsTheLastLinesOfAll) {
  LineTail tail(3);
  for (const char* text : {"1", "2", "3", "4", "5"}) tail.Add(0, {0, Untimed(text)});
  EXPECT_THAT(Texts(tail.Take()), ElementsAre("3", "4", "5"));
}

TEST(LineTailTest, KeepsTheLastLinesOfEachKeyInOrder) {
  LineTail tail(2);
  tail.Add(7, {0, Untimed("a1")});
  tail.Add(7, {0, Untimed("a2")});
  tail.Add(1, {0, Untimed("b1")});
  tail.Add(7, {0, Untimed("a3")});
  EXPECT_THAT(Texts(tail.Take()), ElementsAre("a2", "b1", "a3"));
}

}  // namespace

}  // namespace muster::cli
