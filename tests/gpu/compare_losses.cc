// Compares the losses of two jobs, as `muster local --losses -o json` prints them, step by step.
//
//   compare_losses EXPECTED.json ACTUAL.json TOLERANCE [STABLE.json PERTURBED.json]
//   compare_losses --end EXPECTED.json ACTUAL.json TOLERANCE
//
// Training amplifies rounding errors, by orders of magnitude within tens of steps. STABLE and
// PERTURBED measure the amplification: two runs of the same training, the second with a learning
// rate larger by a factor of 1 + 1e-5. A loss may then differ by TOLERANCE plus ten times the
// largest difference of these two up to that step, so that early steps are compared tightly and
// later ones as far as the training itself is determined. Differences are relative to losses above
// 1.
//
// --end compares only the means over the last quarter of the steps: for precisions whose rounding
// exceeds any perturbation.
//
// Prints one line of JSON. Exit status 1 if a loss differs by more, or if training did not reduce
// the loss; 65 if a file has no losses.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace {

std::vector<double> LossesOf(const char* path) {
  std::ifstream file(path);
  const auto job = nlohmann::json::parse(file);
  const auto losses = job.at("summary").at("losses").get<std::vector<double>>();
  if (losses.size() < 2) throw std::runtime_error("fewer than two losses");
  return losses;
}

double Difference(double actual, double expected) {
  return std::abs(actual - expected) / std::max(1.0, expected);
}

// A quarter of the steps; averaged, because a single batch is too noisy.
std::ptrdiff_t QuarterOf(const std::vector<double>& losses) {
  return static_cast<std::ptrdiff_t>(std::max<size_t>(1, losses.size() / 4));
}

double MeanAtStart(const std::vector<double>& losses) {
  const auto count = QuarterOf(losses);
  return std::accumulate(losses.begin(), losses.begin() + count, 0.0) / static_cast<double>(count);
}

double MeanAtEnd(const std::vector<double>& losses) {
  const auto count = QuarterOf(losses);
  return std::accumulate(losses.end() - count, losses.end(), 0.0) / static_cast<double>(count);
}

struct Comparison {
  bool agree = true;
  double largest = 0;        // difference
  double largest_share = 0;  // largest share of the difference allowed at the step
  size_t at_step = 0;        // step of the largest share, counted from 1
};

// `spread` is the difference allowed for each loss in addition to `tolerance`; empty: none.
Comparison CompareSteps(const std::vector<double>& expected, const std::vector<double>& actual,
                        double tolerance, const std::vector<double>& spread) {
  Comparison result;
  result.agree = expected.size() == actual.size();
  for (size_t i = 0; i < std::min(expected.size(), actual.size()); ++i) {
    const double difference = Difference(actual[i], expected[i]);
    const double share = difference / (tolerance + (i < spread.size() ? spread[i] : 0));
    // Negated, so that NaN fails.
    if (!(share <= 1)) result.agree = false;
    if (!(difference <= result.largest)) result.largest = difference;
    if (!(share <= result.largest_share)) result.largest_share = share, result.at_step = i + 1;
  }
  return result;
}

// Ten times the largest difference up to each step.
std::vector<double> SpreadOf(const std::vector<double>& stable,
                             const std::vector<double>& perturbed) {
  std::vector<double> spread;
  double largest = 0;
  for (size_t i = 0; i < std::min(stable.size(), perturbed.size()); ++i) {
    largest = std::max(largest, 10 * Difference(perturbed[i], stable[i]));
    spread.push_back(largest);
  }
  return spread;
}

}  // namespace

int main(int argc, char** argv) {
  const bool end_only = argc > 1 && std::string(argv[1]) == "--end";
  const std::vector<const char*> arguments(argv + (end_only ? 2 : 1), argv + argc);
  if (arguments.size() != 3 && (end_only || arguments.size() != 5)) {
    std::cerr << "usage: compare_losses [--end] EXPECTED.json ACTUAL.json TOLERANCE "
                 "[STABLE.json PERTURBED.json]\n";
    return 64;
  }
  const char* path = arguments[0];
  try {
    const std::vector<double> expected = LossesOf(path);
    const std::vector<double> actual = LossesOf(path = arguments[1]);
    const double tolerance = std::strtod(arguments[2], nullptr);
    std::vector<double> spread;
    if (arguments.size() == 5) {
      const std::vector<double> stable = LossesOf(path = arguments[3]);
      spread = SpreadOf(stable, LossesOf(path = arguments[4]));
    }
    Comparison found = CompareSteps(expected, actual, tolerance, spread);
    if (end_only) {
      found.agree = expected.size() == actual.size() &&
                    Difference(MeanAtEnd(actual), MeanAtEnd(expected)) <= tolerance;
    }
    const bool learnt = MeanAtEnd(actual) < MeanAtStart(actual);
    nlohmann::json result = {{"steps", actual.size()},
                             {"first_loss", actual.front()},
                             {"last_loss", actual.back()},
                             {"mean_at_end", MeanAtEnd(actual)},
                             {"expected_mean_at_end", MeanAtEnd(expected)},
                             {"largest_difference", found.largest},
                             {"tolerance", tolerance},
                             {"agree", found.agree},
                             {"learnt", learnt}};
    if (!end_only) {
      result["largest_share_of_allowed"] = found.largest_share;
      result["at_step"] = found.at_step;
    }
    std::cout << result << std::endl;
    return found.agree && learnt ? 0 : 1;
  } catch (const std::exception& error) {
    std::cerr << "compare_losses: " << path << ": " << error.what() << "\n";
    return 65;
  }
}
