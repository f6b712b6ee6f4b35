#include "trainer/checkpoint/retention.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::train {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// A checkpoint with the name that its job gives it.
Folder Of(const std::string& job, uint64_t generation, uint64_t step) {
  return {FormatFolderName({step, generation}), step, generation, job};
}
Folder Evaluated(uint64_t step, double accuracy, double loss) {
  Folder folder = Of("job", 1, step);
  folder.test_accuracy = accuracy;
  folder.test_loss = loss;
  return folder;
}
Folder Unreadable(uint64_t generation, uint64_t step) {
  return {FormatFolderName({step, generation}), step, generation, std::nullopt};
}

std::vector<std::string> NewestFirst(std::vector<Folder> folders) {
  SortNewestFirst(folders, "job");
  std::vector<std::string> names;
  for (const Folder& folder : folders) {
    names.push_back(folder.name + " " + folder.job_id.value_or("?"));
  }
  return names;
}

TEST(FolderNameTest, ParsesWhatItFormats) {
  for (const FolderName& name : {FolderName{1234, 2}, FolderName{0, 0}, FolderName{123456789, 1},
                                 FolderName{5, 18446744073709551615u, "mnist-g2-x7k2"}}) {
    const auto parsed = ParseFolderName(FormatFolderName(name));
    ASSERT_TRUE(parsed.has_value()) << FormatFolderName(name);
    EXPECT_EQ(parsed->step, name.step);
    EXPECT_EQ(parsed->generation, name.generation);
    EXPECT_EQ(parsed->job_id, name.job_id);
  }
  EXPECT_EQ(FormatFolderName({1234, 2}), "step-00001234.g2");
  EXPECT_EQ(FormatFolderName({1234, 2, "a-b"}), "step-00001234.g2-a-b");
}

TEST(FolderNameTest, ReadsNamesOfEarlierReleases) {
  const auto parsed = ParseFolderName("step-00001234");
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(parsed->step, 1234u);
  EXPECT_EQ(parsed->generation, 0u);
}

TEST(FolderNameTest, IgnoresOtherNames) {
  for (const char* name :
       {"", "step-", "step-final", "step-123", "step-+0000123", "step-00001234.g", "GENERATION",
        "step-00001234.gx", "step-00001234.g2x", "step-00001234-job", "step-00001234 ",
        ".unfinished-step-00001234.g2-job", ".removed-step-00001234.g2-job",
        "step-99999999999999999999", "step-00001234.g99999999999999999999"}) {
    EXPECT_FALSE(ParseFolderName(name).has_value()) << name;
  }
}

TEST(RetentionTest, OrdersByGenerationThenStep) {
  EXPECT_THAT(NewestFirst({Of("job", 1, 100), Of("job", 2, 90), Of("job", 0, 300),
                           Of("job", 2, 100), Unreadable(7, 900), Of("other", 9, 800)}),
              ElementsAre("step-00000100.g2 job", "step-00000090.g2 job", "step-00000100.g1 job",
                          "step-00000300.g0 job", "step-00000800.g9 other", "step-00000900.g7 ?"));
}

TEST(RetentionTest, OrdersOtherJobsByStepOfTheirNewest) {
  EXPECT_THAT(NewestFirst({Of("first", 3, 100), Of("second", 1, 200), Of("first", 2, 900),
                           Of("second", 1, 50)}),
              ElementsAre("step-00000200.g1 second", "step-00000050.g1 second",
                          "step-00000100.g3 first", "step-00000900.g2 first"));
}

TEST(RetentionTest, FindsNewerGenerationOfOwnJobOnly) {
  const Owner owner{"job", 2};
  EXPECT_FALSE(NewerGeneration({}, owner).has_value());
  EXPECT_FALSE(
      NewerGeneration({Of("job", 2, 1), Of("other", 9, 1), Unreadable(9, 1)}, owner).has_value());
  EXPECT_EQ(NewerGeneration({Of("job", 4, 1), Of("job", 3, 9)}, owner), 4u);
}

TEST(RetentionTest, ClaimsEarlierGenerationsOfOwnJob) {
  const Owner owner{"job", 2};
  EXPECT_TRUE(MustClaim(Of("job", 1, 1), owner));
  EXPECT_TRUE(MustClaim(Of("job", 0, 1), owner));
  EXPECT_FALSE(MustClaim(Of("job", 2, 1), owner));
  EXPECT_FALSE(MustClaim(Of("job", 3, 1), owner));
  EXPECT_FALSE(MustClaim(Of("other", 1, 1), owner));
  EXPECT_FALSE(MustClaim(Unreadable(1, 1), owner));
}

TEST(RetentionTest, RemovesAllButNewest) {
  const std::vector<Folder> folders = {Of("job", 2, 30), Of("job", 2, 40), Of("job", 1, 20),
                                       Of("job", 1, 10), Of("job", 0, 5)};
  EXPECT_THAT(FoldersToRemove(folders, {"job", 2}, 40, {.keep = 3}),
              UnorderedElementsAre("step-00000010.g1", "step-00000005.g0"));
  EXPECT_THAT(FoldersToRemove(folders, {"job", 2}, 40, {.keep = 9}), IsEmpty());
  EXPECT_THAT(FoldersToRemove({Of("job", 2, 40)}, {"job", 2}, 40, {.keep = 0}), IsEmpty());
}

TEST(RetentionTest, RemovesNothingOfOthers) {
  const std::vector<Folder> folders = {Of("job", 3, 30), Of("job", 3, 90), Of("other", 1, 10),
                                       Unreadable(1, 20), Of("job", 2, 50)};
  EXPECT_THAT(FoldersToRemove(folders, {"job", 2}, 50, {.keep = 1}), IsEmpty());
  EXPECT_THAT(FoldersToRemove(folders, {"job", 1}, 50, {.keep = 1}), IsEmpty());
}

TEST(RetentionTest, RemovesLaterSteps) {
  // The training resumed from step 20, because step 30 was damaged, and has reached step 25.
  EXPECT_THAT(FoldersToRemove({Of("job", 1, 30), Of("job", 2, 20), Of("job", 2, 25)}, {"job", 2},
                              25, {.keep = 1}),
              UnorderedElementsAre("step-00000030.g1", "step-00000020.g2"));
}

TEST(RetentionTest, FindsBest) {
  const std::vector<Folder> folders = {Evaluated(10, 0.5, 0.2), Evaluated(20, 0.7, 0.9),
                                       Evaluated(30, 0.7, 0.4), Of("job", 1, 40),
                                       Evaluated(50, std::nan(""), std::nan(""))};
  const Owner owner{"job", 1};
  EXPECT_EQ(BestFolder(folders, owner, "test_accuracy")->step, 30u);
  EXPECT_EQ(BestFolder(folders, owner, "test_loss")->step, 10u);
  EXPECT_EQ(BestFolder(folders, owner, ""), nullptr);
  EXPECT_EQ(BestFolder(folders, {"other", 1}, "test_loss"), nullptr);
  EXPECT_EQ(BestFolder({Of("job", 1, 40)}, owner, "test_loss"), nullptr);
}

TEST(RetentionTest, KeepsBestInAdditionToNewest) {
  const std::vector<Folder> folders = {Evaluated(10, 0.5, 0.2), Evaluated(20, 0.7, 0.9),
                                       Evaluated(30, 0.6, 0.4), Of("job", 1, 40),
                                       Evaluated(90, 0.9, 0.1)};
  const auto removed = [&](const std::string& metric) {
    return FoldersToRemove(folders, {"job", 1}, 40, {.keep = 1, .keep_best = metric});
  };
  EXPECT_THAT(removed(""), UnorderedElementsAre("step-00000010.g1", "step-00000020.g1",
                                                "step-00000030.g1", "step-00000090.g1"));
  EXPECT_THAT(removed("test_accuracy"),
              UnorderedElementsAre("step-00000010.g1", "step-00000030.g1", "step-00000090.g1"));
  EXPECT_THAT(removed("test_loss"),
              UnorderedElementsAre("step-00000020.g1", "step-00000030.g1", "step-00000090.g1"));
}

TEST(RetentionTest, DeletesLeftoversOfOwnJobAndEarlierGenerations) {
  const Owner owner{"job", 2};
  EXPECT_TRUE(IsLeftover(UnfinishedFolderName({7, 2, "job"}), owner));
  EXPECT_TRUE(IsLeftover(UnfinishedFolderName({7, 1, "job"}), owner));
  EXPECT_TRUE(IsLeftover(RemovedFolderName({7, 1, "job"}), owner));
  EXPECT_FALSE(IsLeftover(UnfinishedFolderName({7, 3, "job"}), owner));
  EXPECT_FALSE(IsLeftover(UnfinishedFolderName({7, 1, "other"}), owner));
  EXPECT_FALSE(IsLeftover(UnfinishedFolderName({7, 1}), owner));
  EXPECT_FALSE(IsLeftover(FormatFolderName({7, 1, "job"}), owner));
  EXPECT_FALSE(IsLeftover(".unfinished-1-20", owner));
}

}  // namespace
}  // namespace muster::train
