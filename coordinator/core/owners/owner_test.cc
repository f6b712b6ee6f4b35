#include "coordinator/core/owners/owner.h"

#include "coordinator/core/steady_clock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

const absl::Duration kHalfLife = absl::Hours(24);
// Noon of a day.
const SteadyTime kStart(absl::Seconds(86400 * 20000 + 43200));

SteadyTime After(absl::Duration elapsed) { return kStart + elapsed; }

TEST(Owner, UseHalvesWithinHalfLife) {
  v1::OwnerRecord record;
  record.set_name("alice");
  record.set_usage(1000);
  *record.mutable_usage_time() = ToStored(kStart);
  const Owner owner(record, kHalfLife, kStart);
  EXPECT_DOUBLE_EQ(owner.Usage(kStart), 1000);
  EXPECT_NEAR(owner.Usage(After(kHalfLife)), 500, 1e-6);
  EXPECT_NEAR(owner.Usage(After(2 * kHalfLife)), 250, 1e-6);
}

TEST(Owner, UseDoesNotDependOnHowOftenItIsCharged) {
  Owner once("alice", kHalfLife, kStart);
  Owner often("alice", kHalfLife, kStart);
  once.Start({3, 1}, kStart);
  often.Start({3, 1}, kStart);
  for (int minute = 0; minute < 600; ++minute) often.Charge(After(absl::Minutes(minute)));
  EXPECT_NEAR(once.Usage(After(absl::Hours(10))), often.Usage(After(absl::Hours(10))), 1e-6);
  // Use that goes on for ever approaches slots * half-life / ln 2.
  EXPECT_NEAR(once.Usage(After(absl::Hours(24 * 1000))), 4 * 86400 / 0.6931471805599453, 1);
}

TEST(Owner, DividesSlotSecondsAmongDays) {
  Owner owner("alice", kHalfLife, kStart);
  owner.Start({2, 3}, kStart);
  owner.End({2, 3}, After(absl::Hours(37)));  // 12 h, 24 h and 1 h on three days
  ASSERT_EQ(owner.days().size(), 3u);
  EXPECT_DOUBLE_EQ(owner.days().at(20000).cpu_slot_seconds(), 2 * 12 * 3600);
  EXPECT_DOUBLE_EQ(owner.days().at(20001).cpu_slot_seconds(), 2 * 24 * 3600);
  EXPECT_DOUBLE_EQ(owner.days().at(20002).cpu_slot_seconds(), 2 * 1 * 3600);
  EXPECT_DOUBLE_EQ(owner.days().at(20002).gpu_slot_seconds(), 3 * 1 * 3600);
  EXPECT_EQ(owner.running().total(), 0u);
}

TEST(Owner, ContinuesFromItsRecord) {
  Owner owner("alice", kHalfLife, kStart);
  owner.Start({1, 0}, kStart);
  owner.Charge(After(absl::Hours(1)));
  owner.Start({2, 0}, After(absl::Hours(1)));
  const v1::OwnerRecord record = owner.ToRecord();
  // The coordinator ends half an hour later, and another one starts after two hours.
  Owner restored(record, kHalfLife, After(absl::Hours(3)));
  restored.Resume({3, 0});
  const SteadyTime end = After(absl::Hours(4));
  restored.Charge(end);
  owner.Charge(end);
  EXPECT_NEAR(restored.Usage(end), owner.Usage(end), 1e-6);
  EXPECT_NEAR(restored.days().at(20000).cpu_slot_seconds(), 10 * 3600, 1e-6);
  EXPECT_NEAR(owner.days().at(20000).cpu_slot_seconds(), 10 * 3600, 1e-6);
}

TEST(Owner, DropsOldDays) {
  Owner owner("alice", kHalfLife, kStart);
  owner.OnDay(19999).set_jobs_submitted(1);
  owner.Charge(After(absl::Hours(24 * 200)));
  EXPECT_TRUE(owner.days().empty());
}

TEST(Owner, TakesRecordFromTheFutureAsPresent) {
  v1::OwnerRecord record;
  record.set_usage(1000);
  *record.mutable_usage_time() = ToStored(After(absl::Hours(5)));
  EXPECT_DOUBLE_EQ(Owner(record, kHalfLife, kStart).Usage(kStart), 1000);
}

}  // namespace
}  // namespace muster::core
