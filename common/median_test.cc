#include "common/median.h"

#include <vector>

#include "gtest/gtest.h"

namespace muster {
namespace {

double Median(std::vector<double> values) { return MedianOf(absl::MakeSpan(values)); }

TEST(MedianTest, IsTheMiddle) {
  EXPECT_EQ(Median({7}), 7);
  EXPECT_EQ(Median({9, 1, 4}), 4);
  EXPECT_EQ(Median({5, 5, 1, 9, 2}), 5);
}

TEST(MedianTest, IsTheMeanOfTheMiddleTwo) {
  EXPECT_EQ(Median({3, 1}), 2);
  EXPECT_EQ(Median({8, 1, 2, 4}), 3);
}

}  // namespace
}  // namespace muster
