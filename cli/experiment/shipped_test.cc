// Validates the files in deploy/experiments/.
#include <filesystem>
#include <fstream>
#include <iterator>

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
    ASSERT_TRUE(cells.ok()) << cells.status();
    EXPECT_GE(cells->size(), 4u);
  }
  EXPECT_GE(files, 5);
}

}  // namespace
}  // namespace muster::cli
