#include "collectives/stalled_ranks.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collectives/testing.h"
#include "gtest/gtest.h"

namespace muster::collectives {
namespace {

// `waiting_for[i]` lists the ranks that rank 10 + i waits for; empty: it does not time out.
std::vector<std::string> Find(const std::vector<std::vector<uint32_t>>& waiting_for) {
  FileKeyStore store;
  GroupOptions options;
  options.id = "id";
  options.store = &store;
  options.size = static_cast<uint32_t>(waiting_for.size());
  for (uint32_t i = 0; i < options.size; ++i) options.members.push_back(10 + i);
  std::vector<std::string> found(options.size);
  RunRankThreads(options.size, [&](uint32_t rank) {
    if (waiting_for[rank].empty()) return absl::OkStatus();
    GroupOptions own = options;
    own.rank = rank;
    found[rank] = absl::StrJoin(FindStalledRanks(own, waiting_for[rank]), " ");
    return absl::OkStatus();
  });
  return found;
}

using Found = std::vector<std::string>;

TEST(StalledRanksTest, DoesNotNameWaitingRank) {
  EXPECT_EQ(Find({{11, 12}, {12}, {}}), (Found{"12", "12", ""}));
}

TEST(StalledRanksTest, FollowsAChain) {
  EXPECT_EQ(Find({{11}, {12}, {13}, {}}), (Found{"13", "13", "13", ""}));
}

TEST(StalledRanksTest, NamesAllRanksWithoutReport) {
  EXPECT_EQ(Find({{13, 11}, {}, {10, 11, 13}, {}}), (Found{"11 13", "", "11 13", ""}));
}

TEST(StalledRanksTest, NamesRanksThatWaitForEachOther) {
  EXPECT_EQ(Find({{11}, {10}}), (Found{"11", "10"}));
}

}  // namespace
}  // namespace muster::collectives
