#include <filesystem>
#include <fstream>
#include <iterator>

#include "gtest/gtest.h"
#include "spec/spec.h"

namespace muster::spec {
namespace {

TEST(ExamplesTest, AllExamplesAreValid) {
  int examples = 0;
  for (const auto& entry : std::filesystem::directory_iterator("deploy/examples")) {
    ++examples;
    const std::string path = entry.path().string();
    std::ifstream file(path);
    ASSERT_TRUE(file) << path;
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    auto spec = Parse(text, path);
    ASSERT_TRUE(spec.ok()) << spec.status();
    ApplyDefaults(*spec);
    EXPECT_TRUE(Validate(*spec).ok()) << path << ": " << Validate(*spec);
  }
  EXPECT_GE(examples, 12);
}

}  // namespace
}  // namespace muster::spec
