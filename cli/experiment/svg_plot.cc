#include "cli/experiment/svg_plot.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "cli/output/words.h"

namespace muster::cli {
namespace {

constexpr double kWidth = 720;
constexpr double kLeft = 78;
constexpr double kRight = 20;
constexpr double kPlotWidth = kWidth - kLeft - kRight;
constexpr double kTitleHeight = 40;
constexpr double kLegendLine = 20;
// Average width of a letter in browsers' sans-serif fonts.
constexpr double kLetterWidth = 6.8;
constexpr double kNarrowestLabelledBar = 34;

// Distinguishable with colour vision deficiency (after Okabe and Ito), on white and on black.
constexpr const char* kColors[] = {"#3182bd", "#e6862a", "#2a9d6f", "#c46aa0",
                                   "#7fbfe8", "#d0503f", "#b8a024", "#8a8f98"};

constexpr char kStyle[] = R"(<style>
  .page { fill: #ffffff; }
  text { fill: #24292f; font: 12px system-ui, sans-serif; }
  .title { font-size: 15px; font-weight: 600; }
  .small { font-size: 11px; }
  .grid { stroke: #d8dee4; }
  .axis { stroke: #57606a; }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117; }
    text { fill: #e6edf3; }
    .grid { stroke: #30363d; }
    .axis { stroke: #8b949e; }
  }
</style>
)";

std::string Escaped(const std::string& text) {
  return absl::StrReplaceAll(Printable(text),
                             {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

// A coordinate, to a hundredth of a pixel.
std::string At(double value) {
  std::string text = absl::StrFormat("%.2f", value);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

std::string Number(double value) {
  if (std::abs(value) >= 1000 && std::abs(value) < 1e15) {
    return absl::StrCat(value < 0 ? "-" : "",
                        Grouped(static_cast<uint64_t>(std::llround(std::abs(value)))));
  }
  return absl::StrFormat("%.4g", value);
}

double TextWidth(const std::string& text) {
  return kLetterWidth * static_cast<double>(DisplayWidth(text));
}

const char* ColorOf(size_t series) { return kColors[series % std::size(kColors)]; }

// The frame of a plot: title, legend and both axes. The caller draws the contents.
class Sheet {
 public:
  Sheet(const std::string& title, const std::string& unit, const std::vector<std::string>& legend,
        const std::vector<double>& ticks)
      : ticks_(ticks) {
    Text(kLeft, 24, title, "title", "start");
    double y = kTitleHeight;
    if (!legend.empty()) y = Legend(legend, y) + 8;
    top_ = y + (unit.empty() ? 6 : 18);
    if (!unit.empty()) Text(kLeft, y + 8, unit, "small", "start");
    for (const double tick : ticks_) {
      const double line = Y(tick);
      Line(kLeft, line, kWidth - kRight, line, "grid");
      Text(kLeft - 8, line + 4, Number(tick), "small", "end");
    }
  }

  double Y(double value) const {
    return top_ + kPlotHeight * (ticks_.back() - value) / (ticks_.back() - ticks_.front());
  }
  double bottom() const { return top_ + kPlotHeight; }

  void Line(double x1, double y1, double x2, double y2, const char* css) {
    absl::StrAppend(&body_, "<line class=\"", css, "\" x1=\"", At(x1), "\" y1=\"", At(y1),
                    "\" x2=\"", At(x2), "\" y2=\"", At(y2), "\"/>\n");
  }
  void Text(double x, double y, const std::string& text, const char* css, const char* anchor,
            const std::string& more = "") {
    absl::StrAppend(&body_, "<text class=\"", css, "\" x=\"", At(x), "\" y=\"", At(y),
                    "\" text-anchor=\"", anchor, "\"", more, ">", Escaped(text), "</text>\n");
  }
  void Append(const std::string& element) { body_ += element; }

  // Names below the axis at these positions, rotated if they would overlap, and the axis title.
  void Names(const std::vector<std::pair<double, std::string>>& names, double room,
             const std::string& title) {
    double widest = 0;
    for (const auto& [x, name] : names) widest = std::max(widest, TextWidth(name));
    const bool aslant = widest > room - 6;
    for (const auto& [x, name] : names) {
      if (!aslant) {
        Text(x, bottom() + 18, name, "name", "middle");
      } else {
        const double y = bottom() + 14;
        Text(x, y, name, "name", "end",
             absl::StrCat(" transform=\"rotate(-28 ", At(x), " ", At(y), ")\""));
      }
    }
    // Height and width of a text that is rotated by 28 degrees.
    below_ = aslant ? 24 + 0.47 * widest : 28;
    if (aslant) beside_ = std::max(0.0, 0.89 * widest + 8 - names[0].first);
    if (title.empty()) return;
    below_ += 18;
    Text(kLeft + kPlotWidth / 2, bottom() + below_ - 4, title, "small", "middle");
  }

  std::string Svg(const std::string& title) {
    const double axis = Y(std::clamp(0.0, ticks_.front(), ticks_.back()));
    Line(kLeft, axis, kWidth - kRight, axis, "axis");
    const std::string left = At(-beside_);
    const std::string width = At(kWidth + beside_);
    const std::string height = At(bottom() + below_ + 10);
    return absl::StrCat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", width, "\" height=\"",
                        height, "\" viewBox=\"", left, " 0 ", width, " ", height,
                        "\" role=\"img\" aria-label=\"", Escaped(title), "\">\n", kStyle,
                        "<rect class=\"page\" x=\"", left, "\" width=\"100%\" height=\"100%\"/>\n",
                        body_, "</svg>\n");
  }

 private:
  // Draws the legend in as many lines as needed and returns where it ends.
  double Legend(const std::vector<std::string>& names, double y) {
    double x = kLeft;
    for (size_t i = 0; i < names.size(); ++i) {
      const double width = 18 + TextWidth(names[i]) + 16;
      if (x > kLeft && x + width > kWidth - kRight) {
        x = kLeft;
        y += kLegendLine;
      }
      absl::StrAppend(&body_, "<rect class=\"key\" x=\"", At(x), "\" y=\"", At(y),
                      "\" width=\"12\" height=\"12\" rx=\"2\" fill=\"", ColorOf(i), "\"/>\n");
      Text(x + 18, y + 10.5, names[i], "legend", "start");
      x += width;
    }
    return y + kLegendLine;
  }

  const std::vector<double> ticks_;
  double top_ = 0;
  double below_ = 28;  // room below the lowest tick
  double beside_ = 0;  // extra room on the left for the first name
  std::string body_;
};

template <typename Series>
std::vector<std::string> LegendOf(const std::vector<Series>& series) {
  std::vector<std::string> names;
  for (const Series& one : series) names.push_back(one.name);
  if (names.size() == 1 && names[0].empty()) names.clear();
  return names;
}

std::string Tooltip(const std::string& series, const std::string& x, double value,
                    const std::string& unit) {
  return Escaped(absl::StrCat(series, series.empty() || x.empty() ? "" : ", ", x, ": ",
                              Number(value), unit.empty() ? "" : " ", unit));
}

}  // namespace

std::vector<double> RoundTicks(double low, double high) {
  if (high <= low) high = low + (low == 0 ? 1 : std::abs(low));
  const double rough = (high - low) / 5;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0}) {
    // With a tolerance, because 0.1 and 0.3 are rounded.
    if (factor * power >= rough * (1 - 1e-9)) step = factor * power;
  }
  const double first = std::floor(low / step + 1e-9);
  const double last = std::ceil(high / step - 1e-9);
  std::vector<double> ticks;
  for (double i = first; i <= last; ++i) ticks.push_back(i * step);
  return ticks;
}

std::string BarSvg(const BarPlot& plot) {
  double low = 0, high = 0;
  for (const BarSeries& series : plot.series) {
    for (const std::optional<double>& value : series.values) {
      low = std::min(low, value.value_or(0));
      high = std::max(high, value.value_or(0));
    }
  }
  Sheet sheet(plot.title, plot.unit, LegendOf(plot.series), RoundTicks(low, high));
  const double group = kPlotWidth / static_cast<double>(std::max<size_t>(1, plot.groups.size()));
  const double bars = static_cast<double>(std::max<size_t>(1, plot.series.size()));
  const double width = std::min(72.0, 0.8 * group / bars);
  std::vector<std::pair<double, std::string>> names;
  for (size_t g = 0; g < plot.groups.size(); ++g) {
    const double middle = kLeft + group * (static_cast<double>(g) + 0.5);
    names.emplace_back(middle, plot.groups[g]);
    for (size_t s = 0; s < plot.series.size(); ++s) {
      const double x = middle + width * (static_cast<double>(s) - bars / 2);
      if (g >= plot.series[s].values.size() || !plot.series[s].values[g].has_value()) {
        sheet.Text(x + width / 2, sheet.Y(0) - 5, "–", "small", "middle");
        continue;
      }
      const double value = *plot.series[s].values[g];
      const double top = sheet.Y(std::max(0.0, value));
      sheet.Append(absl::StrCat(
          "<rect class=\"bar\" x=\"", At(x + 1), "\" y=\"", At(top), "\" width=\"", At(width - 2),
          "\" height=\"", At(sheet.Y(std::min(0.0, value)) - top), "\" fill=\"", ColorOf(s),
          "\"><title>", Tooltip(plot.series[s].name, plot.groups[g], value, plot.unit),
          "</title></rect>\n"));
      if (width >= kNarrowestLabelledBar) {
        sheet.Text(x + width / 2, top - 4, Number(value), "small", "middle");
      }
    }
  }
  sheet.Names(names, group, plot.x_title);
  return sheet.Svg(plot.title);
}

std::string LineSvg(const LinePlot& plot) {
  double low = 0, high = 0, first = 0, last = 0;  // over all points
  bool any = false;
  for (const LineSeries& series : plot.series) {
    for (const auto& [x, y] : series.points) {
      first = any ? std::min(first, x) : x;
      last = any ? std::max(last, x) : x;
      low = any ? std::min(low, y) : y;
      high = any ? std::max(high, y) : y;
      any = true;
    }
  }
  // If all values are close together, show their differences.
  if (low < high / 2) low = std::min(low, 0.0);
  const bool named = !plot.x_names.empty();
  std::vector<double> x_ticks;
  if (named) {
    for (size_t i = 0; i < plot.x_names.size(); ++i) x_ticks.push_back(static_cast<double>(i));
    // Half a position on either side.
    first = -0.5;
    last = static_cast<double>(plot.x_names.size()) - 0.5;
  } else {
    x_ticks = RoundTicks(first, last);
    first = x_ticks.front();
    last = x_ticks.back();
  }
  const auto place = [&](double x) { return kLeft + kPlotWidth * (x - first) / (last - first); };

  Sheet sheet(plot.title, plot.unit, LegendOf(plot.series), RoundTicks(low, high));
  for (size_t s = 0; s < plot.series.size(); ++s) {
    const LineSeries& series = plot.series[s];
    std::string path, marks;
    for (const auto& [x, y] : series.points) {
      absl::StrAppend(&path, path.empty() ? "M" : "L", At(place(x)), " ", At(sheet.Y(y)));
      const std::string name = named ? plot.x_names[static_cast<size_t>(x)] : Number(x);
      absl::StrAppend(&marks, "<circle class=\"point\" cx=\"", At(place(x)), "\" cy=\"",
                      At(sheet.Y(y)), "\" r=\"3.5\" fill=\"", ColorOf(s), "\"><title>",
                      Tooltip(series.name, name, y, plot.unit), "</title></circle>\n");
    }
    if (path.empty()) continue;
    sheet.Append(absl::StrCat("<path class=\"line\" d=\"", path, "\" fill=\"none\" stroke=\"",
                              ColorOf(s), "\" stroke-width=\"2\"/>\n", marks));
  }
  std::vector<std::pair<double, std::string>> names;
  for (size_t i = 0; i < x_ticks.size(); ++i) {
    names.emplace_back(place(x_ticks[i]), named ? plot.x_names[i] : Number(x_ticks[i]));
  }
  const double room = kPlotWidth / static_cast<double>(std::max<size_t>(1, names.size()));
  sheet.Names(names, room, plot.x_title);
  return sheet.Svg(plot.title);
}

}  // namespace muster::cli
