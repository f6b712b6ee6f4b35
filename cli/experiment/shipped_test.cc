// The files under deploy/experiments/.
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "cli/experiment/cells.h"
#include "cli/experiment/experiment.h"
#include "gtest/gtest.h"

namespace muster::cli {
namespace {

TEST(ShippedExperiments, AreValid) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator("deploy/experiments")) {
    const std::string path = entry.path().string();
    SCOPED_TRACE(path);
    ++files;
    std::ifstream file(path);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const absl::StatusOr<Experiment> experiment = ParseExperiment(text, path, {});
    ASSERT_TRUE(experiment.ok()) << experiment.status();
    EXPECT_EQ(experiment->name, entry.path().stem().string());
    const absl::StatusOr<std::vector<Cell>> cells = MakeCells(*experiment);
    if (cells.ok()) {
      EXPECT_GE(cells->size(), 4u);
      continue;
    }
    // They may be ahead of what is built in, and of nothing else.
    for (absl::string_view problem : absl::StrSplit(cells.status().message(), '\n')) {
      EXPECT_TRUE(absl::StrContains(problem, "is not built in")) << problem;
    }
  }
  EXPECT_GE(files, 5);
}

}  // namespace
}  // namespace muster::cli
