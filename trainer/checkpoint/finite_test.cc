#include "trainer/checkpoint/finite.h"

#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/exit_code.h"

namespace muster::train {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kMax = std::numeric_limits<float>::max();

TEST(CheckFiniteTest, AcceptsFiniteValuesAndIntegers) {
  EXPECT_TRUE(CheckFinite("model.safetensors", {}).ok());
  const std::vector<Tensor> tensors = {
      {"w", {4}, std::vector<float>{0, -kMax, kMax, std::numeric_limits<float>::denorm_min()}},
      {"n", {1}, std::vector<int64_t>{std::numeric_limits<int64_t>::max()}},
      {"none", {0}, std::vector<float>{}}};
  EXPECT_TRUE(CheckFinite("model.safetensors", tensors).ok());
}

TEST(CheckFiniteTest, NamesFirstTensorAndCount) {
  std::vector<float> long_tensor(1001, 1);
  for (const size_t index : {0, 7, 1000}) {
    long_tensor[index] = index == 7 ? -kInfinity : index == 0 ? kInfinity : -kNan;
  }
  const std::vector<Tensor> tensors = {{"a", {1}, std::vector<float>{1}},
                                       {"b", {7, 11, 13}, long_tensor},
                                       {"c", {1}, std::vector<float>{kNan}}};
  const absl::Status status = CheckFinite("optimizer.safetensors", tensors);
  EXPECT_EQ(ExitCodeOf(status), kExitDiverged);
  EXPECT_THAT(std::string(status.message()),
              ::testing::StartsWith("optimizer.safetensors: tensor b has 3 of 1001 values that are "
                                    "NaN or infinite: training diverged"));
}

}  // namespace
}  // namespace muster::train
