#include "common/text/nearest.h"

#include "gtest/gtest.h"

namespace muster {
namespace {

TEST(NearestTest, ComputesEditDistance) {
  EXPECT_EQ(EditDistance("", ""), 0u);
  EXPECT_EQ(EditDistance("epoch", "epochs"), 1u);
  EXPECT_EQ(EditDistance("epochs", "epcohs"), 1u);  // transposition
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3u);
  EXPECT_EQ(EditDistance("", "abc"), 3u);
  EXPECT_EQ(EditDistance("Global-Batch", "global_batch"), 0u);
}

TEST(NearestTest, ReturnsTheClosestCandidate) {
  const std::vector<std::string> words = {"train", "name", "restart"};
  EXPECT_EQ(Nearest("nmae", words), "name");
  EXPECT_EQ(Nearest("restarts", words), "restart");
  EXPECT_EQ(Nearest("x", {}), "");
}

TEST(NearestTest, ReturnsNothingWithoutANearCandidate) {
  const std::vector<std::string> words = {"list", "release", "submit", "hold", "spec", "name"};
  for (const char* word : {"kill", "delete", "status", "help", "exec", "lr"}) {
    EXPECT_EQ(Nearest(word, words), "") << word;
    EXPECT_EQ(DidYouMean(word, words), "") << word;
  }
  EXPECT_EQ(DidYouMean("lst", words), "; did you mean 'list'?");
}

TEST(NearestTest, AcceptsAbbreviationsAndExtensions) {
  const std::vector<std::string> words = {"describe", "kernel"};
  EXPECT_EQ(Nearest("desc", words), "describe");
  EXPECT_EQ(Nearest("kernel_size", words), "kernel");
}

TEST(NearestTest, QuotedEscapesAndTruncates) {
  EXPECT_EQ(Quoted("a\nb"), "'a\\nb'");
  EXPECT_EQ(Quoted("größe"), "'größe'");
  const std::string cut = Quoted(std::string(79, 'x') + "ü" + std::string(1000, 'y'));
  EXPECT_EQ(cut, "'" + std::string(79, 'x') + "…'");
}

}  // namespace
}  // namespace muster
