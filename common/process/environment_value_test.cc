#include "common/process/environment_value.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace muster {
namespace {

TEST(EnvironmentValueTest, FindsWholeNames) {
  const std::vector<std::string> environment = {"AB=1", "A=2=3", "C="};
  EXPECT_EQ(EnvironmentValue(environment, "A"), "2=3");
  EXPECT_EQ(EnvironmentValue(environment, "C"), "");
  EXPECT_EQ(EnvironmentValue(environment, "D"), "");
}

}  // namespace
}  // namespace muster
