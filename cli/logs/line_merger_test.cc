#include "cli/logs/line_merger.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::cli {
namespace {

using ::testing::ElementsAre;

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
