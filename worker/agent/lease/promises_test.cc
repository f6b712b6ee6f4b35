#include "worker/agent/lease/promises.h"

#include <utility>

#include "absl/status/status.h"
#include "common/time/proto_time.h"
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
    question.set_fence_set(7);
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

TEST_F(PromisesTest, VouchesOnlyForNodesWithTheSameSet) {
  v1::LeaseQuestion question = Question();
  question.set_fence_set(8);
  EXPECT_THAT(LoadMember().Vouch(question, kStart), IsEmpty());
}

TEST_F(PromisesTest, OverdueVouchersAreForgotten) {
  Promises promises = LoadMember();
  promises.Vouch(Question(), kStart);
  promises.Vouch(Question("other"), kStart + absl::Seconds(31));
  EXPECT_EQ(disk_.vouchers_size(), 1);
}

constexpr char kAddress[] = "ipv4:10.0.0.1:7070";
constexpr absl::Duration kFresh = absl::Seconds(2);

class LeaseWitnessTest : public ::testing::Test {
 protected:
  LeaseWitnessTest() {
    v1::FenceSet set;
    set.set_id(1);
    set.add_nodes("b");
    EXPECT_TRUE(promises_.SetFenceSet(set).ok());
    keeper_.OnAcknowledged(kStart);
  }

  static LeaseKeeper::Outside MakeKeeperOutside() {
    LeaseKeeper::Outside outside;
    outside.held = [] { return std::vector<LeaseKeeper::Lease>(); };
    return outside;
  }
  LeaseWitness::Outside MakeOutside() {
    LeaseWitness::Outside outside;
    outside.now = [this] { return now_; };
    outside.address = [] { return kAddress; };
    outside.forward = [this](const v1::LeaseQuestion&) { ++forwarded_; };
    outside.probe = [this](std::function<void(std::optional<SteadyTime>)> done) {
      probed_ = std::move(done);
    };
    outside.answer = [this](uint64_t, v1::PeerAnswer answer) { answer_ = std::move(answer); };
    return outside;
  }
  void AskAfter(absl::Duration time, const std::string& address = kAddress) {
    now_ = kStart + time;
    v1::LeaseQuestion question;
    question.set_node_name("x");
    question.set_fence_set(1);
    question.set_coordinator_address(address);
    v1::LeasedGeneration& asked = *question.add_generations();
    asked.set_job_id("job");
    asked.set_generation(1);
    *asked.mutable_lease() = ToProto(absl::Seconds(30));
    witness_.Ask(question, kFresh);
  }

  SteadyTime now_ = kStart;
  int forwarded_ = 0;
  std::function<void(std::optional<SteadyTime>)> probed_;
  v1::PeerAnswer answer_;
  Promises promises_{v1::PromiseRecord(), "boot", kStart,
                     [](const v1::PromiseRecord&) { return absl::OkStatus(); }};
  LeaseKeeper keeper_{"b", MakeKeeperOutside(), kStart};
  LeaseWitness witness_{"b", MakeOutside(), keeper_, promises_};
};

TEST_F(LeaseWitnessTest, ForwardsWhileTheCoordinatorAcknowledges) {
  AskAfter(absl::Seconds(2));
  EXPECT_EQ(forwarded_, 1);
  AskAfter(absl::Seconds(3));
  EXPECT_EQ(forwarded_, 1);
}

TEST_F(LeaseWitnessTest, ReportsRefusalWithItsAge) {
  AskAfter(absl::Seconds(3));
  now_ = kStart + absl::Seconds(4);
  probed_(kStart + absl::Seconds(3));
  EXPECT_EQ(FromProto(answer_.refused()), absl::Seconds(1));
  EXPECT_EQ(answer_.node_name(), "b");
  EXPECT_TRUE(answer_.vouched().empty());
  EXPECT_EQ(keeper_.newest_evidence(), kStart + absl::Seconds(3)) << "for its own ranks, too";
}

// The coordinator has moved since one of the two was acknowledged.
TEST_F(LeaseWitnessTest, RefusalOfAnotherAddressIsNotReported) {
  AskAfter(absl::Seconds(15), "ipv4:10.0.0.2:7070");
  probed_(now_);
  EXPECT_FALSE(answer_.has_refused());
  EXPECT_TRUE(answer_.vouched().empty());
}

TEST_F(LeaseWitnessTest, VouchesAfterAThirdOfTheLeaseWithoutEvidence) {
  AskAfter(absl::Seconds(9));
  probed_(std::nullopt);
  EXPECT_TRUE(answer_.vouched().empty());
  AskAfter(absl::Seconds(10));
  probed_(std::nullopt);
  EXPECT_EQ(answer_.vouched_size(), 1);
}

}  // namespace

}  // namespace muster::agent
