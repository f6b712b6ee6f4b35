#include "coordinator/core/goodput/ledger.h"

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

constexpr absl::Duration kSecond = absl::Seconds(1);

TEST(LedgerTest, AddsUpByCauseAndNode) {
  Ledger ledger;
  ledger.Add({v1::TIME_PRODUCTIVE, "", 3 * kSecond, 6 * kSecond});
  ledger.Add({v1::TIME_LOST_TO_NODE, "b", kSecond, kSecond});
  ledger.Add({v1::TIME_LOST_TO_NODE, "a", kSecond, kSecond});
  ledger.Add({v1::TIME_QUEUED, "", 2 * kSecond, absl::ZeroDuration()});
  ledger.Add({v1::TIME_PRODUCTIVE, "", kSecond, 2 * kSecond});
  ledger.Add({v1::TIME_REDONE, "", absl::ZeroDuration(), absl::ZeroDuration()});
  ASSERT_EQ(ledger.entries().size(), 4u);
  EXPECT_EQ(ledger.entries()[0].cause, v1::TIME_QUEUED);
  EXPECT_EQ(ledger.entries()[1].cause, v1::TIME_PRODUCTIVE);
  EXPECT_EQ(ledger.entries()[1].wall_time, 4 * kSecond);
  EXPECT_EQ(ledger.entries()[1].slot_time, 8 * kSecond);
  EXPECT_EQ(ledger.entries()[2].node, "a");
  EXPECT_EQ(ledger.entries()[3].node, "b");
  EXPECT_EQ(ledger.Of(v1::TIME_LOST_TO_NODE).wall_time, 2 * kSecond);
  EXPECT_EQ(ledger.Total().wall_time, 8 * kSecond);
  EXPECT_EQ(ledger.Total().slot_time, 10 * kSecond);
}

TEST(LedgerTest, RoundTripsThroughRecords) {
  Ledger ledger;
  ledger.Add({v1::TIME_LOST_TO_NODE, "a", absl::Nanoseconds(1'000'000'001), 2 * kSecond});
  Ledger::Records records = ledger.ToRecords();
  records.Add()->set_cause(static_cast<v1::TimeCause>(99));
  records.rbegin()->mutable_wall_time()->set_seconds(1);
  const Ledger found(records);
  ASSERT_EQ(found.entries().size(), 1u);
  EXPECT_EQ(found.entries()[0].node, "a");
  EXPECT_EQ(found.entries()[0].wall_time, absl::Nanoseconds(1'000'000'001));
  EXPECT_EQ(found.entries()[0].slot_time, 2 * kSecond);
}

TEST(LedgerTest, BoundsNumberOfNodes) {
  Ledger ledger;
  for (size_t i = 0; i < Ledger::kNodes + 10; ++i) {
    ledger.Add({v1::TIME_LOST_TO_NODE, absl::StrCat("node-", i), kSecond, kSecond});
  }
  EXPECT_EQ(ledger.entries().size(), Ledger::kNodes + 1);
  EXPECT_EQ(ledger.entries()[0].node, "");
  EXPECT_EQ(ledger.entries()[0].wall_time, 10 * kSecond);
  ledger.Add({v1::TIME_LOST_TO_NODE, "node-0", kSecond, kSecond});
  EXPECT_EQ(ledger.entries().size(), Ledger::kNodes + 1);
}

TEST(LedgerTest, CausesHaveNames) {
  EXPECT_EQ(NameOf(v1::TIME_PREPARING_DATA), "preparing_data");
  EXPECT_EQ(NameOf(v1::TIME_LOST_TO_NODE), "lost_to_node");
}

}  // namespace
}  // namespace muster::core
