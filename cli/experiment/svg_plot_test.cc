#include "cli/experiment/svg_plot.h"

#include <cmath>
#include <regex>

#include "absl/strings/numbers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// The first group of every match.
std::vector<std::string> Matches(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  std::vector<std::string> found;
  for (std::sregex_iterator match(text.begin(), text.end(), regex), end; match != end; ++match) {
    found.push_back((*match)[1]);
  }
  return found;
}

std::vector<double> Heights(const std::string& svg) {
  std::vector<double> heights;
  for (const std::string& text : Matches(svg, "class=\"bar\"[^>]* height=\"([^\"]*)\"")) {
    double value = NAN;
    EXPECT_TRUE(absl::SimpleAtod(text, &value)) << text;
    heights.push_back(value);
  }
  return heights;
}

// Checks that every element is closed, in order.
void ExpectWellFormed(const std::string& svg) {
  const std::regex tag("<(/?)([a-z]+)([^<>]*?)(/?)>");
  std::vector<std::string> open;
  std::string rest = svg;
  for (std::sregex_iterator match(svg.begin(), svg.end(), tag), end; match != end; ++match) {
    const std::string name = (*match)[2];
    if ((*match)[1] == "/") {
      ASSERT_FALSE(open.empty());
      EXPECT_EQ(open.back(), name);
      open.pop_back();
    } else if ((*match)[4] != "/") {
      open.push_back(name);
    }
  }
  EXPECT_TRUE(open.empty());
  // Every '<' starts a tag.
  EXPECT_EQ(Matches(svg, "(<)").size(), Matches(svg, "(<)/?[a-z]+[^<>]*>").size());
  EXPECT_THAT(Matches(svg, "(&(?!(amp|lt|gt|quot);))"), ElementsAre());
}

TEST(SvgPlot, RoundsTicks) {
  EXPECT_THAT(RoundTicks(0, 100), ElementsAre(0, 20, 40, 60, 80, 100));
  EXPECT_THAT(RoundTicks(0, 4.1), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(RoundTicks(0, 7), ElementsAre(0, 2, 4, 6, 8));
  EXPECT_THAT(RoundTicks(-3, 12), ElementsAre(-5, 0, 5, 10, 15));
  EXPECT_EQ(RoundTicks(0, 0).front(), 0);
  for (const double high : {1e-6, 0.3, 17.0, 93'214.0, 4e12}) {
    const std::vector<double> ticks = RoundTicks(0, high);
    EXPECT_GE(ticks.back(), high * (1 - 1e-9));
    EXPECT_GE(ticks.size(), 4u);
    EXPECT_LE(ticks.size(), 7u);
  }
}

TEST(SvgPlot, BarHeightsMatchValues) {
  // The axis goes to 100, so that a pixel is 100 / kPlotHeight.
  const std::string svg =
      BarSvg({"Speed", "images/s", "", {"a", "b"}, {{"x", {100, 50}}, {"y", {25, 0}}}});
  ExpectWellFormed(svg);
  EXPECT_THAT(Heights(svg), ElementsAre(kPlotHeight, kPlotHeight / 4, kPlotHeight / 2, 0));
  EXPECT_THAT(svg, HasSubstr("<title>x, a: 100 images/s</title>"));
  EXPECT_THAT(Matches(svg, "class=\"legend\"[^>]*>([^<]*)<"), ElementsAre("x", "y"));
  EXPECT_THAT(Matches(svg, "class=\"name\"[^>]*>([^<]*)<"), ElementsAre("a", "b"));
}

TEST(SvgPlot, MarksMissingBars) {
  const std::string svg = BarSvg({"", "", "", {"a", "b"}, {{"", {std::nullopt, 2}}}});
  ExpectWellFormed(svg);
  EXPECT_EQ(Heights(svg).size(), 1u);
  EXPECT_THAT(svg, HasSubstr("–</text>"));
  EXPECT_THAT(svg, Not(HasSubstr("class=\"legend\"")));
}

TEST(SvgPlot, DrawsNegativeBarsBelowZero) {
  const std::string svg = BarSvg({"", "", "", {"a", "b"}, {{"", {-5, 10}}}});
  // From -5 to 10 in steps of 5: 3 parts, one below zero.
  EXPECT_THAT(Heights(svg), ElementsAre(::testing::DoubleNear(kPlotHeight / 3, 0.01),
                                        ::testing::DoubleNear(kPlotHeight * 2 / 3, 0.01)));
}

TEST(SvgPlot, DrawsLinesThroughPoints) {
  const std::string svg =
      LineSvg({"Time", "s", "steps", {{"a", {{0, 0}, {50, 10}, {100, 5}}}}, {}});
  ExpectWellFormed(svg);
  const std::vector<std::string> y = Matches(svg, "class=\"point\"[^>]* cy=\"([^\"]*)\"");
  const std::vector<std::string> x = Matches(svg, "class=\"point\" cx=\"([^\"]*)\"");
  ASSERT_EQ(y.size(), 3u);
  double bottom, top, middle;
  ASSERT_TRUE(absl::SimpleAtod(y[0], &bottom) && absl::SimpleAtod(y[1], &top) &&
              absl::SimpleAtod(y[2], &middle));
  EXPECT_EQ(bottom - top, kPlotHeight);
  EXPECT_EQ(bottom - middle, kPlotHeight / 2);
  double left, centre, right;
  ASSERT_TRUE(absl::SimpleAtod(x[0], &left) && absl::SimpleAtod(x[1], &centre) &&
              absl::SimpleAtod(x[2], &right));
  EXPECT_DOUBLE_EQ(centre - left, right - centre);
}

TEST(SvgPlot, ScalesCloseValuesToTheFullHeight) {
  const std::string close = LineSvg({"", "", "", {{"a", {{0, 91}, {1, 95}}}}, {}});
  EXPECT_THAT(close, HasSubstr(">91</text>"));
  EXPECT_THAT(close, Not(HasSubstr(">20</text>")));
  EXPECT_THAT(LineSvg({"", "", "", {{"a", {{0, 5}, {1, 95}}}}, {}}), HasSubstr(">20</text>"));
}

// A name that starts left of the frame widens it.
TEST(SvgPlot, MakesRoomForLongNames) {
  const std::string name(60, 'm');
  const std::string svg = BarSvg({"", "", "", {name, name}, {{"", {1, 2}}}});
  ExpectWellFormed(svg);
  EXPECT_THAT(svg, HasSubstr("rotate("));
  EXPECT_THAT(svg, HasSubstr("viewBox=\"-"));
  EXPECT_THAT(BarSvg({"", "", "", {"a", "b"}, {{"", {1, 2}}}}), HasSubstr("viewBox=\"0 0 720 "));
}

TEST(SvgPlot, ShowsNamesInsteadOfNumbers) {
  const std::string svg =
      LineSvg({"", "", "", {{"a", {{0, 1}, {1, 2}}}, {"b", {}}}, {"first", "second"}});
  ExpectWellFormed(svg);
  EXPECT_THAT(Matches(svg, "class=\"name\"[^>]*>([^<]*)<"), ElementsAre("first", "second"));
}

TEST(SvgPlot, EscapesText) {
  const std::string name = "<b>\"&\x1b</b>";
  const std::string svg = BarSvg({name, name, name, {name}, {{name, {1}}}});
  ExpectWellFormed(svg);
  EXPECT_THAT(svg, Not(HasSubstr("<b>")));
  EXPECT_THAT(svg, Not(HasSubstr("\x1b")));
}

TEST(SvgPlot, AcceptsEmptyPlots) {
  ExpectWellFormed(BarSvg({}));
  ExpectWellFormed(LineSvg({}));
}

}  // namespace
}  // namespace muster::cli
