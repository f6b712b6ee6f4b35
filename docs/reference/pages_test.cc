#include "docs/reference/pages.h"

#include <fstream>
#include <iterator>

#include "gtest/gtest.h"

namespace muster::reference {
namespace {

TEST(ReferencePagesTest, PagesAreUpToDate) {
  for (const Page& page : kPages) {
    std::ifstream file(page.path);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    EXPECT_TRUE(text == page.text()) << page.path << " is outdated; run: " << kWriteCommand;
  }
}

}  // namespace
}  // namespace muster::reference
