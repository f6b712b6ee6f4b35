// Draws plots as SVG: grouped bars, and lines with markers. The files are self-contained, follow
// the reader's light or dark setting, and show values as tooltips.
#ifndef MUSTER_CLI_EXPERIMENT_SVG_PLOT_H_
#define MUSTER_CLI_EXPERIMENT_SVG_PLOT_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace muster::cli {

struct BarSeries {
  std::string name;
  std::vector<std::optional<double>> values;  // by group; nullopt: no bar
};

struct BarPlot {
  std::string title;
  std::string unit;  // on the value axis; may be empty
  std::string x_title;
  std::vector<std::string> groups;
  std::vector<BarSeries> series;  // a single series without a name has no legend
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
  // Names of x = 0, 1, …; if empty, x is numeric.
  std::vector<std::string> x_names;
};

// Values must be finite.
std::string BarSvg(const BarPlot& plot);
std::string LineSvg(const LinePlot& plot);

// About five round numbers at equal distances that cover `low` to `high`. Requires low <= high.
std::vector<double> RoundTicks(double low, double high);

// Height in pixels of the drawing area, from the first tick to the last.
inline constexpr double kPlotHeight = 260;

}  // namespace muster::cli

#endif  // MUSTER_CLI_EXPERIMENT_SVG_PLOT_H_
