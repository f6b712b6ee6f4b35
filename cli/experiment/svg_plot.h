// Plots as SVG: grouped bars, and lines with markers. A file of its own that needs nothing else; it
// follows the reader's light or dark setting, and says the values as tooltips.
#ifndef MUSTER_CLI_EXPERIMENT_SVG_PLOT_H_
#define MUSTER_CLI_EXPERIMENT_SVG_PLOT_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace muster::cli {

struct BarSeries {
  std::string name;
  std::vector<std::optional<double>> values;  // by group; none: no bar
};

struct BarPlot {
  std::string title;
  std::string unit;  // on the value axis; may be empty
  std::string x_title;
  std::vector<std::string> groups;
  std::vector<BarSeries> series;  // the legend is left out where there is one without a name
};

struct LineSeries {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x ascending
};

struct LinePlot {
  std::string title;
  std::string unit;
  std::string x_title;
  std::vector<LineSeries> series;
  // Names of x = 0, 1, …; empty: x is a number.
  std::vector<std::string> x_names;
};

// Values are finite.
std::string BarSvg(const BarPlot& plot);
std::string LineSvg(const LinePlot& plot);

// Round numbers at equal distances, about five, from at most `low` to at least `high`. low <= high.
std::vector<double> RoundTicks(double low, double high);

// Height of the area that values are drawn in, from the first tick to the last, in pixels.
inline constexpr double kPlotHeight = 260;

}  // namespace muster::cli

#endif  // MUSTER_CLI_EXPERIMENT_SVG_PLOT_H_
