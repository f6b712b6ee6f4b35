#include "worker/c10d_store/wait_diagnosis.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::c10d_store {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kLater = 60'000;

class WaitDiagnosisTest : public ::testing::Test {
 protected:
  // Connections 0, 1, … of the ranks 0, 1, …
  void Connect(uint32_t ranks) {
    for (uint32_t rank = 0; rank < ranks; ++rank) roster_.SetRank(roster_.Add("peer"), rank);
  }
  void Ask(ConnectionId client, Request request, int64_t now_ms = 0) {
    EXPECT_EQ(store_.Handle(client, std::move(request), now_ms), std::nullopt);
  }
  std::vector<WaitReport> Diagnose(int64_t now_ms = kLater) {
    return DiagnoseWaits(store_, roster_, now_ms);
  }
  WaitReport Only(int64_t now_ms = kLater) {
    const std::vector<WaitReport> reports = Diagnose(now_ms);
    EXPECT_EQ(reports.size(), 1u);
    return reports.empty() ? WaitReport{} : reports[0];
  }

  Store store_{[](ConnectionId, const std::string&) {}};
  Roster roster_{4};
};

TEST_F(WaitDiagnosisTest, ReportsLongWaitsOnly) {
  Connect(4);
  Ask(0, Wait{{"/a"}}, kLater - kReportedWaitMs + 1);
  EXPECT_THAT(Diagnose(kLater), IsEmpty());
  EXPECT_EQ(Only(kLater + 1).since_boot_ms, kLater - kReportedWaitMs + 1);
}

TEST_F(WaitDiagnosisTest, NamesTheRankWhoseKeyOfASeriesIsMissing) {
  Connect(4);
  for (const uint32_t rank : {0, 1, 3}) {
    Ask(rank, Set{"/work/rank_" + std::to_string(rank), "x"});
    Ask(rank, Wait{{"/work/rank_2"}}, rank);
  }
  const WaitReport report = Only();
  EXPECT_EQ(report.what,
            "c10d key \"work/rank_2\" (awaited by ranks 0, 1 and 3; ranks 0, 1 and 3 have set "
            "theirs, rank 2 has not)");
  EXPECT_THAT(report.missing, ElementsAre(2));
}

TEST_F(WaitDiagnosisTest, MergesWaitsForKeysOfOneRank) {
  Connect(4);
  Ask(0, Wait{{"/default_pg/0/0/2"}}, 2);
  Ask(1, Wait{{"/default_pg/0/0/rank_2"}}, 1);
  Ask(3, Wait{{"/default_pg/0/0/1"}}, 3);
  const std::vector<WaitReport> reports = Diagnose();
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reports[0].what,
            "c10d key \"default_pg/0/0/rank_2\" and 1 more (awaited by ranks 0 and 1)");
  EXPECT_THAT(reports[0].missing, ElementsAre(2));
  EXPECT_THAT(reports[1].missing, ElementsAre(1));
}

TEST_F(WaitDiagnosisTest, NumbersNeedNotBeRanks) {
  Connect(4);
  for (const char* key : {"/batch/0", "/batch/1"}) Ask(0, Set{key, "x"});
  for (const uint32_t rank : {1, 2, 3}) Ask(rank, Wait{{"/batch/2"}});
  const WaitReport report = Only();
  EXPECT_EQ(report.what,
            "c10d key \"batch/2\" (awaited by ranks 1-3; rank 0 does not wait in the store)");
  EXPECT_THAT(report.missing, ElementsAre(0));
}

TEST_F(WaitDiagnosisTest, NamesRanksOfDefaultGroupByTheirKeys) {
  Connect(1);
  for (const char* key : {"/default_pg/0//cpu//0/2", "//worker/attempt_0/default_pg/0/0/rank_2"}) {
    Ask(0, Wait{{key}});
    EXPECT_THAT(Only().missing, ElementsAre(2));
  }
}

TEST_F(WaitDiagnosisTest, NamesRanksThatHaveNotConnected) {
  Connect(2);
  roster_.SetRank(roster_.Add("peer"), 3);
  for (const ConnectionId client : {0, 1, 2}) Ask(client, Wait{{"/id"}});
  const WaitReport report = Only();
  EXPECT_EQ(report.what,
            "c10d key \"id\" (awaited by ranks 0, 1 and 3; rank 2 has not connected to the store)");
  EXPECT_THAT(report.missing, ElementsAre(2));
}

TEST_F(WaitDiagnosisTest, AllRanksWait) {
  Connect(4);
  for (const ConnectionId client : {0, 1, 2, 3}) Ask(client, Wait{{"/id"}});
  EXPECT_EQ(Only().reason, "any rank to set it; all ranks wait in the store");
  EXPECT_THAT(Only().missing, IsEmpty());
}

TEST_F(WaitDiagnosisTest, NamesNoRankWhileClientsAreUnknown) {
  Connect(3);
  const ConnectionId unknown = roster_.Add("10.0.0.2:4711");
  Ask(0, Wait{{"/id"}});
  Ask(unknown, Wait{{"/id"}});
  EXPECT_EQ(Only().what, "c10d key \"id\" (awaited by rank 0 and the process at 10.0.0.2:4711)");
  EXPECT_EQ(Only().reason, "any rank to set it");
}

TEST_F(WaitDiagnosisTest, NamesRanksThatHaveNotArrivedAtBarrier) {
  Connect(4);
  for (const uint32_t rank : {0, 1, 3}) Ask(rank, Barrier{"/epoch", 4});
  EXPECT_EQ(Only().what, "c10d barrier \"epoch\" (3 of 4 have arrived: ranks 0, 1 and 3)");
  EXPECT_THAT(Only().missing, ElementsAre(2));
}

TEST_F(WaitDiagnosisTest, BarrierOfSomeRanks) {
  Connect(4);
  Ask(0, Barrier{"/pair", 2});
  EXPECT_EQ(Only().what, "c10d barrier \"pair\" (1 of 2 have arrived: rank 0)");
  EXPECT_EQ(Only().reason, "the others to arrive");
}

// The barrier at the end of init_process_group, as PyTorch 2 implements it.
TEST_F(WaitDiagnosisTest, NamesRanksThatHaveNotArrivedAtStoreBarrier) {
  Connect(4);
  for (const uint32_t rank : {0, 2}) {
    Ask(rank, Add{"/store_based_barrier_key:0", 1});
    Ask(rank, Add{"/store_based_barrier_key:0", 0});
    Ask(rank, Wait{{"/store_based_barrier_key:0:last_worker"}});
  }
  EXPECT_EQ(Only().what,
            "c10d barrier \"store_based_barrier_key:0\" (2 of 4 have arrived: ranks 0 and 2)");
  EXPECT_THAT(Only().missing, ElementsAre(1, 3));
}

// The same of PyTorch 1.13.
TEST_F(WaitDiagnosisTest, NamesRanksThatPolledCounterWaitsFor) {
  Connect(4);
  for (const uint32_t rank : {0, 1, 2}) {
    Ask(rank, Add{"/barrier", 1});
    for (int64_t ms = 0; ms <= kLater; ms += 10) Ask(rank, Add{"/barrier", 0}, ms);
  }
  EXPECT_EQ(Only().since_boot_ms, 0);
  EXPECT_THAT(Only().missing, ElementsAre(3));
  // They have stopped.
  EXPECT_THAT(Diagnose(2 * kLater), IsEmpty());
}

TEST_F(WaitDiagnosisTest, LimitsReports) {
  Connect(4);
  for (ConnectionId client = 4; client < 24; ++client) {
    roster_.SetRank(roster_.Add("peer"), client % 4);
    Ask(client, Wait{{"/key-" + std::string(1, static_cast<char>('a' + client))}}, 100 - client);
  }
  const std::vector<WaitReport> reports = Diagnose();
  ASSERT_EQ(reports.size(), kMaxReportedWaits);
  EXPECT_EQ(reports[0].since_boot_ms, 100 - 23);
}

TEST_F(WaitDiagnosisTest, ShowsPrintablePartOfKey) {
  Connect(4);
  Ask(0, Wait{{"/" + std::string("a\nb\xff") + std::string(200, 'k')}});
  EXPECT_THAT(Only().what, HasSubstr("\"a?b?" + std::string(116, 'k') + "...\""));
}

TEST(RosterTest, RankInKey) {
  EXPECT_EQ(RankInKey("/default_pg/0//cpu//0/13"), 13u);
  EXPECT_EQ(RankInKey("//worker/attempt_2/default_pg/0/0/rank_3"), 3u);
  EXPECT_EQ(RankInKey("//worker/attempt_0/default_pg/0/0/3"), 3u);
  for (const char* key : {"/default_pg/0//1//cpu//0/1", "//worker/attempt_0/default_pg/1/0/1",
                          "/default_pg/0/0/", "/default_pg/0/0/rank_x", "/mine/0/0/1", ""}) {
    EXPECT_EQ(RankInKey(key), std::nullopt) << key;
  }
}

TEST(RosterTest, RanksText) {
  EXPECT_EQ(RanksText({3}), "rank 3");
  EXPECT_EQ(RanksText({0, 1}), "ranks 0 and 1");
  EXPECT_EQ(RanksText({0, 1, 2, 5, 7, 8}), "ranks 0-2, 5, 7 and 8");
  EXPECT_EQ(RanksText({0, 2, 4, 6, 8}, 2), "ranks 0, 2 and 3 more");
}

}  // namespace
}  // namespace muster::c10d_store
