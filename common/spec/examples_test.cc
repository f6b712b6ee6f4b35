#include <fstream>
#include <iterator>

#include "common/spec/spec.h"
#include "gtest/gtest.h"

namespace muster::spec {
namespace {

class ExamplesTest : public ::testing::TestWithParam<const char*> {};

TEST_P(ExamplesTest, IsValid) {
  const std::string path = std::string("deploy/examples/") + GetParam();
  std::ifstream file(path);
  ASSERT_TRUE(file) << path;
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  auto spec = Parse(text, path);
  ASSERT_TRUE(spec.ok()) << spec.status();
  ApplyDefaults(*spec);
  EXPECT_TRUE(Validate(*spec).ok()) << Validate(*spec);
}

INSTANTIATE_TEST_SUITE_P(Deploy, ExamplesTest,
                         ::testing::Values("fashion_mnist.yaml", "mlp.yaml", "command.yaml"));

}  // namespace
}  // namespace muster::spec
