#include "coordinator/core/scheduler/placement/natural_order.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using ::testing::ElementsAre;

TEST(NaturalOrder, ComparesNumbersByValue) {
  std::vector<std::string> names = {"node-10",  "node-2",  "node-1", "a",
                                    "node-2-b", "node-02", "node"};
  std::sort(names.begin(), names.end(), NaturalLess);
  EXPECT_THAT(names,
              ElementsAre("a", "node", "node-1", "node-02", "node-2", "node-2-b", "node-10"));
}

TEST(NaturalOrder, IsStrictWeakOrdering) {
  const std::vector<std::string> names = {
      "", "0", "00", "1", "01", "a1", "a01", "a1b", "1a", "b", "18446744073709551616", "2"};
  for (const std::string& a : names) {
    EXPECT_FALSE(NaturalLess(a, a));
    for (const std::string& b : names) {
      if (a != b) EXPECT_NE(NaturalLess(a, b), NaturalLess(b, a)) << a << " " << b;
      for (const std::string& c : names) {
        if (NaturalLess(a, b) && NaturalLess(b, c)) {
          EXPECT_TRUE(NaturalLess(a, c)) << a << " " << b << " " << c;
        }
      }
    }
  }
}

}  // namespace
}  // namespace muster::core
