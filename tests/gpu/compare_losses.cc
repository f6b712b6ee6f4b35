// Compares the losses of two jobs, as `muster local --losses -o json` prints them, step by step.
//
//   compare_losses EXPECTED.json ACTUAL.json TOLERANCE
//
// Prints one line of JSON. Status 1 where a loss differs by more, relative to the first job's, or
// where training did not get anywhere; 65 where a file has no losses.
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

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: compare_losses EXPECTED.json ACTUAL.json TOLERANCE\n";
    return 64;
  }
  const char* path = argv[1];
  try {
    const std::vector<double> expected = LossesOf(path);
    const std::vector<double> actual = LossesOf(path = argv[2]);
    const double tolerance = std::strtod(argv[3], nullptr);
    double largest = 0;
    size_t step = 0;
    bool agree = expected.size() == actual.size();
    for (size_t i = 0; i < std::min(expected.size(), actual.size()); ++i) {
      const double difference = std::abs(actual[i] - expected[i]) / std::max(1.0, expected[i]);
      // Written so that NaN does not pass.
      if (!(difference <= tolerance)) agree = false;
      if (!(difference <= largest)) largest = difference, step = i;
    }
    // A single batch says little.
    const auto part = static_cast<std::ptrdiff_t>(std::max<size_t>(1, actual.size() / 4));
    const bool learnt = std::accumulate(actual.end() - part, actual.end(), 0.0) <
                        std::accumulate(actual.begin(), actual.begin() + part, 0.0);
    std::cout << nlohmann::json{{"steps", actual.size()},
                                {"first_loss", actual.front()},
                                {"last_loss", actual.back()},
                                {"expected_last_loss", expected.back()},
                                {"largest_difference", largest},
                                {"at_step", step + 1},
                                {"tolerance", tolerance},
                                {"agree", agree},
                                {"learnt", learnt}}
              << std::endl;
    return agree && learnt ? 0 : 1;
  } catch (const std::exception& error) {
    std::cerr << "compare_losses: " << path << ": " << error.what() << "\n";
    return 65;
  }
}
