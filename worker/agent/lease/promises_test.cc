#include "worker/agent/lease/promises.h"

#include "absl/status/status.h"
#include "common/proto_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::agent {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr char kBoot[] = "boot-1";
constexpr absl::Duration kLease = absl::Seconds(30);
const SteadyTime kStart(absl::Hours(7));

class PromisesTest : public ::testing::Test {
 protected:
  Promises Load(SteadyTime now, const std::string& boot = kBoot) {
    return Promises(disk_, boot, now, [this](const v1::PromiseRecord& record) {
      if (disk_full_) return absl::ResourceExhaustedError("no space left on device");
      disk_ = record;
      return absl::OkStatus();
    });
  }
  // A worker that has been a member of the fence set for long.
  Promises LoadMember() {
    Promises promises = Load(kStart - absl::Hours(1));
    v1::FenceSet set;
    set.set_id(7);
    set.add_nodes("a");
    EXPECT_TRUE(promises.SetFenceSet(set).ok());
    return promises;
  }
  static v1::LeaseQuestion Question(const std::string& job = "job") {
    v1::LeaseQuestion question;
    question.set_node_name("x");
    v1::LeasedGeneration& asked = *question.add_generations();
    asked.set_job_id(job);
    asked.set_generation(2);
    *asked.mutable_lease() = ToProto(kLease);
    return question;
  }
  static v1::Bans Ban() {
    v1::Bans bans;
    bans.set_round(3);
    v1::Ban& ban = *bans.add_bans();
    ban.set_node_name("x");
    ban.set_job_id("job");
    ban.set_generation(2);
    *ban.mutable_lease() = ToProto(kLease);
    return bans;
  }
  static absl::Duration VoucherLeft(const absl::StatusOr<v1::BansKept>& kept) {
    EXPECT_TRUE(kept.ok()) << kept.status();
    EXPECT_EQ(kept->round(), 3u);
    return FromProto(kept->bans(0).voucher_left());
  }

  v1::PromiseRecord disk_;
  bool disk_full_ = false;
};

TEST_F(PromisesTest, BanReportsTheVoucherAndPreventsTheNext) {
  Promises promises = LoadMember();
  EXPECT_THAT(promises.Vouch(Question(), kStart), SizeIs(1));
  EXPECT_THAT(promises.Vouch(Question(), kStart + absl::Seconds(2)), SizeIs(1));
  EXPECT_EQ(VoucherLeft(promises.Ban(Ban(), kStart + absl::Seconds(10))), absl::Seconds(22));
  EXPECT_THAT(promises.Vouch(Question(), kStart + absl::Seconds(11)), IsEmpty());
  EXPECT_THAT(promises.Vouch(Question("other"), kStart + absl::Seconds(11)), SizeIs(1));
  EXPECT_EQ(VoucherLeft(promises.Ban(Ban(), kStart + absl::Seconds(40))), absl::ZeroDuration());
}

TEST_F(PromisesTest, BansAreReplaced) {
  Promises promises = LoadMember();
  EXPECT_TRUE(promises.Ban(Ban(), kStart).ok());
  EXPECT_TRUE(promises.Ban(v1::Bans(), kStart).ok());
  EXPECT_THAT(promises.Vouch(Question(), kStart), SizeIs(1));
}

TEST_F(PromisesTest, SuccessorKeepsPromises) {
  {
    Promises promises = LoadMember();
    EXPECT_THAT(promises.Vouch(Question(), kStart), SizeIs(1));
  }
  Promises successor = Load(kStart + absl::Seconds(5));
  EXPECT_EQ(successor.fence_set().id(), 7u);
  EXPECT_EQ(VoucherLeft(successor.Ban(Ban(), kStart + absl::Seconds(10))), absl::Seconds(20));
  Promises third = Load(kStart + absl::Seconds(11));
  EXPECT_THAT(third.Vouch(Question(), kStart + absl::Seconds(12)), IsEmpty());
}

// The clock starts again with the machine, and the voucher may be as new as the crash.
TEST_F(PromisesTest, VoucherLastsForAWholeLeaseAfterReboot) {
  LoadMember().Vouch(Question(), kStart);
  const SteadyTime rebooted(absl::Seconds(20));
  Promises promises = Load(rebooted, "boot-2");
  EXPECT_EQ(VoucherLeft(promises.Ban(Ban(), rebooted + absl::Seconds(1))), absl::Seconds(29));
}

TEST_F(PromisesTest, WithoutRecordTheWorkerMayHaveVouchedUntilItStarted) {
  Promises promises = Load(kStart);
  EXPECT_THAT(promises.Vouch(Question(), kStart), IsEmpty()) << "it may have been banned";
  EXPECT_EQ(VoucherLeft(promises.Ban(Ban(), kStart + absl::Seconds(10))), absl::Seconds(20));
  Promises successor = Load(kStart + absl::Seconds(11));
  EXPECT_EQ(VoucherLeft(successor.Ban(Ban(), kStart + absl::Seconds(12))), absl::Seconds(18));
}

TEST_F(PromisesTest, NothingIsPromisedThatIsNotStored) {
  Promises promises = LoadMember();
  disk_full_ = true;
  EXPECT_THAT(promises.Vouch(Question(), kStart), IsEmpty());
  EXPECT_FALSE(promises.Ban(Ban(), kStart).ok());
  v1::FenceSet set;
  set.set_id(8);
  EXPECT_FALSE(promises.SetFenceSet(set).ok());
  EXPECT_EQ(promises.fence_set().id(), 0u) << "the coordinator cannot know which set it would use";
}

TEST_F(PromisesTest, OverdueVouchersAreForgotten) {
  Promises promises = LoadMember();
  promises.Vouch(Question(), kStart);
  promises.Vouch(Question("other"), kStart + absl::Seconds(31));
  EXPECT_EQ(disk_.vouchers_size(), 1);
}

}  // namespace
}  // namespace muster::agent
